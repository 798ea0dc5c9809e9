//! The elector's pass: from everything it has read to the one thing to do next.
//!
//! Level-triggered. Each pass looks at the whole state and compares the outcome with `leader/elected`, never with the
//! leader znodes. The write is a compare-and-set, so a stale elector loses the race and makes another pass.

use std::{collections::BTreeMap, time::Duration};

use super::{
    phase_timers::{Phase, PhaseTimers},
    question::{Decided, Question, TakeoverHold, Undecided, about, grace, is_vacated},
    trace::DecisionTrace,
    verdict::{Act, Blocker, Verdict, Wait, loud, quiet},
};
use crate::{
    engine::{
        io::Reason,
        policy::Policy,
        reading::{Reading, view::View},
        znode::{Known, Meta},
    },
    ids::{Ballot, MemberId},
    record::{
        Cause, Control, Current, Elected, Exclusion, FiledRequest, MemberRecord, Mode, Named, RecordError,
        Request, RequestRef, Target,
    },
    strategy::Strategy,
    time::{Now, Time, in_words},
};

/// The standing orders if there are none.
static NO_ORDERS: Control = Control::NONE;

/// The elector, the time and the policy of a pass.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Pass<'a> {
    /// The election's name.
    pub(in crate::engine) election: &'a str,
    pub(in crate::engine) now: Now,
    pub(in crate::engine) me: &'a MemberId,
    pub(in crate::engine) policy: &'a Policy,
    pub(in crate::engine) strategy: &'a dyn Strategy,
}

/// The input of a pass.
#[derive(Clone)]
pub(in crate::engine) struct Facts<'a> {
    pub(in crate::engine) election: &'a str,
    pub(in crate::engine) now: Now,
    pub(in crate::engine) me: &'a MemberId,
    pub(in crate::engine) policy: &'a Policy,
    pub(in crate::engine) strategy: &'a dyn Strategy,
    pub(in crate::engine) elected: Option<(&'a Elected, Meta)>,
    /// The leader znodes, by slot.
    pub(in crate::engine) leaders: Vec<&'a Known<Current>>,
    /// The holders of the leader znodes.
    pub(in crate::engine) holders: Vec<Option<&'a Ballot>>,
    pub(in crate::engine) members: &'a [MemberRecord],
    pub(in crate::engine) requests: &'a [(FiledRequest, Meta)],
    /// Until when each request may be begun, where that is known.
    pub(in crate::engine) ends: &'a BTreeMap<RequestRef, Time>,
    pub(in crate::engine) control: &'a Control,
    /// The latest transaction that wrote any member's record.
    pub(in crate::engine) newest_zxid: i64,
    pub(in crate::engine) unreadable: &'a [RecordError],
    /// What this member has seen and remembers; `None` for `explain`.
    pub(in crate::engine) reading: Option<&'a Reading>,
    /// Only for `explain`: records what is asked, and disables the update of the lines of succession.
    pub(in crate::engine) trace: Option<&'a DecisionTrace>,
}

/// The slot of this pass, and the decision that it is part of.
#[derive(Clone, Copy)]
pub(in crate::engine) struct At<'a> {
    pub(in crate::engine) slot: usize,
    pub(in crate::engine) elected: &'a Elected,
    pub(in crate::engine) meta: Meta,
    /// The term in which the slot was decided.
    pub(in crate::engine) term: u64,
    /// The member that holds its leader znode.
    pub(in crate::engine) current: Option<(&'a Current, Meta)>,
}

impl<'a> Facts<'a> {
    /// The input of a pass, or why nothing can be done before more has been read.
    pub(in crate::engine) fn of(
        decider: Pass<'a>,
        view: &'a View,
        reading: Option<&'a Reading>,
        trace: Option<&'a DecisionTrace>,
    ) -> Result<Self, Wait> {
        let Pass { election, now, me, policy, strategy } = decider;
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
        let elected = match &view.elected {
            Known::Unread => return Err(quiet(Reason::Reading, "the decision is being read")),
            Known::Absent => None,
            Known::Present(elected, meta) => Some((&**elected, *meta)),
            Known::Unreadable(error, _) => return Err(loud(Reason::Unreadable, error.to_string())),
        };
        let slots = policy.slots.max(elected.map_or(0, |(e, _)| e.slots.len()));
        let leaders: Vec<_> = (0..slots).map(|slot| view.leader(slot)).collect();
        if leaders.contains(&&Known::Unread) {
            return Err(quiet(Reason::Reading, "the leader znode is being read"));
        }
        Ok(Self {
            election,
            now,
            me,
            policy,
            strategy,
            elected,
            holders: leaders.iter().map(|leader| leader.record().map(|c| &c.ballot)).collect(),
            leaders,
            members,
            requests,
            ends: &electors.ends,
            control,
            newest_zxid: electors.newest_zxid,
            unreadable: &electors.unreadable,
            reading,
            trace,
        })
    }

    pub(in crate::engine) fn pass(&self, timers: &mut PhaseTimers) -> Verdict {
        let caught_up = self.elected.and_then(|(elected, meta)| self.caught_up(elected, meta));
        // What became of a request is not known from a decision that is older than what members remember.
        if caught_up.is_none()
            && let Some(answer) = self.settle_requests().or_else(|| self.end_requests(timers))
        {
            return Verdict::Act(answer);
        }
        if self.control.mode == Mode::Observe {
            let nothing = quiet(Reason::Observe, "the mode is observe: nothing is decided");
            return match self.elected {
                // The line of succession of an earlier decision would still be used.
                Some((elected, meta))
                    if elected.leaders().any(|(slot, _)| !elected.line_of(slot).is_empty()) =>
                {
                    self.refresh(elected, meta, nothing)
                }
                _ => nothing.into(),
            };
        }
        let Some((elected, meta)) = self.elected else {
            return self.first(timers);
        };
        if let Some(next) = caught_up {
            return Verdict::Act(Act::Write(Box::new(next), Some(meta.version)));
        }
        if let Some(verdict) = self.requested(elected, timers) {
            return verdict;
        }
        let resized = elected.slots.len() != self.policy.slots;
        if resized && self.control.mode == Mode::Auto && !self.stands_in() {
            return self.resize(elected, meta, timers);
        }
        let verdicts = (0..elected.slots.len()).map(|slot| self.look_at(slot, elected, meta, timers));
        let verdict = most_urgent(elected, verdicts.collect());
        match verdict {
            Verdict::Wait(_) => {
                let sites = self.remember_sites(elected, meta, timers);
                sites.or_else(|| self.trim()).map_or(verdict, Verdict::Act)
            }
            Verdict::Act(_) => verdict,
        }
    }

    pub(in crate::engine) fn look_at(
        &self,
        slot: usize,
        elected: &Elected,
        meta: Meta,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        if let Known::Unreadable(error, _) = self.leaders[slot] {
            return loud(Reason::Unreadable, error.to_string()).into();
        }
        let at = At { slot, elected, meta, term: elected.term_of(slot), current: self.current(slot) };
        match elected.named(slot) {
            None if is_vacated(elected, slot) => self.vacated(at, timers),
            None => self.empty(at, timers),
            Some(named) => self.named(at, named, timers),
        }
    }

    /// The holder of the leader znode of `slot`.
    pub(in crate::engine) fn current(&self, slot: usize) -> Option<(&'a Current, Meta)> {
        match self.leaders.get(slot)? {
            Known::Present(current, meta) => Some((&**current, *meta)),
            _ => None,
        }
    }

    // ---- the states of the decision ----

    /// No member has been named yet.
    pub(in crate::engine) fn first(&self, timers: &mut PhaseTimers) -> Verdict {
        if let Some(Known::Unreadable(error, _)) =
            self.leaders.iter().find(|p| matches!(p, Known::Unreadable(..)))
        {
            return loud(Reason::Unreadable, error.to_string()).into();
        }
        if let Some(restored) = self.restored() {
            return Verdict::Act(Act::Write(Box::new(restored), None));
        }
        let noticed = timers.noticed(0, 0, "startup", self.now);
        let began = timers.first_pass(self.now);
        // An operator's request does not wait for other members to join.
        if let Some((asked, meta)) = self.next_request() {
            return Verdict::Act(self.carry_out(asked, meta, timers));
        }
        if self.control.mode == Mode::Manual {
            return self.until_asked(|auto, timers| auto.first(timers), timers);
        }
        let question = self.question(0, noticed);
        let decide = |question: &Question<'_>| question.resize(Cause::Startup, "the first decision");
        self.at_startup(question, "the first decision", began, decide, None, timers)
    }

    /// Decides; if a better candidate may be about to join, waits for `startup_wait`, once.
    fn at_startup<'q>(
        &'q self,
        question: Question<'q>,
        which: &str,
        began: Time,
        decide: impl Fn(&Question<'_>) -> Result<Decided, Undecided>,
        meta: Option<Meta>,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        let why = match decide(&question) {
            Err(Undecided::WorthWaiting(why)) => why,
            decided => return self.write(decided, meta, timers),
        };
        let due = began + self.policy.startup_wait;
        let impatient = Impatient(self.strategy);
        let decide = || decide(&Question { strategy: &impatient, ..question });
        if self.now.time < due {
            timers.wake_at(due);
            let proposal = self.would_decide(decide);
            let sentence = format!("{which} waits a little: {why}");
            return quiet(Reason::StartupWait, sentence).until(due).instead_of(proposal).into();
        }
        self.write(decide(), meta, timers)
    }

    /// All members had left, and some have returned: decides as at first, and prefers the previous leaders.
    pub(in crate::engine) fn begin_again(&self, at: At<'_>, timers: &mut PhaseTimers) -> Verdict {
        let noticed = timers.noticed(at.slot, at.term, "all-left", self.now);
        let began = timers.first_pass(self.now);
        let question = self.question(at.slot, noticed);
        let decide = |question: &Question<'_>| question.decide(Cause::Startup, "all had left", None, None);
        self.at_startup(
            question,
            "the first decision since all had left",
            began,
            decide,
            Some(at.meta),
            timers,
        )
    }

    /// The number of slots changes.
    pub(in crate::engine) fn resize(
        &self,
        elected: &Elected,
        meta: Meta,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        let noticed = timers.noticed(0, elected.term, "slots", self.now);
        let what = format!("the slots are {} now, and were {}", self.policy.slots, elected.slots.len());
        self.write(self.question(0, noticed).resize(Cause::SlotsChanged, &what), Some(meta), timers)
    }

    /// The slot has had no candidate so far.
    fn empty(&self, at: At<'_>, timers: &mut PhaseTimers) -> Verdict {
        if self.control.mode == Mode::Manual {
            return self.until_asked(|auto, timers| auto.empty(at, timers), timers);
        }
        let noticed = timers.noticed(at.slot, at.term, "empty", self.now);
        let decided =
            self.question(at.slot, noticed).decide(Cause::MemberJoined, "it had no leader", None, None);
        self.write(decided, Some(at.meta), timers)
    }

    /// The leader znode has been, or is being, removed from its leader by force.
    fn vacated(&self, at: At<'_>, timers: &mut PhaseTimers) -> Verdict {
        let noticed = timers.noticed(at.slot, at.term, "vacated", self.now);
        let given = &at.elected.slots[at.slot].given;
        if let Some((current, meta)) = at.current {
            // The second step. The version alone proves nothing, since every znode begins at version 0: the ballot
            // recorded in it must be the excluded one.
            let excluded = at.elected.exclusions.iter().any(|e| e.ballot == current.ballot);
            if excluded {
                let request = given.request.as_ref().and_then(|which| self.request(which));
                let limit = grace(given.cause, request.map(|(_, r)| r), self.members, &current.ballot);
                let waited = timers.phase(at.slot, at.term, Phase::Release, Some(limit), self.now);
                if waited < limit {
                    let (member, limit_text) = (&current.member, in_words(limit));
                    let sentence =
                        format!("{member} is removed by force, and has {limit_text} to end its work");
                    return quiet(Reason::Release, sentence).until(self.now.time + (limit - waited)).into();
                }
                let (leader, decision) = (meta.version, at.meta.version);
                return Verdict::Act(Act::Vacate { slot: at.slot, leader, decision });
            }
            let sentence = format!(
                "{} holds the leader znode though no member is named; waiting for its release",
                current.member
            );
            timers.phase(at.slot, at.term, Phase::Release, None, self.now);
            return quiet(Reason::Release, sentence).into();
        }
        let ordered = given.request.as_ref().and_then(|which| self.request(which));
        let question = self.question(at.slot, noticed);
        let decided = question.decide(given.cause, "the leader znode was vacated", None, ordered);
        let decided = match (decided, ordered) {
            // The target vanished after the leader znode was removed: another member must lead.
            (Err(Undecided::TargetUnfit(_)), Some((which, request))) => {
                let anyone = Request { to: Target::Any, ..request.clone() };
                question.decide(given.cause, "the target has left meanwhile", None, Some((which, &anyone)))
            }
            (decided, _) => decided,
        };
        self.write(decided, Some(at.meta), timers)
    }

    fn named(&self, at: At<'_>, named: &Named, timers: &mut PhaseTimers) -> Verdict {
        if self.control.mode == Mode::Manual {
            let sentence = "the mode is manual: only what an operator asks for is carried out";
            // In this mode there is no line of succession, so no successor steps in either.
            let wait = self.unless_manual(
                quiet(Reason::Manual, sentence),
                |auto, timers| auto.named(at, named, timers),
                timers,
            );
            return self.refresh(at.elected, at.meta, wait);
        }
        self.suspicion(at, named, timers, |timers| self.judged(at, named, timers))
    }

    // ---- helpers ----

    /// No member is named until an operator requests it.
    fn until_asked(
        &self,
        otherwise: impl FnOnce(&Facts<'_>, &mut PhaseTimers) -> Verdict,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        let sentence = "the mode is manual: no member is named until an operator asks for it";
        self.unless_manual(quiet(Reason::Manual, sentence), otherwise, timers).into()
    }

    /// For `explain`: what else would block the decision, and what would be decided in another mode than manual.
    fn unless_manual(
        &self,
        manual: Wait,
        otherwise: impl FnOnce(&Facts<'_>, &mut PhaseTimers) -> Verdict,
        timers: &mut PhaseTimers,
    ) -> Wait {
        if self.trace.is_none() {
            return manual;
        }
        let control = Control { mode: Mode::Auto, ..self.control.clone() };
        match otherwise(&Facts { control: &control, ..self.clone() }, timers) {
            Verdict::Act(act) => manual.instead_of(act.into_decision()),
            Verdict::Wait(Wait { blockers, proposal, .. }) => {
                let all = manual.blockers.iter().cloned().chain(blockers).collect();
                manual.blocked_by(all).instead_of(proposal)
            }
        }
    }

    /// For `explain`: what would be decided.
    pub(in crate::engine) fn would_decide(
        &self,
        decide: impl FnOnce() -> Result<Decided, Undecided>,
    ) -> Option<Box<Elected>> {
        self.trace?;
        decide().ok().map(|decided| decided.elected)
    }

    /// Whether this member acts for an elector that others have lost. That elector may act as well. So this member
    /// leaves to it all that the two could see differently because of their configuration rather than their
    /// knowledge: otherwise they would undo each other's decisions without end.
    fn stands_in(&self) -> bool {
        self.members.first().is_some_and(|lowest| lowest.member != *self.me)
    }

    /// Whether the record of `named` exists but can't be read.
    pub(in crate::engine) fn is_spoiled(&self, named: &Named) -> bool {
        let name = format!("/nodes/{}", named.member);
        self.unreadable.iter().any(|error| error.path.ends_with(&name))
    }

    pub(in crate::engine) fn exclude(
        &self,
        at: At<'_>,
        cause: Cause,
        what: &str,
        reason: String,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        let noticed = timers.noticed(at.slot, at.term, "exclude", self.now);
        let question = self.question(at.slot, noticed);
        let named = at.elected.named(at.slot);
        let exclusion: Option<Exclusion> = named.map(|named| question.penalty(named, cause, &reason));
        self.write(question.decide(cause, what, exclusion, None), Some(at.meta), timers)
    }

    /// Waits, unless a line of succession needs an update.
    pub(in crate::engine) fn refresh(&self, elected: &Elected, meta: Meta, otherwise: Wait) -> Verdict {
        if self.trace.is_some() {
            return otherwise.into();
        }
        match self.question(0, self.now.unix_ms).refresh(elected) {
            Some(refreshed) => Verdict::Act(Act::Write(Box::new(refreshed), Some(meta.version))),
            None => otherwise.into(),
        }
    }

    pub(in crate::engine) fn write(
        &self,
        decided: Result<Decided, Undecided>,
        meta: Option<Meta>,
        timers: &mut PhaseTimers,
    ) -> Verdict {
        match decided {
            Ok(Decided { elected, held: None }) => Verdict::Act(Act::Write(elected, meta.map(|m| m.version))),
            Ok(Decided { elected, held: Some(hold) }) => {
                self.hold(hold, timers).instead_of(Some(elected)).into()
            }
            Err(Undecided::Held(hold)) => self.hold(hold, timers).into(),
            Err(Undecided::NoCandidate(sentence) | Undecided::TargetUnfit(sentence)) => {
                loud(Reason::Nobody, sentence).until(self.wake_at_exclusions_end(timers)).into()
            }
            Err(Undecided::WorthWaiting(sentence)) => quiet(Reason::StartupWait, sentence).into(),
        }
    }

    /// Waits until a hold ends.
    pub(in crate::engine) fn hold(&self, hold: TakeoverHold, timers: &mut PhaseTimers) -> Wait {
        let until = self.time_of(hold.until_ms);
        timers.wake_at(until);
        loud(hold.reason, hold.sentence).until(until)
    }

    /// Wakes when the first exclusion ends; returns that time.
    pub(in crate::engine) fn wake_at_exclusions_end(&self, timers: &mut PhaseTimers) -> Option<Time> {
        let exclusions = self.elected.iter().flat_map(|(e, _)| &e.exclusions);
        let living = exclusions.filter(|e| e.holds_at(self.now.unix_ms));
        let end = living.map(|e| e.until_ms).min().map(|end| self.time_of(end))?;
        timers.wake_at(end);
        Some(end)
    }

    pub(in crate::engine) fn time_of(&self, unix_ms: u64) -> Time {
        self.now.time + Duration::from_millis(unix_ms.saturating_sub(self.now.unix_ms) + 1)
    }

    pub(in crate::engine) fn question(&self, slot: usize, noticed_at_ms: u64) -> Question<'_> {
        Question {
            unix_ms: self.now.unix_ms,
            noticed_at_ms,
            decider: self.me.as_str(),
            policy: self.policy,
            strategy: self.strategy,
            members: self.members,
            control: self.control,
            elected: self.elected.map(|(e, _)| e),
            slot,
            holders: &self.holders,
            decided_up_to: self.decided_up_to(),
            above: if self.elected.is_none() { self.latest() } else { None },
            trace: self.trace,
        }
    }
}

/// Selects the one thing to do now from the verdicts for all slots: a decision before the update of a line of
/// succession, the lowest slot first. Waits are reported for all slots.
fn most_urgent(elected: &Elected, verdicts: Vec<Verdict>) -> Verdict {
    let urgency = |act: &Act| match act {
        Act::Write(next, _) if next.term == elected.term => 1,
        _ => 0,
    };
    let slots = verdicts.len();
    let (mut waits, mut first) = (Vec::new(), None::<Act>);
    for (slot, verdict) in verdicts.into_iter().enumerate() {
        match verdict {
            Verdict::Wait(wait) => waits.push((slot, wait)),
            Verdict::Act(act) if first.as_ref().is_some_and(|f| urgency(f) <= urgency(&act)) => {}
            Verdict::Act(act) => first = Some(act),
        }
    }
    if let Some(act) = first {
        return Verdict::Act(act);
    }
    let alarm = waits.iter().find(|(_, wait)| wait.loud);
    let alarm = alarm.or_else(|| waits.iter().find(|(_, wait)| wait.reason != Reason::Steady));
    let reason = alarm.or(waits.first()).map_or(Reason::Steady, |(_, wait)| wait.reason);
    let loud = waits.iter().any(|(_, wait)| wait.loud);
    let mut sentences = Vec::with_capacity(slots);
    let mut blockers = Vec::new();
    for (slot, wait) in waits {
        sentences.push(about(slot, slots, wait.sentence));
        let of_slot =
            |blocker: Blocker| Blocker { sentence: about(slot, slots, blocker.sentence), ..blocker };
        blockers.extend(wait.blockers.into_iter().map(of_slot));
    }
    Verdict::Wait(Wait { reason, sentence: sentences.join("; "), loud, blockers, proposal: None })
}

/// A strategy for which the startup wait is over.
#[derive(Debug)]
struct Impatient<'a>(&'a dyn Strategy);

impl Strategy for Impatient<'_> {
    fn rank(&self, round: &crate::strategy::Round<'_>) -> crate::strategy::Ranking {
        crate::strategy::Ranking { worth_waiting: None, ..self.0.rank(round) }
    }
}

impl Current {
    /// The holder as it would be named.
    pub(in crate::engine) fn named(&self) -> Named {
        Named { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
