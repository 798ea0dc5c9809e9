//! What becomes of the operators' requests: which one is next, how it is carried
//! out, what is written down of it, and when it is removed.
//!
//! A request is decided once: the decision that carries it out, or any later one,
//! names it as the last that was looked at.

use super::{
    decision::{Undecided, cause_of},
    elector::{Facts, Verdict, is_vacated},
    rules::Rule,
    view::Meta,
    watchdog::Watchdog,
};
use crate::{
    ids::Ballot,
    record::{Current, Elected, Named, Outgoing, Request, RequestKind, RequestState, Status, Target},
};

/// How many ended requests are kept for operators to read.
const KEPT_REQUESTS: usize = 50;

impl Facts<'_> {
    /// Writes down what has become of requests that were decided.
    pub(super) fn settle_requests(&self) -> Option<Verdict> {
        let (elected, _) = self.elected?;
        for (name, (request, place)) in self.requests {
            if request.state.is_final() || Some(name) > elected.last_request.as_ref() {
                continue;
            }
            let at_ms = self.now.unix_ms;
            let state = match elected.slot_for(name) {
                Some(slot) => self.progress_of(elected, slot, request),
                None => RequestState::Failed {
                    reason: format!("overtaken by term {}: {}", elected.term, elected.sentence),
                    at_ms,
                },
            };
            if state != request.state {
                let request = Request { state, ..request.clone() };
                return Some(Verdict::Answer(name.clone(), place.version, Box::new(request)));
            }
        }
        None
    }

    fn progress_of(&self, elected: &Elected, slot: usize, request: &Request) -> RequestState {
        let (at_ms, term) = (self.now.unix_ms, elected.term_of(slot));
        let ready = self.current(slot).filter(|(c, _)| {
            c.status == Status::Ready
                && elected.named(slot).is_some_and(|n| n.ballot == c.ballot)
                && c.term == term
        });
        match ready {
            None => RequestState::Accepted { term },
            Some((current, _)) if meets(&request.to, current) => {
                RequestState::Done { term, leader: current.member.clone(), at_ms }
            }
            Some((current, _)) => RequestState::Failed {
                reason: format!("the target vanished meanwhile; {} leads in term {term}", current.member),
                at_ms,
            },
        }
    }

    /// Why whoever has this ballot does not hand over as planned, if it doesn't.
    pub(super) fn holds(&self, ballot: &Ballot) -> Option<&str> {
        self.members.iter().find(|m| m.ballot == *ballot)?.holds.as_deref()
    }

    /// Decides the next request, unless its slot is still being vacated for another.
    pub(super) fn requested(&self, elected: &Elected, watchdog: &mut Watchdog) -> Option<Verdict> {
        let (name, request, place) = self.next_request(Some(elected))?;
        let waits = self.slot_of(request).is_ok_and(|slot| is_vacated(elected, slot));
        (!waits).then(|| self.carry_out(name, request, place, watchdog))
    }

    /// The slot that a request is about.
    fn slot_of(&self, request: &Request) -> Result<usize, String> {
        let offices: Vec<_> = (0..self.places.len()).map(|slot| self.current(slot).map(|(c, _)| c)).collect();
        slot_of(request, self.elected.map(|(e, _)| e), &offices)
    }

    /// The first request that nobody has decided yet.
    pub(super) fn next_request(&self, elected: Option<&Elected>) -> Option<(&str, &Request, Meta)> {
        let last =
            elected.and_then(|e| e.last_request.as_ref()).filter(|_| self.rules.keep(Rule::DecidedOnce));
        let undecided = |(name, (request, _)): &(&String, &(Request, Meta))| {
            !request.state.is_final() && Some(*name) > last
        };
        self.requests.iter().find(undecided).map(|(name, (request, place))| (name.as_str(), request, *place))
    }

    pub(super) fn request(&self, name: &str) -> Option<(&str, &Request)> {
        self.requests.get_key_value(name).map(|(name, (request, _))| (name.as_str(), request))
    }

    pub(super) fn carry_out(
        &self,
        name: &str,
        request: &Request,
        place: Meta,
        watchdog: &mut Watchdog,
    ) -> Verdict {
        let refuse = |reason: String| {
            let state = RequestState::Failed { reason, at_ms: self.now.unix_ms };
            Verdict::Refuse(name.to_owned(), place.version, Box::new(Request { state, ..request.clone() }))
        };
        let slot = match self.slot_of(request) {
            Ok(slot) => slot,
            Err(why) => return refuse(why),
        };
        let elected = self.elected;
        let named = elected.and_then(|(e, _)| e.named(slot));
        let ready = self.current(slot).filter(|(c, _)| c.status == Status::Ready);
        if let Some(named) = named.filter(|n| meets_named(&request.to, n))
            && ready.is_some_and(|(c, _)| c.ballot == named.ballot)
        {
            return refuse(format!("{} of site {} leads already", named.member, named.site));
        }
        if request.kind == RequestKind::Switchover && ready.is_none() {
            return refuse("there is no READY leader that could hand over; use failover".to_owned());
        }
        let held = self.current(slot).and_then(|(c, _)| self.holds(&c.ballot));
        if let (RequestKind::Switchover, Some(why)) = (request.kind, held) {
            return refuse(format!("the leader does not hand over now: {why}"));
        }
        let noticed =
            watchdog.noticed(slot, elected.map_or(0, |(e, _)| e.term_of(slot)), "request", self.now);
        let question = self.question(slot, noticed);
        let what = match &request.reason {
            Some(reason) => format!("{} asked for by {} ({reason})", request.kind.as_str(), request.by),
            None => format!("{} asked for by {}", request.kind.as_str(), request.by),
        };
        let decided = match question.decide(cause_of(request.kind), &what, None, Some((name, request))) {
            Ok(decided) => decided,
            Err(Undecided::Nobody(why) | Undecided::TargetUnfit(why) | Undecided::WorthWaiting(why)) => {
                return refuse(why);
            }
            Err(Undecided::Held { sentence, .. }) => return refuse(sentence),
        };
        let holder =
            self.current(slot).filter(|(c, _)| decided.named(slot).is_some_and(|n| n.ballot != c.ballot));
        let decided = match holder {
            // The first of three steps, each of which any elector can finish.
            Some((current, _)) if request.force => question.vacate(&current.named(), Some((name, request))),
            _ => decided,
        };
        Verdict::Write(Box::new(decided), elected.map(|(_, meta)| meta.version))
    }

    pub(super) fn trim(&self) -> Option<Verdict> {
        let ended: Vec<_> = self.requests.iter().filter(|(_, (r, _))| r.state.is_final()).collect();
        let (name, _) = *ended.first()?;
        (ended.len() > KEPT_REQUESTS).then(|| Verdict::Trim(name.clone()))
    }
}

/// The slot that a request is about. With one slot there is nothing to say; with
/// several a failover without a word is for the one that lacks a leader, and what
/// could mean one or the other is refused.
///
/// # Errors
/// A sentence that says why it could be none, or several.
pub fn slot_of(
    request: &Request,
    elected: Option<&Elected>,
    offices: &[Option<&Current>],
) -> Result<usize, String> {
    let slots = elected.map_or(offices.len(), |e| e.slots.len()).max(1);
    let office = |slot: usize| offices.get(slot).copied().flatten();
    let named = |slot: usize| elected.and_then(|e| e.named(slot));
    match &request.from {
        Outgoing::Slot(slot) if *slot < slots => Ok(*slot),
        Outgoing::Slot(slot) => Err(format!("there is no slot {slot}; they are 0 to {}", slots - 1)),
        Outgoing::Member(member) => {
            let leads = |slot: &usize| {
                named(*slot).is_some_and(|n| n.member == *member)
                    || office(*slot).is_some_and(|c| c.member == *member)
            };
            (0..slots).find(leads).ok_or_else(|| format!("{member} does not lead"))
        }
        Outgoing::Only if slots == 1 => Ok(0),
        Outgoing::Only => {
            let serves = |slot: usize| office(slot).is_some_and(|c| c.status == Status::Ready);
            let lacking: Vec<_> = (0..slots).filter(|slot| !serves(*slot)).collect();
            match lacking[..] {
                [slot] if request.kind == RequestKind::Failover => Ok(slot),
                _ => {
                    let who = |slot| named(slot).map_or("nobody".to_owned(), |n| n.member.to_string());
                    let all: Vec<_> = (0..slots).map(|slot| format!("slot {slot}: {}", who(slot))).collect();
                    Err(format!(
                        "there are {slots} slots ({}); say which leader is to be replaced",
                        all.join(", ")
                    ))
                }
            }
        }
    }
}

fn meets(wanted: &Target, current: &Current) -> bool {
    meets_named(wanted, &current.named()) || *wanted == Target::Any
}

fn meets_named(wanted: &Target, named: &Named) -> bool {
    match wanted {
        Target::Any => false,
        Target::Member(member) => named.member == *member,
        Target::Site(site) => named.site == *site,
    }
}
