//! What the elector knows in one pass, and the question about one slot that it asks.

use std::{cell::RefCell, ops::Deref, time::Duration};

use super::{
    decided::{OpenRequest, counted_by, is_vacated},
    next_step::{Wait, loud, quiet},
    phase_timers::{Phase, PhaseTimers},
    trace::DecisionTrace,
};
use crate::{
    engine::{
        io::Reason,
        policy::Policy,
        reading::Reading,
        znode::{Known, Meta},
    },
    ids::Ballot,
    record::{
        Cause, Control, Current, Elected, Exclusion, FiledRequest, MemberRecord, Named, Previous, Remembered,
    },
    strategy::{Ground, Refused, Strategy},
    time::{Now, Time},
};

/// The standing orders if there are none.
static NO_ORDERS: Control = Control::NONE;

/// What an elector knows in one pass: the time, its settings, what was read, and its memory. A [`Question`] asks it for a
/// decision.
#[derive(Clone)]
pub(crate) struct Pass<'a> {
    pub(crate) now: Now,
    /// Who decides: the elector, or the operator who forces a failover.
    pub(crate) decider: &'a str,
    pub(crate) policy: &'a Policy,
    pub(crate) strategy: &'a dyn Strategy,
    pub(crate) elected: Option<&'a Elected>,
    pub(crate) meta: Option<Meta>,
    /// The leader znodes, by slot.
    pub(crate) leaders: Vec<&'a Known<Current>>,
    /// The holders of the leader znodes, by slot.
    pub(crate) holders: Vec<Option<&'a Ballot>>,
    pub(crate) members: &'a [MemberRecord],
    pub(crate) requests: &'a [(FiledRequest, Meta)],
    pub(crate) control: &'a Control,
    /// The latest that any member remembers, or a leader znode shows: a first decision must exceed it.
    pub(crate) latest: Option<Remembered>,
    /// The creation of the latest request that was decided.
    pub(crate) decided_up_to: Option<i64>,
    /// What this member has seen before.
    pub(crate) reading: Option<&'a Reading>,
    /// The memory of the elector, which the pass brings up to date.
    pub(crate) timers: &'a RefCell<PhaseTimers>,
    /// Only for `explain`: records what is asked, and disables the update of the lines of succession.
    pub(crate) trace: Option<&'a DecisionTrace>,
}

/// The slot of this pass, and the decision that it is part of.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) slot: usize,
    pub(crate) elected: &'a Elected,
    pub(crate) meta: Meta,
    /// The term in which the slot was decided.
    pub(crate) term: u64,
    /// The member that holds its leader znode.
    pub(crate) current: Option<(&'a Current, Meta)>,
}

impl<'a> Pass<'a> {
    /// A pass that knows nothing of the election yet.
    pub(crate) const fn new(
        now: Now,
        decider: &'a str,
        policy: &'a Policy,
        strategy: &'a dyn Strategy,
        timers: &'a RefCell<PhaseTimers>,
    ) -> Self {
        Self {
            now,
            decider,
            policy,
            strategy,
            elected: None,
            meta: None,
            leaders: Vec::new(),
            holders: Vec::new(),
            members: &[],
            requests: &[],
            control: &NO_ORDERS,
            latest: None,
            decided_up_to: None,
            reading: None,
            timers,
            trace: None,
        }
    }

    /// The same with what was read, or why nothing can be done before more has been read.
    pub(crate) fn read(self, reading: &'a Reading) -> Result<Self, Wait> {
        let view = &reading.view;
        let electors = view.electors();
        let (Some(members), Some(requests)) = (&electors.members, &electors.requests) else {
            return Err(quiet(Reason::Reading, "the membership is being read"));
        };
        let control = match &electors.control {
            Known::Unread => return Err(quiet(Reason::Reading, "the standing orders are being read")),
            Known::Absent => &NO_ORDERS,
            Known::Present(control, _) => control,
            Known::Unreadable(error, _) => return Err(loud(Reason::Unreadable, error.to_string())),
        };
        let (elected, meta) = match &view.elected {
            Known::Unread => return Err(quiet(Reason::Reading, "the decision is being read")),
            Known::Absent => (None, None),
            Known::Present(elected, meta) => (Some(&**elected), Some(*meta)),
            Known::Unreadable(error, _) => return Err(loud(Reason::Unreadable, error.to_string())),
        };
        let slots = self.policy.slots.max(elected.map_or(0, |e| e.slots.len()));
        let leaders: Vec<_> = (0..slots).map(|slot| view.leader(slot)).collect();
        if leaders.contains(&&Known::Unread) {
            return Err(quiet(Reason::Reading, "the leader znode is being read"));
        }
        let holders = leaders.iter().map(|leader| leader.record().map(|c| &c.ballot)).collect();
        let reading = Some(reading);
        let known = Self { elected, meta, holders, leaders, members, requests, control, reading, ..self };
        let latest = known.latest();
        let decided_up_to = match (elected, meta) {
            (Some(elected), Some(meta)) => counted_by(elected.last_request, meta.mzxid),
            _ => counted_by(latest.and_then(|latest| latest.last_request), electors.members_stamp.zxid),
        };
        Ok(Self { latest, decided_up_to, ..known })
    }

    /// The holder of the leader znode of `slot`.
    pub(crate) fn current(&self, slot: usize) -> Option<(&'a Current, Meta)> {
        let known = self.leaders.get(slot)?;
        known.record().zip(known.meta())
    }

    /// The version of the decision, if there is one.
    pub(crate) fn version(&self) -> Option<i32> {
        self.meta.map(|meta| meta.version)
    }

    pub(crate) fn question(&self, slot: usize, noticed_at_ms: u64, cause: Cause) -> Question<'_> {
        Question { pass: self, slot, noticed_at_ms, cause, ordered: None }
    }

    /// Whether the record of `named` exists but can't be read.
    pub(crate) fn is_spoiled(&self, named: &Named) -> bool {
        let name = format!("/nodes/{}", named.member);
        let mut unreadable = self.reading.iter().flat_map(|reading| &reading.view.electors().unreadable);
        unreadable.any(|error| error.path.ends_with(&name))
    }

    // ---- members ----

    pub(crate) fn living_exclusions(&self) -> Vec<Exclusion> {
        let all = self.elected.map(|e| e.exclusions.as_slice()).unwrap_or_default();
        all.iter().filter(|e| e.holds_at(self.now.unix_ms)).cloned().collect()
    }

    pub(crate) fn lives(&self, named: &Named) -> bool {
        self.members.iter().any(|m| m.ballot == named.ballot)
    }

    /// All members that may be asked at all.
    pub(crate) fn standing(&self) -> impl Iterator<Item = &MemberRecord> {
        let all: &[MemberRecord] = if self.control.is_closed() { &[] } else { self.members };
        all.iter().filter(|m| m.withdrawn.is_none() && !m.leaving && self.reads_orders(m))
    }

    /// Whether a member would obey all standing orders.
    fn reads_orders(&self, member: &MemberRecord) -> bool {
        member.orders_format >= self.control.format()
    }

    /// Members that are no candidates, and why.
    pub(crate) fn withdrawn(&self) -> impl Iterator<Item = Refused> {
        let closed = self.control.closed();
        self.members.iter().filter_map(move |m| {
            let (reason, ground) = match (&closed, &m.withdrawn) {
                (Some(why), _) => (why.clone(), Ground::Order),
                (None, Some(why)) => (format!("it has withdrawn: {why}"), Ground::State),
                (None, None) if m.leaving => ("it is shutting down".to_owned(), Ground::State),
                (None, None) if !self.reads_orders(m) => (
                    "its version does not know the order that the job is stopped, and would start it"
                        .to_owned(),
                    Ground::State,
                ),
                (None, None) => return None,
            };
            Some(Refused { named: m.named(), stage: "candidate".to_owned(), reason, ground })
        })
    }

    // ---- the memory ----

    /// Records that there is something to decide in `term`; returns when that was first noticed.
    pub(crate) fn noticed(&self, slot: usize, term: u64, what: &'static str) -> u64 {
        self.timers.borrow_mut().noticed(slot, term, what, self.now)
    }

    /// Records that the slot is in this phase; returns how long it has been in it altogether.
    pub(crate) fn phase(&self, at: At<'_>, phase: Phase, limit: Option<Duration>) -> Duration {
        self.timers.borrow_mut().phase(at.slot, at.term, phase, limit, self.now)
    }

    pub(crate) fn time_of(&self, unix_ms: u64) -> Time {
        self.now.time + Duration::from_millis(unix_ms.saturating_sub(self.now.unix_ms) + 1)
    }

    /// Asks for another pass at `at`.
    pub(crate) fn wake_at(&self, at: Time) {
        self.timers.borrow_mut().wake_at(at);
    }
}

/// What a decision is asked about: a slot, in a pass, and why.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) pass: &'a Pass<'a>,
    pub(crate) slot: usize,
    pub(crate) noticed_at_ms: u64,
    pub(crate) cause: Cause,
    /// The operator's request that it carries out.
    pub(crate) ordered: OpenRequest<'a>,
}

impl<'a> Deref for Question<'a> {
    type Target = Pass<'a>;

    fn deref(&self) -> &Pass<'a> {
        self.pass
    }
}

impl Question<'_> {
    /// Whether the leader znode is being vacated. Naming the next leader then belongs to the takeover that began with
    /// vacating, so it is neither limited nor counted again.
    pub(crate) fn is_vacated(&self) -> bool {
        self.elected.is_some_and(|e| is_vacated(e, self.slot))
    }

    /// The member that leads the slot, or that led it before.
    pub(crate) fn led_before(&self) -> Option<Previous> {
        self.elected?.led_before(self.slot)
    }
}

impl Current {
    /// The holder as it would be named.
    pub(crate) fn named(&self) -> Named {
        Named { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
