use election_core::strategy::{Ground, MemberRecord, Round};
use serde::Deserialize;

use super::is_incumbent;
use crate::{
    needs::Needs,
    other_jobs::{LedBy, OtherJob, OtherJobs},
    stage::{Comparison, Filter, Stage, Standing},
};

/// Members beside the leader of another job lead, or go first; or those apart from it.
///
/// With [`Strength::Require`] and [`Strength::Apart`] it is a filter, and a leader in the wrong place is replaced at once by
/// a candidate in the right one. While the other job's leader changes or its automatic decisions are suspended
/// ([`OtherJob::Unsettled`]), no leader is replaced for its sake: only a new leader is chosen by the place that was decided.
/// While the other job is [unknown](OtherJob::Unknown), nothing moves by itself with `Require`: the incumbent and the member
/// that an operator names pass. The other strengths rank then as if the stage were absent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table such as { job = \"db\", place = \"site\" }")]
pub struct WithJob {
    #[serde(deserialize_with = "crate::types::name")]
    job: String,
    #[serde(default)]
    place: Within,
    #[serde(default)]
    strength: Strength,
    /// What is known of the job.
    #[serde(skip, default = "not_seen")]
    seen: OtherJob,
}

/// What counts as beside a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Within {
    /// The same member.
    #[default]
    Member,
    /// A member of its site.
    Site,
}

/// How much the other job's place counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Strength {
    /// Only members beside it lead.
    Require,
    /// Members beside it go first.
    #[default]
    Prefer,
    /// Members beside it go last.
    Avoid,
    /// No member beside it leads.
    Apart,
}

impl Stage for WithJob {
    const NAME: &'static str = "with-job";
}

fn not_seen() -> OtherJob {
    OtherJob::Unknown("it is not known here".to_owned())
}

impl WithJob {
    /// Beside the leader of this job, or apart from it. Nothing is known of the job yet.
    pub fn new(job: impl Into<String>, place: Within, strength: Strength) -> Self {
        Self { job: job.into(), place, strength, seen: not_seen() }
    }

    /// The same with what is known of other jobs.
    #[must_use]
    pub fn seeing(self, jobs: &OtherJobs) -> Self {
        let seen = jobs.get(&self.job).cloned().unwrap_or_else(not_seen);
        Self { seen, ..self }
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs { jobs: [self.job.clone()].into(), ..Needs::default() }
    }

    /// The other job, if only members beside it lead.
    pub(crate) fn required(self) -> Option<String> {
        (self.strength == Strength::Require).then_some(self.job)
    }

    /// Whether it refuses members.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self.strength, Strength::Require | Strength::Apart)
    }

    fn is_beside(&self, candidate: &MemberRecord) -> bool {
        self.seen.led_by().iter().any(|by| match self.place {
            Within::Member => by.member == candidate.member,
            Within::Site => by.site == candidate.site,
        })
    }

    /// The sentence for all members: `follows db, which leads in west`.
    pub(crate) fn in_words(&self) -> String {
        let job = &self.job;
        let follows = match self.strength {
            Strength::Require | Strength::Prefer => "follows",
            Strength::Avoid | Strength::Apart => "keeps apart from",
        };
        match &self.seen {
            OtherJob::Led(_) => format!("{follows} {job}, which leads {}", self.there()),
            OtherJob::Unsettled(_, why) => {
                format!("{follows} {job}, which leads {}, and stays for now: {why}", self.there())
            }
            OtherJob::Unknown(why) => format!("{follows} {job}, and stays for now: {why}"),
        }
    }

    /// `in west`, or `on west-1`.
    fn there(&self) -> String {
        let name = |by: &LedBy| match self.place {
            Within::Member => by.member.to_string(),
            Within::Site => by.site.to_string(),
        };
        let mut names: Vec<_> = self.seen.led_by().iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        let at = if self.place == Within::Site { "in" } else { "on" };
        format!("{at} {}", names.join(" and "))
    }
}

impl Filter for WithJob {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        if !self.refuses() {
            return None;
        }
        let job = &self.job;
        let is_wanted = self.strength == Strength::Require;
        let passes = is_incumbent(candidate, round) || round.ordered == Some(&candidate.ballot);
        match &self.seen {
            OtherJob::Unknown(why) => {
                (is_wanted && !passes).then(|| format!("it must lead beside {job}: {why}"))
            }
            OtherJob::Unsettled(..) if passes => None,
            OtherJob::Unsettled(..) | OtherJob::Led(_) => {
                (self.is_beside(candidate) != is_wanted).then(|| {
                    let place = if is_wanted { "beside" } else { "apart from" };
                    format!("it must lead {place} {job} which leads {}", self.there())
                })
            }
        }
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        match self.seen {
            OtherJob::Led(_) => Ground::Order,
            OtherJob::Unsettled(..) | OtherJob::Unknown(_) => Ground::State,
        }
    }
}

impl Comparison for WithJob {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        let is_beside = self.is_beside(candidate);
        match (&self.seen, self.strength) {
            (OtherJob::Led(_), Strength::Prefer) => i64::from(!is_beside),
            (OtherJob::Led(_), Strength::Avoid) => i64::from(is_beside),
            // Whom it refuses is not compared.
            _ => 0,
        }
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, _: &Round<'_>) -> String {
        let job = &self.job;
        let wants_beside = matches!(self.strength, Strength::Require | Strength::Prefer);
        match (&self.seen, self.is_beside(candidate)) {
            (OtherJob::Unknown(why), _) => format!("does not take {job} into account: {why}"),
            (OtherJob::Unsettled(_, why), _) if !self.refuses() => {
                format!("does not take {job} into account: {why}")
            }
            (_, true) if wants_beside => format!("follows {job} which leads {}", self.there()),
            (_, false) if !wants_beside => format!("apart from {job} which leads {}", self.there()),
            _ => format!("{job} leads {}", self.there()),
        }
    }

    /// A reader wants to know why it leads there, also if no member is left elsewhere.
    fn speaks_when_tied(&self, _: &MemberRecord, _: &Round<'_>) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Strategy as _;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order, refused},
    };

    fn view() -> View {
        View::of([member("e-1", "east", 1), member("w-1", "west", 2), member("w-2", "west", 3)])
    }

    fn led() -> OtherJob {
        OtherJob::Led(vec![LedBy::new(&member("w-1", "west", 2).named())])
    }

    fn unsettled() -> OtherJob {
        OtherJob::Unsettled(led().led_by().to_vec(), "its mode is manual".to_owned())
    }

    fn stage(place: Within, strength: Strength, seen: OtherJob) -> WithJob {
        WithJob::new("db", place, strength).seeing(&[("db".to_owned(), seen)].into())
    }

    fn pipeline(stage: &WithJob) -> Pipeline {
        Pipeline::new().filter(stage.clone()).compare(stage.clone())
    }

    #[test]
    fn it_names_a_job() {
        let read = |job: &str| serde_json::from_value::<WithJob>(serde_json::json!({ "job": job }));
        assert!(read("db").is_ok());
        assert!(read(" ").unwrap_err().to_string().contains("it is empty"));
    }

    #[test]
    fn it_leads_only_beside_the_other_job() {
        let of_site = pipeline(&stage(Within::Site, Strength::Require, led()));
        assert_eq!(
            order(&of_site, &view()),
            [
                "w-1: follows db which leads in west; first by member id",
                "w-2: follows db which leads in west; second by member id"
            ]
        );
        let alone = ["e-1 (with-job): it must lead beside db which leads in west"];
        assert_eq!(refused(&of_site, &view()), alone);
        // A leader elsewhere is replaced at once.
        let led_elsewhere = view().led_by("e-1");
        let ranking = of_site.rank(&led_elsewhere.round());
        assert_eq!(ranking.refusal(&ballot(1)).map(|refused| refused.ground), Some(Ground::Order));
        let of_member = pipeline(&stage(Within::Member, Strength::Require, led()));
        assert_eq!(order(&of_member, &view()), ["w-1: the only candidate; follows db which leads on w-1"]);
    }

    #[test]
    fn while_the_other_job_is_not_settled_no_leader_moves_for_it() {
        for strength in [Strength::Require, Strength::Apart] {
            let pipeline = pipeline(&stage(Within::Site, strength, unsettled()));
            for leader in ["e-1", "w-2"] {
                assert!(order(&pipeline, &view().led_by(leader)).iter().any(|one| one.starts_with(leader)));
            }
        }
        // A new leader is elected where it is to lead.
        let required = pipeline(&stage(Within::Site, Strength::Require, unsettled()));
        assert_eq!(refused(&required, &view().after_loss_of("w-1")).len(), 1);
        let apart = pipeline(&stage(Within::Site, Strength::Apart, unsettled()));
        assert!(order(&apart, &view())[0].ends_with("apart from db which leads in west"));
        let preferred = pipeline(&stage(Within::Site, Strength::Prefer, unsettled()));
        assert!(order(&preferred, &view())[0].starts_with("e-1: "), "as if nothing were said");
    }

    #[test]
    fn of_a_job_that_is_not_known_each_strength_has_its_answer() {
        let unknown = || OtherJob::Unknown("it has no leader".to_owned());
        let required = pipeline(&stage(Within::Site, Strength::Require, unknown()));
        assert_eq!(order(&required, &view()), [""; 0]);
        assert_eq!(
            refused(&required, &view())[0],
            "e-1 (with-job): it must lead beside db: it has no leader"
        );
        let order_of = |view: &View| order(&required, view);
        assert_eq!(
            order_of(&view().led_by("e-1")),
            ["e-1: the only candidate; does not take db into account: it has no leader"]
        );
        let ordered = View { ordered: Some(ballot(3)), ..view().led_by("e-1") };
        assert_eq!(order_of(&ordered).len(), 2, "an operator may move it");
        for strength in [Strength::Prefer, Strength::Avoid, Strength::Apart] {
            let pipeline = pipeline(&stage(Within::Site, strength, unknown()));
            assert_eq!(order(&pipeline, &view()).len(), 3);
        }
        // The program has not read it yet.
        let not_seen = pipeline(&WithJob::new("db", Within::Site, Strength::Require));
        assert_eq!(order(&not_seen, &view()), [""; 0]);
    }

    #[test]
    fn beside_it_goes_first_or_last() {
        let of = |strength| order(&pipeline(&stage(Within::Site, strength, led())), &view());
        assert_eq!(of(Strength::Prefer)[2], "e-1: db leads in west");
        assert_eq!(of(Strength::Avoid)[0], "e-1: apart from db which leads in west");
        assert!(of(Strength::Avoid)[1].starts_with("w-1: db leads in west; first"));
        assert_eq!(of(Strength::Apart), ["e-1: the only candidate; apart from db which leads in west"]);
    }
}
