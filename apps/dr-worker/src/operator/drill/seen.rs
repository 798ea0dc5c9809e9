//! What is read of a drill under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::znodes::{DrillAnswer, DrillState};
use election_core::{
    config::MemberId,
    internals::record::{Cause, RequestState},
    status::Ballot,
};

use crate::commands::drill::report::Who;

/// The leader, as its znode shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) who: Who,
    pub(super) ballot: Ballot,
    pub(super) term: u64,
    pub(super) is_ready: bool,
}

/// The last decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) term: u64,
    pub(super) cause: Cause,
    pub(super) sentence: String,
    pub(super) by: String,
    pub(super) noticed_at_ms: u64,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) leader: Option<Leader>,
    pub(super) decision: Option<Decided>,
    /// The members that take part.
    pub(super) members: BTreeSet<MemberId>,
    /// The time whose data each of them would lose now, where it is known.
    pub(super) lags: BTreeMap<MemberId, Duration>,
    /// The last request of this drill.
    pub(super) request: Option<RequestState>,
    /// A hold, a pause or another order against the drill.
    pub(super) obstacle: Option<String>,
    /// Whether this command still has the right to conduct the drill.
    pub(super) is_conducted: bool,
    /// Whether the order of this drill is there.
    pub(super) is_ordered: bool,
    pub(super) answers: Vec<DrillAnswer>,
    /// The signals that this command has received.
    pub(super) signals: Vec<&'static str>,
}

impl Seen {
    /// What a member has answered, once it has taken a step.
    pub(super) fn answer(&self, member: &MemberId) -> Option<&DrillAnswer> {
        self.answers.iter().find(|answer| answer.member == *member && !answer.steps.is_empty())
    }

    /// Whether a member has reported this step.
    pub(super) fn has_reached(&self, member: &MemberId, state: DrillState) -> bool {
        self.answer(member).is_some_and(|answer| answer.step(state).is_some())
    }
}
