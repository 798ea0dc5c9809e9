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
    ids::{Ballot, MemberId},
    record::{AdminRequest, Cause, Elected, MemberRecord, Named, RequestRef, Target},
    strategy::{Ground, Refused},
};

/// Why no member is named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No member may lead: these are refused.
    #[error("{}", no_candidate(.0))]
    NoCandidate(Vec<Refused>),
    /// No member but the leader may lead.
    #[error("no other member may lead")]
    NoOther,
    /// The operator's target may not lead, or is not present: these members of it are refused.
    #[error("{}", unfit(.0, .1))]
    TargetUnfit(Target, Vec<Refused>),
    /// The request is about no slot.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// No member may lead, and none would be named now because of a hold.
    #[error("{}", .0.sentence)]
    Held(TakeoverHold),
    /// A better candidate may be about to join, for this reason.
    #[error("{0}")]
    WorthWaiting(String),
}

/// Why a request is not about one slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSlot {
    /// The slot does not exist.
    #[error("there is no slot {slot}; they are 0 to {}", slots - 1)]
    Unknown {
        /// The slot.
        slot: usize,
        /// The number of slots.
        slots: usize,
    },
    /// The member that it is to replace does not lead.
    #[error("{0} does not lead")]
    NotLeader(MemberId),
    /// It may mean several slots, for which these members are named.
    #[error("there are {} slots ({}); say which leader is to be replaced", .0.len(), by_slot(.0))]
    Ambiguous(Vec<Option<MemberId>>),
}

fn by_slot(named: &[Option<MemberId>]) -> String {
    let who = |named: &Option<MemberId>| named.as_ref().map_or("no member".to_owned(), ToString::to_string);
    let all = named.iter().enumerate().map(|(slot, named)| format!("slot {slot}: {}", who(named)));
    all.collect::<Vec<_>>().join(", ")
}

/// Too many moves in too short a time: nothing is decided until the hold ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeoverHold {
    /// Why.
    pub reason: Reason,
    /// The same as text.
    pub sentence: String,
    /// When the hold ends, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// A decision, and what delays it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) elected: Box<Elected>,
    pub(crate) held: Option<TakeoverHold>,
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

/// Whether a request for this target is met by this member.
pub(crate) fn fits(wanted: &Target, named: &Named) -> bool {
    match wanted {
        Target::Any => true,
        Target::Member(member) => named.member == *member,
        Target::Site(site) => named.site == *site,
    }
}

/// That no member may lead: all are refused.
pub(crate) fn no_candidate(refused: &[Refused]) -> String {
    if refused.is_empty() {
        return "no member is there to lead".to_owned();
    }
    format!("no member may lead ({}){}", reasons_of(refused), way_out(refused))
}

/// What an operator can do about these refusals.
fn way_out(refused: &[Refused]) -> &'static str {
    match refused.iter().any(|r| r.ground == Ground::Loss) {
        true => "; a failover with accept_loss names one who would lead with a loss",
        false => "",
    }
}

/// The first few of them, and their number.
fn reasons_of(refused: &[Refused]) -> String {
    const NAMED: usize = 5;
    let more = refused.len().saturating_sub(NAMED);
    let named: Vec<_> =
        refused.iter().take(NAMED).map(|r| format!("{}: {}", r.named.member, r.reason)).collect();
    match more {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

fn unfit(wanted: &Target, refused: &[Refused]) -> String {
    let what = match wanted {
        Target::Any => "anyone".to_owned(),
        Target::Member(member) => format!("member {member}"),
        Target::Site(site) => format!("site {site}"),
    };
    if refused.is_empty() {
        format!("{what} has no member that could take over: not there, or leading already")
    } else {
        let (reasons, way_out) = (reasons_of(refused), way_out(refused));
        format!("{what} has no member that could take over ({reasons}){way_out}")
    }
}
