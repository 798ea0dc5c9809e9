//! What a stage is: a filter or a comparison.

use std::{collections::BTreeMap, fmt};

use election_core::{
    record::{Cause, MemberRecord},
    strategy::{Ground, Round},
};

/// A stage that puts candidates out.
///
/// Must be pure: the answer depends on nothing but the arguments.
pub trait Filter: fmt::Debug + Send + Sync {
    /// The name of the stage, as it stands in
    /// [`Refused::stage`](election_core::strategy::Refused::stage).
    fn name(&self) -> &'static str;

    /// Why `candidate` may not lead, in words; `None` lets it pass.
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String>;

    /// What a reader should know of a member with these attributes that passes and comes to
    /// lead for this cause. One short phrase, as a [`Comparison`] has.
    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let _ = (attributes, cause);
        None
    }

    /// What it rests on that this candidate is put out. On [`Ground::Order`] a leader makes room
    /// at once: such a filter must look neither at who leads, or two could make room for each other
    /// without end, nor at what is measured ([`MemberRecord::measured`]), which wavers. One on
    /// [`Ground::Loss`] is passed over where an operator accepts the loss, and a phrase says that.
    fn ground(&self, candidate: &MemberRecord) -> Ground {
        let _ = candidate;
        Ground::State
    }
}

/// A stage that says which of two candidates is better, all stages before it
/// being undecided between them.
///
/// A comparison doesn't compare: it **grades** each candidate by itself, and lower
/// grades go first. So no comparison can be circular, whatever it looks at; the
/// worst that it can do is to leave everything undecided. Must be pure.
pub trait Comparison: fmt::Debug + Send + Sync {
    /// The name of the stage.
    fn name(&self) -> &'static str;

    /// The grade of `candidate`; lower is better.
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64;

    /// One short phrase for how `candidate` came out among those that the stages
    /// before had left equal. Phrases are joined by commas, so that one has none.
    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String;

    /// Whether the reason is worth saying where it made no difference, also to a
    /// candidate that had nobody left to be compared with.
    ///
    /// A reader wants to know that the new leader stands in another site than
    /// the failed one even when every candidate does.
    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        let _ = (candidate, round);
        false
    }

    /// Whether a better candidate than any of `electable` may well be about to
    /// join, in words. Asked before the very first decision only.
    ///
    /// `electable` has passed every filter and is not empty.
    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let _ = (electable, round);
        None
    }
}

/// How a candidate came out of one comparison, among those that it was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub(crate) place: usize,
    pub(crate) of: usize,
}

impl Standing {
    /// Its place: 0 for the best. Equal candidates share one.
    pub fn place(self) -> usize {
        self.place
    }

    /// Whether nobody came out better.
    pub fn is_best(self) -> bool {
        self.place == 0
    }

    /// Whether all came out equal.
    pub fn is_tied(self) -> bool {
        self.of <= 1
    }
}
