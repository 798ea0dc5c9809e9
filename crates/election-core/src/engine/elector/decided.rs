//! What comes of a question to the elector, and what can be read in a decision.
//!
//! # A forced removal
//! It has three steps, which any elector or the operator's command can finish: name no leader and exclude the holder; delete
//! the leader znode while it has the excluded ballot; name the next leader. Between the first two the holder has the stop
//! budget of its record, and stops urgently: if it lives, its job has ended when the next one begins. An elector counts that
//! time from its own reading of the decision. A move *now*, and a suspect under `fast_failover`, have no such time. If the
//! deletion came first, the old leader could create the znode again. If the naming came first, a late deletion could remove
//! the new leader's znode.

use std::time::Duration;

use crate::{
    engine::io::Reason,
    ids::Ballot,
    record::{AdminRequest, Cause, Elected, MemberRecord, RequestRef, limits},
};

/// Why no member is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// No member may lead.
    NoCandidate(String),
    /// The operator's target may not lead, or is not present.
    TargetUnfit(String),
    /// No member may lead, and none would be named now because of a hold.
    Held(TakeoverHold),
    /// A better candidate may be about to join.
    WorthWaiting(String),
}

/// Too many moves in too short a time: nothing is decided until the hold ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakeoverHold {
    pub(crate) reason: Reason,
    pub(crate) sentence: String,
    /// When the hold ends, in milliseconds since the Unix epoch.
    pub(crate) until_ms: u64,
}

/// A decision, and what delays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) elected: Box<Elected>,
    pub(crate) held: Option<TakeoverHold>,
}

impl From<Elected> for Decided {
    fn from(elected: Elected) -> Self {
        Self { elected: Box::new(elected), held: None }
    }
}

/// An operator's request.
pub(crate) type OpenRequest<'a> = Option<(&'a RequestRef, &'a AdminRequest)>;

/// A sentence about one slot of this number of slots.
pub(crate) fn about(slot: usize, slots: usize, sentence: String) -> String {
    if slots > 1 { format!("slot {slot}: {sentence}") } else { sentence }
}

/// Doubles `span` this number of times.
pub(crate) fn doubled(span: Duration, times: usize) -> Duration {
    let factor = u32::try_from(times).ok().and_then(|times| 1_u32.checked_shl(times)).unwrap_or(u32::MAX);
    span.saturating_mul(factor)
}

/// Whole milliseconds.
pub(crate) fn ms(duration: Duration) -> u64 {
    limits::millis(duration)
}

/// Whether the slot has been, or is being, taken from its holder by force.
pub(crate) fn is_vacated(elected: &Elected, slot: usize) -> bool {
    elected.slots.get(slot).is_some_and(|slot| slot.named.is_none() && slot.given.previous.is_some())
}

/// Whether the slot is being taken from the member with this ballot by force.
pub(crate) fn is_removed(elected: &Elected, slot: usize, ballot: &Ballot) -> bool {
    is_vacated(elected, slot) && elected.exclusions.iter().any(|e| e.ballot == *ballot)
}

/// How long a leader that is removed in a decision of this cause has to end its work, before its leader znode is deleted:
/// its stop budget, unless the operator's request says otherwise. A leader without a record ends its work anyway, and the
/// resource refuses a suspect's token.
pub(crate) fn grace(
    cause: Cause,
    request: Option<&AdminRequest>,
    members: &[MemberRecord],
    holder: &Ballot,
) -> Duration {
    let waits = cause == Cause::Failover && request.is_none_or(|request| !request.now);
    let record = members.iter().find(|member| waits && member.ballot == *holder);
    record.map_or(Duration::ZERO, |member| Duration::from_millis(member.stop_budget_ms))
}

/// The latest request that was decided, if it was counted up to this transaction.
pub(crate) fn counted_by(last_request: Option<i64>, newest: i64) -> Option<i64> {
    last_request.filter(|czxid| *czxid <= newest)
}
