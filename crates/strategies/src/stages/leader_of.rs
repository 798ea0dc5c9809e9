use election_core::{record::MemberRecord, strategy::Round};

use crate::{
    published,
    stage::{Comparison, Standing},
};

/// Members that lead certain other jobs go first, or last: a job is led beside the leaders of others, or apart from
/// them.
/// It uses what members publish ([`published`]), which is as old as their last write: two jobs that are elected at the
/// same moment do not see each other. It is a comparison and refuses no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderOf {
    jobs: Vec<String>,
    within: Within,
    apart: bool,
}

/// Where the other job counts as led beside a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Within {
    /// On the same member.
    #[default]
    Member,
    /// In its site. For a job with several slots, members that lead one slot are not seen from the others.
    Site,
}

impl LeaderOf {
    /// The name of the stage that prefers to be together.
    pub const WITH: &'static str = "with-leader-of";
    /// The name of the stage that prefers to be apart.
    pub const APART: &'static str = "apart-from";

    /// Beside the leaders of these jobs: the more of them, the better.
    pub fn with(jobs: impl IntoIterator<Item = String>, within: Within) -> Self {
        Self { jobs: jobs.into_iter().collect(), within, apart: false }
    }

    /// Apart from the leaders of these jobs: the fewer of them, the better.
    pub fn apart_from(jobs: impl IntoIterator<Item = String>, within: Within) -> Self {
        Self { apart: true, ..Self::with(jobs, within) }
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().map(String::as_str)
    }

    /// The jobs that are led there, and the others.
    fn split(&self, candidate: &MemberRecord, round: &Round<'_>) -> (Vec<&str>, Vec<&str>) {
        self.jobs().partition(|job| match self.within {
            Within::Member => published::leads(candidate, job),
            Within::Site => {
                let mut there = round.candidates.iter().filter(|other| other.site == candidate.site);
                there.any(|other| published::leads(other, job))
            }
        })
    }
}

impl Comparison for LeaderOf {
    fn name(&self) -> &'static str {
        if self.apart { Self::APART } else { Self::WITH }
    }

    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        let (here, elsewhere) = self.split(candidate, round);
        let worse = if self.apart { here } else { elsewhere };
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

    fn ranked(stage: LeaderOf) -> Vec<String> {
        order(&Pipeline::new().compare(stage), &view())
    }

    #[test]
    fn together_on_the_very_member() {
        assert_eq!(
            ranked(LeaderOf::with(jobs(&["db", "mq"]), Within::Member)),
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
            ranked(LeaderOf::apart_from(jobs(&["db", "mq"]), Within::Member)),
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
            ranked(LeaderOf::with(jobs(&["mq"]), Within::Site)),
            [
                "w-1: site west leads mq",
                "e-1: site east does not lead mq; first by member id",
                "e-2: site east does not lead mq; second by member id",
                "x-1: site north does not lead mq; third by member id",
            ]
        );
        assert_eq!(
            ranked(LeaderOf::apart_from(jobs(&["db"]), Within::Site))[0],
            "x-1: site north does not lead db"
        );
    }

    #[test]
    fn where_no_member_leads_it_nothing_is_said() {
        let alone = LeaderOf::with(jobs(&["web"]), Within::Member);
        assert_eq!(ranked(alone)[0], "e-1: first by member id");
    }
}
