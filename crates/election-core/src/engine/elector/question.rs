//! The input of a decision.
//!
//! # A forced removal
//! It has three steps, which any elector or the operator's command can finish: name no leader and exclude the holder; delete
//! the leader znode while it has the excluded ballot; name the next leader. Between the first two the holder has the stop
//! budget of its record, and stops urgently: if it lives, its job has ended when the next one begins. An elector counts that
//! time from its own reading of the decision. A move *now*, and a suspect under `fast_failover`, have no such time. If the
//! deletion came first, the old leader could create the znode again. If the naming came first, a late deletion could remove
//! the new leader's znode.

use std::time::Duration;

use super::trace::DecisionTrace;
use crate::{
    engine::{io::Reason, policy::Policy},
    ids::Ballot,
    record::{
        Cause, Control, Elected, Exclusion, MemberRecord, Named, Previous, Remembered, Request, RequestRef,
        limits,
    },
    strategy::{Ground, Refused, Strategy},
};

/// The input of a decision.
pub(in crate::engine) struct Question<'a> {
    pub(in crate::engine) unix_ms: u64,
    pub(in crate::engine) noticed_at_ms: u64,
    pub(in crate::engine) decider: &'a str,
    pub(in crate::engine) policy: &'a Policy,
    pub(in crate::engine) strategy: &'a dyn Strategy,
    pub(in crate::engine) members: &'a [MemberRecord],
    pub(in crate::engine) control: &'a Control,
    pub(in crate::engine) elected: Option<&'a Elected>,
    /// The creation of the latest request that was decided.
    pub(in crate::engine) decided_up_to: Option<i64>,
    /// The term and token that the very first decision must exceed, if any are known.
    pub(in crate::engine) above: Option<Remembered>,
    /// The slot that the decision is about.
    pub(in crate::engine) slot: usize,
    /// The holders of the leader znodes, by slot.
    pub(in crate::engine) holders: &'a [Option<&'a Ballot>],
    /// Where questions to the strategy are recorded, for `explain`.
    pub(in crate::engine) trace: Option<&'a DecisionTrace>,
}

/// Why no member is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Undecided {
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
pub(in crate::engine) struct TakeoverHold {
    pub(in crate::engine) reason: Reason,
    pub(in crate::engine) sentence: String,
    /// When the hold ends, in milliseconds since the Unix epoch.
    pub(in crate::engine) until_ms: u64,
}

/// A decision, and what delays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Decided {
    pub(in crate::engine) elected: Box<Elected>,
    pub(in crate::engine) held: Option<TakeoverHold>,
}

impl From<Elected> for Decided {
    fn from(elected: Elected) -> Self {
        Self { elected: Box::new(elected), held: None }
    }
}

/// An operator's request.
pub(in crate::engine) type OpenRequest<'a> = Option<(&'a RequestRef, &'a Request)>;

impl Question<'_> {
    /// Whether the leader znode is being vacated. Naming the next leader then belongs to the takeover that began with
    /// vacating, so it is neither limited nor counted again.
    pub(in crate::engine) fn is_vacated(&self) -> bool {
        self.elected.is_some_and(|e| is_vacated(e, self.slot))
    }

    pub(in crate::engine) fn living_exclusions(&self) -> Vec<Exclusion> {
        let all = self.elected.map(|e| e.exclusions.as_slice()).unwrap_or_default();
        all.iter().filter(|e| e.holds_at(self.unix_ms)).cloned().collect()
    }

    pub(in crate::engine) fn lives(&self, named: &Named) -> bool {
        self.members.iter().any(|m| m.ballot == named.ballot)
    }

    /// All members that may be asked at all.
    pub(in crate::engine) fn standing(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.iter().filter(|m| m.withdrawn.is_none() && !m.leaving && self.reads_orders(m))
    }

    /// Whether a member would obey all standing orders.
    fn reads_orders(&self, member: &MemberRecord) -> bool {
        member.orders_format >= self.control.format()
    }

    /// Members that are no candidates, and why.
    pub(in crate::engine) fn withdrawn(&self) -> impl Iterator<Item = Refused> {
        self.members.iter().filter_map(|m| {
            let reason = match &m.withdrawn {
                Some(why) => format!("it has withdrawn: {why}"),
                None if m.leaving => "it is shutting down".to_owned(),
                None if !self.reads_orders(m) => {
                    "its version does not know the order that the job is stopped, and would start it"
                        .to_owned()
                }
                None => return None,
            };
            Some(Refused { named: m.named(), stage: "candidate".to_owned(), reason, ground: Ground::State })
        })
    }

    /// The member that leads the slot, or that led it before.
    pub(in crate::engine) fn led_before(&self) -> Option<Previous> {
        self.elected?.led_before(self.slot)
    }
}

/// A sentence about one slot of this number of slots.
pub(in crate::engine) fn about(slot: usize, slots: usize, sentence: String) -> String {
    if slots > 1 { format!("slot {slot}: {sentence}") } else { sentence }
}

/// Doubles `span` this number of times.
pub(in crate::engine) fn doubled(span: Duration, times: usize) -> Duration {
    let factor = u32::try_from(times).ok().and_then(|times| 1_u32.checked_shl(times)).unwrap_or(u32::MAX);
    span.saturating_mul(factor)
}

/// Whole milliseconds.
pub(in crate::engine) fn ms(duration: Duration) -> u64 {
    limits::millis(duration)
}

/// Whether the slot has been, or is being, taken from its holder by force.
pub(in crate::engine) fn is_vacated(elected: &Elected, slot: usize) -> bool {
    elected.slots.get(slot).is_some_and(|slot| slot.named.is_none() && slot.given.previous.is_some())
}

/// Whether the slot is being taken from the member with this ballot by force.
pub(in crate::engine) fn is_removed(elected: &Elected, slot: usize, ballot: &Ballot) -> bool {
    is_vacated(elected, slot) && elected.exclusions.iter().any(|e| e.ballot == *ballot)
}

/// How long a leader that is removed in a decision of this cause has to end its work, before its leader znode is deleted:
/// its stop budget, unless the operator's request says otherwise. A leader without a record ends its work anyway, and the
/// resource refuses a suspect's token.
pub(in crate::engine) fn grace(
    cause: Cause,
    request: Option<&Request>,
    members: &[MemberRecord],
    holder: &Ballot,
) -> Duration {
    let waits = cause == Cause::Failover && request.is_none_or(|request| !request.now);
    let record = members.iter().find(|member| waits && member.ballot == *holder);
    record.map_or(Duration::ZERO, |member| Duration::from_millis(member.stop_budget_ms))
}
