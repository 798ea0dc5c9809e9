//! The operators' requests: which one is next, how it is carried out, what is recorded of it, and when it is removed.
//!
//! The elector carries out moves of leadership ([`RequestKind::is_move`]). The leader carries out the requests about its job; of
//! these the elector only ends those that are not begun in time, and removes old ones.
//!
//! A request is decided once: the decision that carries it out, or any later one, names it as the last request that
//! was decided.
//!
//! One transaction begins a request: it writes the decision and the request, and only while the request is pending in
//! the version that was read. So a request that was cancelled, or has expired, is never begun, and a request that was
//! begun can't be cancelled any more.
//!
//! How long it may be begun is a duration in its record ([`AdminRequest::valid_for`]), since the wall clocks of machines
//! can be wrong by days. Each elector counts the duration on its steady clock, from when its process first read the
//! request. It subtracts the time that ZooKeeper's own times prove to have passed before: from the creation of the
//! request to the latest change of any member's record or request. So a request that was left behind while no worker
//! ran expires at once. If an elector takes over in the meantime, and nothing was written since, the whole duration
//! is counted again.
//!
//! A scheduled move has a time of the wall clock, and begins at that time by the clock of the elector, as any other
//! request: the same checks, the same transaction. Until then it is in no other's way. Its validity is counted from that
//! time, by the same clock. Its state alone keeps it from being decided twice: later requests may have been decided
//! before it.

use std::time::Duration;

use super::{
    decided::{NoSlot, fits, is_vacated},
    decision::cause_of,
    next_step::{Act, Verdict},
    pass::{Pass, Question},
};
use crate::{
    calendar::utc,
    engine::{ops::Begun, znode::Meta},
    ids::Ballot,
    record::{
        AdminRequest, Cause, Control, Current, Elected, FiledRequest, MemberRecord, Mode, Outgoing,
        PlanPhase, RequestKind, RequestRef, RequestState, Status, Target,
    },
    time::in_words,
};

/// How many ended requests are kept for operators to read.
const KEPT_REQUESTS: usize = 50;

/// How often the wall clock is compared with the time of a scheduled move.
const RECHECK: Duration = Duration::from_secs(60);

impl Pass<'_> {
    /// Records the result of requests that were decided.
    pub(crate) fn settle_requests(&self) -> Option<Act> {
        let elected = self.elected?;
        for (FiledRequest { which, request }, meta) in self.requests {
            let decided = match request.state {
                // It was decided, by a decision that may have been deleted.
                RequestState::Accepted { .. } => true,
                // Its begin would have changed its state.
                RequestState::Planned { .. } => false,
                _ => Some(which.czxid) <= self.decided_up_to,
            };
            if request.state.is_final() || !decided || !request.kind.is_move() {
                continue;
            }
            let at_ms = self.now.unix_ms;
            let state = match elected.slot_for(which) {
                Some(slot) => self.progress_of(elected, slot, request),
                None => RequestState::Failed { reason: why_overtaken(elected), at_ms },
            };
            if state != request.state {
                let request = AdminRequest { state, ..request.clone() };
                return Some(Act::Answer(which.name.clone(), meta.version, Box::new(request)));
            }
        }
        None
    }

    /// Ends requests that can't be begun any more, and refuses requests that the mode forbids.
    pub(crate) fn end_requests(&self) -> Option<Act> {
        if let Some(act) = self.end_plans() {
            return Some(act);
        }
        for (FiledRequest { which, request }, meta) in self.unbegun() {
            match self.reading.and_then(|reading| reading.view.electors().ends.get(which)) {
                Some(end) if self.now.time >= *end => {
                    let who = request.kind.begun_by();
                    let reason = format!("no {who} began it within {}", in_words(request.valid_for()));
                    let state = RequestState::Expired { reason, at_ms: self.now.unix_ms };
                    let ended = Box::new(AdminRequest { state, ..request.clone() });
                    return Some(Act::Answer(which.name.clone(), meta.version, ended));
                }
                Some(end) => self.wake_at(*end),
                None => {}
            }
            if let Some(why) = forbidden(self.control).filter(|_| request.kind.is_move()) {
                return Some(self.refuse(which, request, *meta, why.to_string()));
            }
        }
        None
    }

    /// Ends scheduled moves that were not begun in time. There is one at most: a later one, which was filed at the same
    /// moment, is refused. Wakes for the others.
    fn end_plans(&self) -> Option<Act> {
        let mut first: Option<&RequestRef> = None;
        for (FiledRequest { which, request }, meta) in self.requests {
            let (RequestState::Planned { at_ms }, Some(phase)) =
                (&request.state, request.plan_at(self.now.unix_ms))
            else {
                continue;
            };
            match (phase, first) {
                (PlanPhase::Missed, _) => {
                    let (time, within) = (utc(*at_ms), in_words(request.valid_for()));
                    let reason = format!(
                        "planned for {time}, and not begun within {within} of it: no elector, or no READY leader, was there"
                    );
                    let state = RequestState::Expired { reason, at_ms: self.now.unix_ms };
                    let ended = Box::new(AdminRequest { state, ..request.clone() });
                    return Some(Act::Answer(which.name.clone(), meta.version, ended));
                }
                (_, Some(other)) => {
                    let why = NotNow::Planned(other.name.clone());
                    return Some(self.refuse(which, request, *meta, why.to_string()));
                }
                (PlanPhase::Early | PlanPhase::Due, None) => {
                    let end_ms = at_ms.saturating_add(request.valid_for_ms);
                    let next_ms = if phase == PlanPhase::Early { *at_ms } else { end_ms };
                    // The wall clock may be set meanwhile.
                    self.wake_at(self.time_of(next_ms).min(self.now.time + RECHECK));
                }
            }
            first = Some(which);
        }
        None
    }

    fn refuse(&self, which: &RequestRef, request: &AdminRequest, meta: Meta, reason: String) -> Act {
        let state = RequestState::Failed { reason, at_ms: self.now.unix_ms };
        Act::Refuse(which.name.clone(), meta.version, Box::new(AdminRequest { state, ..request.clone() }))
    }

    fn progress_of(&self, elected: &Elected, slot: usize, request: &AdminRequest) -> RequestState {
        let (at_ms, term) = (self.now.unix_ms, elected.term_of(slot));
        let ready = self.current(slot).filter(|(c, _)| {
            c.status == Status::Ready
                && elected.named(slot).is_some_and(|n| n.ballot == c.ballot)
                && c.term == term
        });
        match ready {
            None => RequestState::Accepted { term },
            Some((current, _)) if fits(&request.to, &current.named()) => {
                RequestState::Done { term, leader: current.member.clone(), at_ms }
            }
            Some((current, _)) => RequestState::Failed {
                reason: format!("the target has left meanwhile; {} leads in term {term}", current.member),
                at_ms,
            },
        }
    }

    /// Why the member with this ballot blocks planned handovers, if it does.
    pub(crate) fn holds(&self, ballot: &Ballot) -> Option<&str> {
        self.members.iter().find(|m| m.ballot == *ballot)?.holds.as_deref()
    }

    /// Decides the next request, unless its slot is still being vacated for another.
    pub(crate) fn requested(&self, elected: &Elected) -> Option<Verdict> {
        let (filed, meta) = self.next_request()?;
        let waits = self.slot_of(&filed.request).is_ok_and(|slot| is_vacated(elected, slot));
        (!waits).then(|| Verdict::Act(self.carry_out(filed, meta)))
    }

    /// The slot that a request is about.
    fn slot_of(&self, request: &AdminRequest) -> Result<usize, NoSlot> {
        let leader_znodes: Vec<_> =
            (0..self.leaders.len()).map(|slot| self.current(slot).map(|(c, _)| c)).collect();
        slot_of(request, self.elected, &leader_znodes)
    }

    /// The first request that is not decided yet.
    pub(crate) fn next_request(&self) -> Option<(&FiledRequest, Meta)> {
        self.undecided().next().map(|(filed, meta)| (filed, *meta))
    }

    /// The moves that are not decided yet, the oldest first.
    fn undecided(&self) -> impl Iterator<Item = &(FiledRequest, Meta)> {
        self.unbegun().filter(|(filed, _)| filed.request.kind.is_move())
    }

    /// The requests that are not begun yet, the oldest first: moves by the elector, the others by the leader.
    fn unbegun(&self) -> impl Iterator<Item = &(FiledRequest, Meta)> {
        let decided_up_to = self.decided_up_to;
        let unix_ms = self.now.unix_ms;
        self.requests.iter().filter(move |(FiledRequest { which, request }, _)| match request.state {
            RequestState::Planned { .. } => {
                request.plan_at(unix_ms) == Some(PlanPhase::Due) && self.can_hand_over(request)
            }
            RequestState::Pending => Some(which.czxid) > decided_up_to || !request.kind.is_move(),
            _ => false,
        })
    }

    /// Whether the leader is READY, or the request is refused anyway. A scheduled move waits for that: its leader may have
    /// been lost just before its time.
    fn can_hand_over(&self, request: &AdminRequest) -> bool {
        let slot = self.slot_of(request);
        slot.map_or(true, |slot| self.current(slot).is_some_and(|(c, _)| c.status == Status::Ready))
    }

    /// Why this request is not begun although it could be carried out: another one has precedence.
    fn gives_way(&self, filed: &FiledRequest, slot: usize) -> Option<String> {
        let others = self.requests.iter().map(|(other, _)| other).filter(|other| other.which != filed.which);
        let begun = others.filter(|other| matches!(other.request.state, RequestState::Accepted { .. }));
        let repeated = begun.into_iter().find_map(|other| {
            let same = self.elected.is_some_and(|e| e.slot_for(&other.which) == Some(slot));
            same.then(|| repeats(self.elected, self.members, other, &filed.request)).flatten()
        });
        let later = || {
            let mut later = self.undecided().filter(|(other, _)| other.which > filed.which);
            later.find_map(|(FiledRequest { which, request }, _)| {
                let same = self.slot_of(request) == Ok(slot);
                let overrides = request.kind == RequestKind::Failover
                    && repeats(self.elected, self.members, filed, request).is_none();
                (same && overrides).then(|| format!("superseded by request {} of {}", which.name, request.by))
            })
        };
        repeated.map(|why| why.to_string()).or_else(later)
    }

    pub(crate) fn request(&self, which: &RequestRef) -> Option<(&RequestRef, &AdminRequest)> {
        let found = self.requests.iter().find(|(filed, _)| filed.which == *which);
        found.map(|(filed, _)| (&filed.which, &filed.request))
    }

    pub(crate) fn carry_out(&self, filed: &FiledRequest, meta: Meta) -> Act {
        let begins = self.begin(filed, meta);
        begins.unwrap_or_else(|reason| self.refuse(&filed.which, &filed.request, meta, reason))
    }

    /// What begins this request, or why it is refused.
    fn begin(&self, filed: &FiledRequest, meta: Meta) -> Result<Act, String> {
        let FiledRequest { which, request } = filed;
        let slot = self.slot_of(request).map_err(|why| why.to_string())?;
        if let Some(why) = self.gives_way(filed, slot) {
            return Err(why);
        }
        let elected = self.elected;
        let named = elected.and_then(|e| e.named(slot));
        let ready = self.current(slot).filter(|(c, _)| c.status == Status::Ready);
        if let Some(named) = named.filter(|n| request.to != Target::Any && fits(&request.to, n))
            && ready.is_some_and(|(c, _)| c.ballot == named.ballot)
        {
            return Err(format!("{} of site {} leads already", named.member, named.site));
        }
        if request.kind == RequestKind::Switchover && ready.is_none() {
            return Err("there is no READY leader that could hand over; use failover".to_owned());
        }
        let held = self.current(slot).and_then(|(c, _)| self.holds(&c.ballot));
        if let (RequestKind::Switchover, Some(why)) = (request.kind, held) {
            return Err(format!("the leader does not hand over now: {why}"));
        }
        let noticed = self.noticed(slot, elected.map_or(0, |e| e.term_of(slot)), "request");
        let ordered = Some((which, request));
        let question = Question { ordered, ..self.question(slot, noticed, cause_of(request.kind)) };
        let planned = match request.state {
            RequestState::Planned { at_ms } => format!(", planned for {}", utc(at_ms)),
            _ => String::new(),
        };
        let reason = request.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let what = format!("{} asked for by {}{reason}{planned}", request.kind.as_str(), request.by);
        let decided = question.decide_ordered(&what, self.current(slot).map(|(current, _)| current));
        let decided = decided.map_err(|why| why.to_string())?;
        let state = RequestState::Accepted { term: decided.term };
        let begun = Begun {
            name: which.name.clone(),
            version: meta.version,
            request: Box::new(AdminRequest { state, ..request.clone() }),
        };
        Ok(Act::Begin(decided, self.version(), begun))
    }

    pub(crate) fn trim(&self) -> Option<Act> {
        let mut ended = self.requests.iter().filter(|(filed, _)| filed.request.state.is_final());
        let surplus = ended.clone().count() > KEPT_REQUESTS;
        let (oldest, _) = ended.next()?;
        surplus.then(|| Act::Trim(oldest.which.name.clone()))
    }
}

/// Why a request is refused as things are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// The standing orders forbid all requests.
    #[error("the mode is observe: nothing is carried out until it is auto or manual")]
    Observe,
    /// This request is planned.
    #[error("request {0} is planned already, and there is one planned switchover at most; cancel it first")]
    Planned(String),
    /// Another request has begun.
    #[error("the {kind} of request {name} is under way in term {term}; ask again once it has ended")]
    UnderWay {
        /// Its name.
        name: String,
        /// Its kind, as text.
        kind: &'static str,
        /// Its term.
        term: u64,
    },
    /// The same failover has begun.
    #[error(
        "the same failover is under way in term {term} by request {name}; name another target to override it"
    )]
    Repeated {
        /// The name of its request.
        name: String,
        /// Its term.
        term: u64,
    },
    /// Another request has not begun yet.
    #[error("request {name}, a {kind}, is still open; wait for it to end, or cancel it")]
    Open {
        /// Its name.
        name: String,
        /// Its kind, as text.
        kind: &'static str,
    },
}

/// Why the standing orders forbid all requests, if they do.
pub(crate) fn forbidden(control: &Control) -> Option<NotNow> {
    (control.mode == Mode::Observe).then_some(NotNow::Observe)
}

/// Why the elector would refuse a request that is about to be made, because of the mode or of another request that is
/// still open. So the operator learns it at once. `requests` are all requests that exist.
pub fn not_now(
    request: &AdminRequest,
    control: &Control,
    elected: Option<&Elected>,
    leader_znodes: &[Option<&Current>],
    members: &[MemberRecord],
    requests: &[FiledRequest],
) -> Option<NotNow> {
    if let RequestState::Planned { .. } = request.state {
        // Everything else is checked at its time.
        let is_planned = |filed: &&FiledRequest| matches!(filed.request.state, RequestState::Planned { .. });
        return requests.iter().find(is_planned).map(|filed| NotNow::Planned(filed.which.name.clone()));
    }
    if let Some(why) = forbidden(control) {
        return Some(why);
    }
    // A request that can't be carried out at all is refused with that reason.
    let slot = slot_of(request, elected, leader_znodes).ok()?;
    let mut open = requests.iter().filter(|filed| filed.request.state.is_open());
    open.find_map(|filed| {
        let known = elected.and_then(|e| e.slot_for(&filed.which));
        let same = known.or_else(|| slot_of(&filed.request, elected, leader_znodes).ok()) == Some(slot);
        same.then(|| repeats(elected, members, filed, request)).flatten()
    })
}

/// Why `request` is not carried out while `open`, about the same leader, has not ended; `None` if it overrides `open`. A
/// switchover waits for any other request. A failover is for failures, including a failure of the request before it: it is
/// refused only in favour of the same failover, while the member that was named by that one is present.
fn repeats(
    elected: Option<&Elected>,
    members: &[MemberRecord],
    open: &FiledRequest,
    request: &AdminRequest,
) -> Option<NotNow> {
    let FiledRequest { which, request: other } = open;
    let named = elected.and_then(|e| e.named(e.slot_for(which)?));
    let fails = named.is_some_and(|named| members.iter().all(|m| m.ballot != named.ballot));
    let same = other.kind == RequestKind::Failover && other.to == request.to && other.force >= request.force;
    let waits = request.kind == RequestKind::Switchover || (same && !fails);
    let (name, kind) = (which.name.clone(), other.kind.as_str());
    waits.then_some(match (&other.state, request.kind) {
        (&RequestState::Accepted { term }, RequestKind::Switchover) => NotNow::UnderWay { name, kind, term },
        (&RequestState::Accepted { term }, RequestKind::Failover) => NotNow::Repeated { name, term },
        _ => NotNow::Open { name, kind },
    })
}

/// The slot that a request is about. With one slot it need not be given. With several slots, a failover without a
/// slot is for the one that lacks a leader, and an ambiguous request is refused.
///
/// # Errors
/// Why no slot, or more than one, fits the request.
pub fn slot_of(
    request: &AdminRequest,
    elected: Option<&Elected>,
    leader_znodes: &[Option<&Current>],
) -> Result<usize, NoSlot> {
    let slots = elected.map_or(leader_znodes.len(), |e| e.slots.len()).max(1);
    let leader_znode = |slot: usize| leader_znodes.get(slot).copied().flatten();
    let named = |slot: usize| elected.and_then(|e| e.named(slot));
    match &request.from {
        Outgoing::Slot(slot) if *slot < slots => Ok(*slot),
        Outgoing::Slot(slot) => Err(NoSlot::Unknown { slot: *slot, slots }),
        Outgoing::Member(member) => {
            let leads = |slot: &usize| {
                named(*slot).is_some_and(|n| n.member == *member)
                    || leader_znode(*slot).is_some_and(|c| c.member == *member)
            };
            (0..slots).find(leads).ok_or_else(|| NoSlot::NotLeader(member.clone()))
        }
        Outgoing::Only if slots == 1 => Ok(0),
        Outgoing::Only => {
            let serves = |slot: usize| leader_znode(slot).is_some_and(|c| c.status == Status::Ready);
            let lacking: Vec<_> = (0..slots).filter(|slot| !serves(*slot)).collect();
            match lacking[..] {
                [slot] if request.kind == RequestKind::Failover => Ok(slot),
                _ => {
                    let who = |slot| named(slot).map(|n| n.member.clone());
                    Err(NoSlot::Ambiguous((0..slots).map(who).collect()))
                }
            }
        }
    }
}

/// Why a request is over that this decision does not carry out any more.
fn why_overtaken(elected: &Elected) -> String {
    match elected.latest() {
        Some(given) if given.cause == Cause::CalledOff => given.sentence.clone(),
        _ => format!("overtaken by term {}: {}", elected.term, elected.sentence()),
    }
}
