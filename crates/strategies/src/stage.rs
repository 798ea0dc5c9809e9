//! The two kinds of stages: filters and comparisons.

use std::{collections::BTreeMap, fmt};

use election_core::strategy::{Cause, Ground, MemberRecord, Round};

/// The name of a stage of a [`Pipeline`](crate::Pipeline).
pub trait Stage {
    /// The name, in policies, in explanations and in [`Refused::stage`](election_core::strategy::Refused::stage).
    const NAME: &'static str;
}

/// A stage that refuses candidates.
/// It must be pure: the answer depends only on the arguments.
pub trait Filter: fmt::Debug + Send + Sync {
    /// Why `candidate` may not lead, as a short phrase; `None` lets it pass.
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String>;

    /// A note about a member with these attributes that passes and becomes the leader for this cause: one short phrase,
    /// as a [`Comparison`] has.
    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let _ = (attributes, cause);
        None
    }

    /// Why a member with these attributes may not lead, if they alone show it: as [`refuse`](Self::refuse) of a candidate that
    /// is not the incumbent. A successor asks this about itself before it steps in.
    fn refuse_successor(&self, attributes: &BTreeMap<String, String>) -> Option<String> {
        let _ = attributes;
        None
    }

    /// What the refusal of this candidate is based on. A leader that is refused on [`Ground::Order`] is replaced at
    /// once: such a filter must not depend on the leader, or two members could replace each other without end, nor on
    /// measurements ([`MemberRecord::measured`]), which fluctuate. A filter on [`Ground::Loss`] is skipped if an
    /// operator accepts the loss, and a reason shows that.
    fn ground(&self, candidate: &MemberRecord) -> Ground {
        let _ = candidate;
        Ground::State
    }
}

/// A stage that decides which of two candidates is better, if all stages before it found them equal.
/// A comparison **grades** each candidate by itself, and lower grades go first. So no comparison can be circular,
/// whatever it depends on; at worst it finds all candidates equal. It must be pure.
pub trait Comparison: fmt::Debug + Send + Sync {
    /// The grade of `candidate`; lower is better.
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64;

    /// One short phrase for the result of `candidate` among those that the stages before found equal. Phrases are
    /// joined by commas, so a phrase has none.
    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String;

    /// Whether the reason is shown even if it made no difference, also for a candidate without a competitor.
    /// For example, a reader wants to know that the new leader is in another site than the failed one, even if all
    /// candidates are.
    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        let _ = (candidate, round);
        false
    }

    /// Why a better candidate than all of `electable` is likely to join soon, if it is. Asked before the very first
    /// decision only.
    ///
    /// `electable` has passed every filter and is not empty.
    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let _ = (electable, round);
        None
    }
}

/// The result of one comparison for a candidate, among those that it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub(crate) place: usize,
    pub(crate) of: usize,
}

impl Standing {
    /// Its rank: 0 for the best. Equal candidates share one.
    pub fn place(self) -> usize {
        self.place
    }

    /// Whether no candidate was better.
    pub fn is_best(self) -> bool {
        self.place == 0
    }

    /// Whether all were equal.
    pub fn is_tied(self) -> bool {
        self.of <= 1
    }
}
