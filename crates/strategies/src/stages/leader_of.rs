use election_core::strategy::{MemberRecord, Round};

use serde::Deserialize;

use crate::{
    needs::Needs,
    published,
    stage::{Comparison, Stage, Standing},
    types::one_or_more_distinct,
};

/// Members that lead certain other jobs go first, or last: a job is led beside the leaders of others, or apart from
/// them.
/// It uses what members publish ([`published`]), which is as old as their last write: two jobs that are elected at the
/// same moment do not see each other. It is a comparison and refuses no member.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table such as { job = \"db\" }, with the name of another job or an array of names")]
pub struct LeaderOf<const APART: bool> {
    #[serde(rename = "job", deserialize_with = "one_or_more_distinct")]
    jobs: Vec<String>,
    #[serde(rename = "by", default)]
    within: Within,
}

/// Members that lead certain other jobs go first.
pub type WithLeaderOf = LeaderOf<false>;

/// Members that lead certain other jobs go last.
pub type ApartFrom = LeaderOf<true>;

impl<const APART: bool> Stage for LeaderOf<APART> {
    const NAME: &'static str = if APART { "apart-from" } else { "with-leader-of" };
}

/// Where the other job counts as led beside a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Within {
    /// On the same member.
    #[default]
    Member,
    /// In its site. For a job with several slots, members that lead one slot are not seen from the others.
    Site,
}

impl<const APART: bool> LeaderOf<APART> {
    /// The leaders of these jobs: the more of them a member is beside, the better or, where it is to be apart, the worse.
    pub fn new(jobs: impl IntoIterator<Item = String>, within: Within) -> Self {
        Self { jobs: jobs.into_iter().collect(), within }
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs { jobs: self.jobs.iter().cloned().collect(), ..Needs::default() }
    }

    /// The jobs that are led there, and the others.
    fn split(&self, candidate: &MemberRecord, round: &Round<'_>) -> (Vec<&str>, Vec<&str>) {
        self.jobs.iter().map(String::as_str).partition(|job| match self.within {
            Within::Member => published::leads(candidate, job),
            Within::Site => {
                let mut there = round.candidates.iter().filter(|other| other.site == candidate.site);
                there.any(|other| published::leads(other, job))
            }
        })
    }
}

impl<const APART: bool> Comparison for LeaderOf<APART> {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        let (here, elsewhere) = self.split(candidate, round);
        let worse = if APART { here } else { elsewhere };
        i64::try_from(worse.len()).unwrap_or(i64::MAX)
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let (here, elsewhere) = self.split(candidate, round);
        let site = &candidate.site;
        match (self.within, here.is_empty()) {
            (Within::Member, false) => format!("leads {}", here.join(" and ")),
            (Within::Member, true) => format!("does not lead {}", elsewhere.join(" or ")),
            (Within::Site, false) => format!("site {site} leads {}", here.join(" and ")),
            (Within::Site, true) => format!("site {site} does not lead {}", elsewhere.join(" or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, order, with_attributes},
    };

    /// Of these two `e-1` leads db and `w-1` both.
    fn view() -> View {
        View::of([
            with_attributes("e-1", "east", 1, [("dr.leads", "db")]),
            with_attributes("e-2", "east", 2, []),
            with_attributes("w-1", "west", 3, [("dr.leads", "db mq")]),
            with_attributes("x-1", "north", 4, []),
        ])
    }

    fn jobs(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn ranked<const APART: bool>(stage: LeaderOf<APART>) -> Vec<String> {
        order(&Pipeline::new().compare(stage), &view())
    }

    #[test]
    fn together_on_the_very_member() {
        assert_eq!(
            ranked(WithLeaderOf::new(jobs(&["db", "mq"]), Within::Member)),
            [
                "w-1: leads db and mq",
                "e-1: leads db",
                "e-2: does not lead db or mq; first by member id",
                "x-1: does not lead db or mq; second by member id",
            ]
        );
    }

    #[test]
    fn apart_on_the_very_member() {
        assert_eq!(
            ranked(ApartFrom::new(jobs(&["db", "mq"]), Within::Member)),
            [
                "e-2: does not lead db or mq; first by member id",
                "x-1: does not lead db or mq; second by member id",
                "e-1: leads db",
                "w-1: leads db and mq",
            ]
        );
    }

    #[test]
    fn in_the_same_site_or_in_another() {
        assert_eq!(
            ranked(WithLeaderOf::new(jobs(&["mq"]), Within::Site)),
            [
                "w-1: site west leads mq",
                "e-1: site east does not lead mq; first by member id",
                "e-2: site east does not lead mq; second by member id",
                "x-1: site north does not lead mq; third by member id",
            ]
        );
        assert_eq!(
            ranked(ApartFrom::new(jobs(&["db"]), Within::Site))[0],
            "x-1: site north does not lead db"
        );
    }

    #[test]
    fn where_no_member_leads_it_nothing_is_said() {
        let alone = WithLeaderOf::new(jobs(&["web"]), Within::Member);
        assert_eq!(ranked(alone)[0], "e-1: first by member id");
    }
}
