//! What happens to a job and is reported: found by comparing two looks at its election, without clock or I/O.
//!
//! Each member looks, and keeps for a while what it finds: it may become the sender because the one before it was lost with
//! the news, and some of that is in no record.
//!
//! The id of an event is made of what is recorded in ZooKeeper. So each member that sees the event gives it the same id,
//! and a receiver recognizes what it is sent twice.

use std::sync::Arc;

use election_core::{
    config::MemberId,
    internals::{
        calendar::utc,
        record::{Cause, Current, Elected, FiledRequest, Given, RequestState, Status},
    },
    status::{Ballot, ElectionStatus, Reason, Skipped},
};
use serde_json::{Value, json};

use crate::config::NotifyEvent;

/// An event of a job.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::worker) struct Event {
    pub(in crate::worker) kind: NotifyEvent,
    /// What distinguishes it from other events of its kind.
    pub(in crate::worker) key: String,
    /// A sentence for people.
    pub(in crate::worker) text: String,
    /// The facts: an object.
    pub(in crate::worker) facts: Value,
}

/// What was seen of an election.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::worker) struct SeenStatus {
    /// The ballot of the member that looks.
    ballot: Option<Ballot>,
    elected: Option<Arc<Elected>>,
    leaders: Vec<Option<Arc<Current>>>,
    hold: Option<Hold>,
}

impl SeenStatus {
    /// `before`: what was seen before.
    pub(in crate::worker) fn of(status: &ElectionStatus, before: Option<&Self>) -> Self {
        let now = Self {
            ballot: status.ballot.clone(),
            elected: status.elected.clone(),
            leaders: status.leaders.to_vec(),
            hold: None,
        };
        let before = before.and_then(|before| before.hold.as_ref());
        Self { hold: Hold::after(before, status.is_elector, status.skipped.as_deref(), &now), ..now }
    }

    fn leader(&self, slot: usize) -> Option<&Current> {
        self.leaders.get(slot)?.as_deref()
    }

    fn ready(&self, slot: usize) -> Option<&Current> {
        self.leader(slot).filter(|leader| leader.status == Status::Ready)
    }

    fn given(&self, slot: usize) -> Option<&Given> {
        Some(&self.elected.as_ref()?.slots.get(slot)?.given)
    }
}

/// A hold of the election: it begins in a term, or when an operator has acknowledged the last one.
#[derive(Clone, Debug, PartialEq)]
struct Hold {
    why: String,
    term: u64,
    acknowledged_at_ms: u64,
}

impl Hold {
    /// The hold after this one. Only the elector knows whether it lasts, and not at each look: a mode, or a record that can't be
    /// read, comes before it. Then the hold lasts until the next term or acknowledgement.
    fn after(
        before: Option<&Self>,
        is_elector: bool,
        skipped: Option<&Skipped>,
        now: &SeenStatus,
    ) -> Option<Self> {
        let (term, acknowledged_at_ms) =
            now.elected.as_ref().map_or((0, 0), |elected| (elected.term, elected.acknowledged_at_ms));
        match skipped {
            Some(skipped) if skipped.is_hold() => Some(before.cloned().unwrap_or_else(|| Self {
                why: skipped.sentence.clone(),
                term,
                acknowledged_at_ms,
            })),
            Some(skipped) if leads_on(skipped.reason) => None,
            // It has just decided, perhaps about another slot.
            None if is_elector => before.cloned(),
            _ => before
                .filter(|hold| (hold.term, hold.acknowledged_at_ms) == (term, acknowledged_at_ms))
                .cloned(),
        }
    }
}

/// Whether the elector does not decide because the leader leads on.
const fn leads_on(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Steady
            | Reason::Stay
            | Reason::BetterAfter
            | Reason::MinTenure
            | Reason::FailbackWindow
            | Reason::Confirm
            | Reason::HeldByLeader
    )
}

/// The looks of a member at an election, one after the other.
#[derive(Debug, Default)]
pub(in crate::worker) struct Looks {
    /// How long what happens is news for a member that becomes the sender.
    patience_ms: u64,
    before: Option<SeenStatus>,
    is_sender: bool,
    since_ms: u64,
    /// What this member has found as another one sends, and when.
    recent: Vec<(u64, Event)>,
}

impl Looks {
    pub(in crate::worker) fn new(patience_ms: u64) -> Self {
        Self { patience_ms, ..Self::default() }
    }

    /// Looks once more, at this time; returns what this member is to send. `see` gets the look before.
    pub(in crate::worker) fn look(
        &mut self,
        see: impl FnOnce(Option<&SeenStatus>) -> SeenStatus,
        at_ms: u64,
        is_sender: bool,
    ) -> Vec<Event> {
        let now = see(self.before.as_ref());
        if !self.is_sender {
            self.since_ms = at_ms.saturating_sub(self.patience_ms);
        }
        self.is_sender = is_sender;
        self.recent.retain(|(at_ms, _)| *at_ms >= self.since_ms);
        let found = Finder { before: self.before.as_ref(), now: &now, since_ms: self.since_ms }.find();
        self.recent.extend(found.into_iter().map(|event| (at_ms, event)));
        self.before = Some(now);
        if !is_sender {
            return Vec::new();
        }
        self.recent.drain(..).map(|(_, event)| event).collect()
    }
}

/// Finds the events between two looks.
struct Finder<'a> {
    /// `None` for the first look.
    before: Option<&'a SeenStatus>,
    now: &'a SeenStatus,
    /// What is recorded as earlier is no news.
    since_ms: u64,
}

impl Finder<'_> {
    /// All events.
    fn find(&self) -> Vec<Event> {
        let slots = self.now.leaders.len().max(self.before.map_or(0, |before| before.leaders.len()));
        let mut events: Vec<_> = (0..slots).flat_map(|slot| self.of_slot(slot)).collect();
        events.extend(self.of_decision());
        events.extend(self.of_hold());
        events
    }

    /// Whether what is recorded for this time is news for a member that may not have seen what was before.
    const fn is_news(&self, at_ms: u64) -> bool {
        at_ms >= self.since_ms
    }

    /// The look before, on the same session: on another one all is read anew, a part after the rest.
    fn same_session(&self) -> Option<&SeenStatus> {
        self.before.filter(|before| before.ballot.is_some() && before.ballot == self.now.ballot)
    }

    /// Whether what a decision has for this time, and the one before had not, is news. It is if this member has seen the one
    /// before: the time is by the clock of another member.
    fn is_decided_now(&self, at_ms: u64) -> bool {
        let term = |seen: &SeenStatus| seen.elected.as_ref().map(|elected| elected.term);
        let before = self.same_session().and_then(term);
        before.is_some_and(|before| Some(before) <= term(self.now)) || self.is_news(at_ms)
    }

    fn of_slot(&self, slot: usize) -> impl Iterator<Item = Event> {
        let lost = self.lost(slot).or_else(|| self.replaced(slot));
        lost.into_iter().chain(self.changed(slot))
    }

    /// A leader is gone, while the decision still names it.
    fn lost(&self, slot: usize) -> Option<Event> {
        // On another session all is read anew, the leader perhaps after the decision.
        let was = self.before.filter(|before| before.ballot == self.now.ballot)?.ready(slot)?;
        let gone = self.now.leader(slot).is_none_or(|is| is.ballot != was.ballot);
        let elected = self.now.elected.as_ref()?;
        let named = elected.slots.get(slot)?.named.as_ref()?;
        let facts = json!({
            "slot": slot, "term": was.term, "leader": was.member, "site": was.site, "cause": Cause::LeaderLost,
        });
        (gone && named.ballot == was.ballot).then(|| Event {
            kind: NotifyEvent::LeaderLost,
            key: format!("{slot}/{}", was.ballot.as_str()),
            text: format!("{} of site {}, which led in term {}, is lost", was.member, was.site, was.term),
            facts,
        })
    }

    /// A decision replaces a leader that has failed.
    fn replaced(&self, slot: usize) -> Option<Event> {
        let given = self.now.given(slot)?;
        let known = self.before.and_then(|before| before.given(slot)).map(|given| given.term);
        let is_failure = given.cause.is_failure();
        let never_led = matches!(given.cause, Cause::Failover | Cause::TakeoverFailed);
        if known == Some(given.term) || !is_failure || never_led || !self.is_decided_now(given.decided_at_ms)
        {
            return None;
        }
        let lost = given.previous.as_ref()?;
        let key = match given.cause {
            // A ballot is lost once; a process can fail several times.
            Cause::LeaderLost => format!("{slot}/{}", lost.ballot.as_str()),
            _ => format!("{slot}/{}/{}", lost.ballot.as_str(), given.term),
        };
        Some(Event {
            kind: NotifyEvent::LeaderLost,
            key,
            text: format!("{} of site {} does not lead any more: {}", lost.member, lost.site, given.sentence),
            facts: json!({
                "slot": slot, "term": given.term, "leader": lost.member, "site": lost.site, "cause": given.cause,
            }),
        })
    }

    /// A leader is READY.
    fn changed(&self, slot: usize) -> Option<Event> {
        let is = self.now.ready(slot)?;
        let was = self.before.and_then(|before| before.ready(slot));
        if was.is_some_and(|was| (&was.ballot, was.term) == (&is.ballot, is.term))
            || !self.has_seen_before(slot, is) && !self.is_news(is.ready_ms.unwrap_or(is.since_ms))
        {
            return None;
        }
        let given = self.now.given(slot).filter(|given| given.term == is.term);
        let why = given.map_or(String::new(), |given| format!(": {}", given.sentence));
        Some(Event {
            kind: NotifyEvent::LeaderChanged,
            key: format!("{slot}/{}", is.term),
            text: format!("{} of site {} leads in term {}{why}", is.member, is.site, is.term),
            facts: json!({
                "slot": slot, "term": is.term, "leader": is.member, "site": is.site, "fencing_token": is.fencing_token,
                "cause": given.map(|given| given.cause),
                "previous": given.and_then(|given| given.previous.as_ref())
                    .map(|previous| json!({ "member": previous.member, "site": previous.site })),
            }),
        })
    }

    /// Whether this member has seen what was before this leader was READY: then it is news, whatever the leader's clock says.
    fn has_seen_before(&self, slot: usize, is: &Current) -> bool {
        self.same_session().is_some_and(|before| {
            before.leader(slot).is_some() || before.given(slot).is_some_and(|given| given.term < is.term)
        })
    }

    /// A takeover has failed that is not among the failures of the decision: without `penalty_window` none is kept there.
    fn failed_takeover(&self, slot: usize) -> Option<Event> {
        let given = self.now.given(slot).filter(|given| given.cause == Cause::TakeoverFailed)?;
        let failed = given.previous.as_ref()?;
        let mut kept = self.now.elected.iter().flat_map(|elected| &elected.failures);
        let before = self.before.and_then(|before| before.elected.as_ref()?.slots.get(slot));
        if before.is_some_and(|before| before.given.term == given.term)
            || !self.is_decided_now(given.decided_at_ms)
            || kept.any(|one| one.member == failed.member && one.at_ms == given.decided_at_ms)
        {
            return None;
        }
        let named = before.filter(|before| before.named.as_ref().is_some_and(|n| n.ballot == failed.ballot));
        Some(takeover_failed(&failed.member, given.decided_at_ms, named.map(|named| named.given.term)))
    }

    /// Exclusions, failures of takeovers and of sites.
    fn of_decision(&self) -> Vec<Event> {
        let Some(elected) = &self.now.elected else { return Vec::new() };
        let before = self.before.and_then(|before| before.elected.as_ref());
        let mut events: Vec<_> =
            (0..elected.slots.len()).filter_map(|slot| self.failed_takeover(slot)).collect();
        for one in &elected.failures {
            let known = before.is_some_and(|before| before.failures.contains(one));
            if one.cause == Cause::TakeoverFailed.as_str() && !known && self.is_decided_now(one.at_ms) {
                events.push(takeover_failed(&one.member, one.at_ms, Some(one.term)));
            }
        }
        for one in &elected.exclusions {
            let is_it = |other: &election_core::internals::record::Exclusion| {
                (&other.ballot, other.since_ms) == (&one.ballot, one.since_ms)
            };
            let is_known = before.is_some_and(|before| before.exclusions.iter().any(is_it));
            if !is_known && self.is_decided_now(one.since_ms) {
                events.push(Event {
                    kind: NotifyEvent::MemberExcluded,
                    key: format!("{}/{}", one.ballot.as_str(), one.since_ms),
                    text: format!(
                        "{} is not elected until {}: {}",
                        one.member,
                        utc(one.until_ms),
                        one.reason
                    ),
                    facts: json!({ "member": one.member, "until_ms": one.until_ms, "reason": one.reason }),
                });
            }
        }
        for one in &elected.site_failures {
            let mut known = before.into_iter().flat_map(|before| &before.site_failures);
            let known = known.find(|other| (&other.site, other.at_ms) == (&one.site, one.at_ms));
            let event = |kind, text| Event {
                kind,
                key: format!("{}/{}", one.site, one.at_ms),
                text,
                facts: json!({ "site": one.site, "reason": one.why, "since_ms": one.at_ms }),
            };
            if known.is_none() && self.is_decided_now(one.at_ms) {
                let text = format!("site {} has failed: {}", one.site, one.why);
                events.push(event(NotifyEvent::SiteFailed, text));
            }
            let is_new = |over_at_ms| match known {
                Some(known) => known.over_at_ms.is_none(),
                None => self.is_news(over_at_ms),
            };
            if one.over_at_ms.is_some_and(is_new) {
                let text = format!("the failure of site {} is over", one.site);
                events.push(event(NotifyEvent::SiteReturned, text));
            }
        }
        events
    }

    fn of_hold(&self) -> Option<Event> {
        let before = self.before.and_then(|before| before.hold.as_ref());
        let (kind, text, hold) = match (before, &self.now.hold) {
            (None, Some(hold)) => (NotifyEvent::HoldSet, hold.why.clone(), hold),
            (Some(hold), None) => (NotifyEvent::HoldEnded, "the hold has ended".to_owned(), hold),
            _ => return None,
        };
        let facts = json!({ "term": hold.term, "reason": hold.why });
        Some(Event { kind, key: format!("{}/{}", hold.term, hold.acknowledged_at_ms), text, facts })
    }
}

/// The takeover of this member has failed; `None`: the term is not known.
fn takeover_failed(member: &MemberId, at_ms: u64, term: Option<u64>) -> Event {
    let in_term = term.map_or(String::new(), |term| format!(" in term {term}"));
    Event {
        kind: NotifyEvent::TakeoverFailed,
        key: format!("{member}/{at_ms}"),
        text: format!("the takeover of {member}{in_term} has failed"),
        facts: json!({ "member": member, "term": term, "cause": Cause::TakeoverFailed }),
    }
}

/// The event of a request that has ended; `None` if it has succeeded or was withdrawn.
pub(in crate::worker) fn of_request(filed: &FiledRequest) -> Option<(u64, Event)> {
    let FiledRequest { which, request } = filed;
    let (RequestState::Failed { reason, at_ms } | RequestState::Expired { reason, at_ms }) = &request.state
    else {
        return None;
    };
    let kind = request.kind.as_str();
    let event = Event {
        kind: NotifyEvent::RequestFailed,
        key: format!("{}/{}", which.name, which.czxid),
        text: format!(
            "request {}, a {kind} asked for by {}, {}",
            which.name,
            request.by,
            request.kind.progress(&request.state)
        ),
        facts: json!({
            "request": which.name, "kind": kind, "to": request.to, "by": request.by, "reason": reason,
            "outcome": request.state,
        }),
    };
    Some((*at_ms, event))
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
