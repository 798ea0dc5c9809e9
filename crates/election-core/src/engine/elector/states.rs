//! The elector's pass: from everything it has read to the one thing to do next.
//!
//! Level-triggered. Each pass looks at the whole state and compares the outcome with `leader/elected`, never with the
//! leader znodes. The write is a compare-and-set, so a stale elector loses the race and makes another pass.

use super::{
    decided::{Decided, TakeoverHold, Undecided, about, grace, is_vacated},
    next_step::{Act, Blocker, Verdict, Wait, loud, quiet},
    pass::{At, Pass, Question},
    phase_timers::Phase,
};
use crate::{
    engine::{io::Reason, znode::Meta},
    record::{AdminRequest, Cause, Control, Elected, Exclusion, Mode, Named, Target},
    strategy::Strategy,
    time::{Time, in_words},
};

impl Pass<'_> {
    /// The one thing to do next, or everything that blocks it.
    pub(crate) fn verdict(&self) -> Verdict {
        let decided = self.elected.zip(self.meta);
        let caught_up = decided.and_then(|(elected, meta)| self.caught_up(elected, meta));
        // What became of a request is not known from a decision that is older than what members remember.
        if caught_up.is_none()
            && let Some(answer) = self.settle_requests().or_else(|| self.end_requests())
        {
            return Verdict::Act(answer);
        }
        if self.control.mode == Mode::Observe {
            let nothing = quiet(Reason::Observe, "the mode is observe: nothing is decided");
            // The line of succession of an earlier decision would still be used.
            let has_line = |e: &Elected| e.leaders().any(|(slot, _)| !e.line_of(slot).is_empty());
            return match self.elected.is_some_and(has_line) {
                true => self.refresh(nothing),
                false => nothing.into(),
            };
        }
        let Some((elected, meta)) = decided else {
            return self.first();
        };
        if let Some(next) = caught_up {
            return Verdict::Act(Act::Write(Box::new(next), Some(meta.version)));
        }
        if let Some(verdict) = self.requested(elected) {
            return verdict;
        }
        let resized = elected.slots.len() != self.policy.slots;
        if resized && self.control.mode == Mode::Auto && !self.stands_in() {
            return self.resize(elected);
        }
        let verdicts = (0..elected.slots.len()).map(|slot| self.look_at(slot, elected, meta));
        let verdict = most_urgent(elected, verdicts.collect());
        if let Verdict::Act(_) = verdict {
            return verdict;
        }
        self.remember_sites(elected).or_else(|| self.trim()).map_or(verdict, Verdict::Act)
    }

    pub(crate) fn look_at(&self, slot: usize, elected: &Elected, meta: Meta) -> Verdict {
        if let Some(error) = self.leaders[slot].error() {
            return loud(Reason::Unreadable, error.to_string()).into();
        }
        let at = At { slot, elected, meta, term: elected.term_of(slot), current: self.current(slot) };
        match elected.named(slot) {
            None if is_vacated(elected, slot) => self.vacated(at),
            None => self.empty(at),
            Some(named) => self.called_off(at, named).unwrap_or_else(|| self.named(at, named)),
        }
    }

    // ---- the states of the decision ----

    /// No member has been named yet.
    pub(crate) fn first(&self) -> Verdict {
        if let Some(error) = self.leaders.iter().find_map(|leader| leader.error()) {
            return loud(Reason::Unreadable, error.to_string()).into();
        }
        if let Some(restored) = self.restored() {
            return Verdict::Act(Act::Write(Box::new(restored), None));
        }
        let noticed = self.noticed(0, 0, "startup");
        let began = self.timers.borrow_mut().first_pass(self.now);
        // An operator's request does not wait for other members to join.
        if let Some((asked, meta)) = self.next_request() {
            return Verdict::Act(self.carry_out(asked, meta));
        }
        if self.control.mode == Mode::Manual {
            return self.until_asked(|auto| auto.first());
        }
        let question = self.question(0, noticed, Cause::Startup);
        let decide = |question: &Question<'_>| question.resize("the first decision");
        self.at_startup(question, "the first decision", began, decide)
    }

    /// Decides; if a better candidate may be about to join, waits for `startup_wait`, once.
    fn at_startup<'q>(
        &'q self,
        question: Question<'q>,
        which: &str,
        began: Time,
        decide: impl Fn(&Question<'_>) -> Result<Decided, Undecided>,
    ) -> Verdict {
        let why = match decide(&question) {
            Err(Undecided::WorthWaiting(why)) => why,
            decided => return self.write(decided),
        };
        let due = began + self.policy.startup_wait;
        let impatient = Impatient(self.strategy);
        let pass = Pass { strategy: &impatient, ..self.clone() };
        let decide = || decide(&Question { pass: &pass, ..question });
        if self.now.time < due {
            self.wake_at(due);
            let proposal = self.would_decide(decide);
            let sentence = format!("{which} waits a little: {why}");
            return quiet(Reason::StartupWait, sentence).until(due).instead_of(proposal).into();
        }
        self.write(decide())
    }

    /// All members had left, and some have returned: decides as at first, and prefers the previous leaders.
    pub(crate) fn begin_again(&self, at: At<'_>) -> Verdict {
        let noticed = self.noticed(at.slot, at.term, "all-left");
        let began = self.timers.borrow_mut().first_pass(self.now);
        let question = self.question(at.slot, noticed, Cause::Startup);
        let decide = |question: &Question<'_>| question.decide("all had left", None);
        self.at_startup(question, "the first decision since all had left", began, decide)
    }

    /// The number of slots changes.
    pub(crate) fn resize(&self, elected: &Elected) -> Verdict {
        let noticed = self.noticed(0, elected.term, "slots");
        let what = format!("the slots are {} now, and were {}", self.policy.slots, elected.slots.len());
        self.write(self.question(0, noticed, Cause::SlotsChanged).resize(&what))
    }

    /// The slot has had no candidate so far.
    fn empty(&self, at: At<'_>) -> Verdict {
        if self.control.mode == Mode::Manual {
            return self.until_asked(|auto| auto.empty(at));
        }
        let noticed = self.noticed(at.slot, at.term, "empty");
        let question = self.question(at.slot, noticed, Cause::MemberJoined);
        self.write(question.decide("it had no leader", None))
    }

    /// The leader znode has been, or is being, removed from its leader by force.
    fn vacated(&self, at: At<'_>) -> Verdict {
        let noticed = self.noticed(at.slot, at.term, "vacated");
        let given = &at.elected.slots[at.slot].given;
        let ordered = given.request.as_ref().and_then(|which| self.request(which));
        if let Some((current, meta)) = at.current {
            // The second step. The version alone proves nothing, since every znode begins at version 0: the ballot
            // recorded in it must be the excluded one.
            let excluded = at.elected.exclusions.iter().any(|e| e.ballot == current.ballot);
            if excluded {
                let limit = grace(given.cause, ordered.map(|(_, r)| r), self.members, &current.ballot);
                let waited = self.phase(at, Phase::Release, Some(limit));
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
            self.phase(at, Phase::Release, None);
            return quiet(Reason::Release, sentence).into();
        }
        let question = Question { ordered, ..self.question(at.slot, noticed, given.cause) };
        let decided = question.decide("the leader znode was vacated", None);
        let decided = match (decided, ordered) {
            // The target vanished after the leader znode was removed: another member must lead.
            (Err(Undecided::TargetUnfit(..)), Some((which, request))) => {
                let anyone = AdminRequest { to: Target::Any, ..request.clone() };
                let question = Question { ordered: Some((which, &anyone)), ..question };
                question.decide("the target has left meanwhile", None)
            }
            (decided, _) => decided,
        };
        self.write(decided)
    }

    fn named(&self, at: At<'_>, named: &Named) -> Verdict {
        if self.control.mode == Mode::Manual {
            let sentence = "the mode is manual: only what an operator asks for is carried out";
            // In this mode there is no line of succession, so no successor steps in either.
            let wait = self.unless_manual(quiet(Reason::Manual, sentence), |auto| auto.named(at, named));
            return self.refresh(wait);
        }
        self.suspicion(at, named, || self.judged(at, named))
    }

    // ---- helpers ----

    /// No member is named until an operator requests it.
    fn until_asked(&self, otherwise: impl FnOnce(&Pass<'_>) -> Verdict) -> Verdict {
        let sentence = "the mode is manual: no member is named until an operator asks for it";
        self.unless_manual(quiet(Reason::Manual, sentence), otherwise).into()
    }

    /// For `explain`: what else would block the decision, and what would be decided in another mode than manual.
    fn unless_manual(&self, manual: Wait, otherwise: impl FnOnce(&Pass<'_>) -> Verdict) -> Wait {
        if self.trace.is_none() {
            return manual;
        }
        let control = Control { mode: Mode::Auto, ..self.control.clone() };
        match otherwise(&Pass { control: &control, ..self.clone() }) {
            Verdict::Act(act) => manual.instead_of(act.into_decision()),
            Verdict::Wait(Wait { blockers, proposal, .. }) => {
                let all = manual.blockers.iter().cloned().chain(blockers).collect();
                manual.blocked_by(all).instead_of(proposal)
            }
        }
    }

    /// For `explain`: what would be decided.
    pub(crate) fn would_decide(
        &self,
        decide: impl FnOnce() -> Result<Decided, Undecided>,
    ) -> Option<Box<Elected>> {
        self.trace?;
        decide().ok().map(|decided| decided.elected)
    }

    /// Whether this member acts for an elector that others have lost. That elector may act as well. So this member
    /// leaves to it all that the two could see differently because of their configuration or their clocks rather than
    /// their knowledge: otherwise they would undo each other's decisions without end.
    fn stands_in(&self) -> bool {
        self.members.first().is_some_and(|lowest| lowest.member.as_str() != self.decider)
    }

    pub(crate) fn exclude(&self, at: At<'_>, cause: Cause, what: &str, reason: String) -> Verdict {
        let noticed = self.noticed(at.slot, at.term, "exclude");
        let question = self.question(at.slot, noticed, cause);
        let named = at.elected.named(at.slot);
        let exclusion: Option<Exclusion> = named.map(|named| question.penalty(named, &reason));
        self.write(question.decide(what, exclusion))
    }

    /// Waits, unless a line of succession needs an update.
    pub(crate) fn refresh(&self, otherwise: Wait) -> Verdict {
        // By one clock an exclusion may still hold that has ended by the other. A line that is to be empty depends on no clock.
        let leaves_it = self.stands_in() && self.control.mode == Mode::Auto;
        if self.trace.is_some() || leaves_it {
            return otherwise.into();
        }
        let question = self.question(0, self.now.unix_ms, Cause::LeaderLost);
        match self.elected.and_then(|elected| question.refresh(elected)) {
            Some(refreshed) => Verdict::Act(Act::Write(Box::new(refreshed), self.version())),
            None => otherwise.into(),
        }
    }

    pub(crate) fn write(&self, decided: Result<Decided, Undecided>) -> Verdict {
        match decided {
            Ok(Decided { elected, held: None }) => Verdict::Act(Act::Write(elected, self.version())),
            Ok(Decided { elected, held: Some(hold) }) => self.hold(hold).instead_of(Some(elected)).into(),
            Err(Undecided::Held(hold)) => self.hold(hold).into(),
            Err(Undecided::WorthWaiting(sentence)) => quiet(Reason::StartupWait, sentence).into(),
            Err(nobody) => {
                loud(Reason::Nobody, nobody.to_string()).until(self.wake_at_exclusions_end()).into()
            }
        }
    }

    /// Waits until a hold ends.
    pub(crate) fn hold(&self, hold: TakeoverHold) -> Wait {
        let until = self.time_of(hold.until_ms);
        self.wake_at(until);
        loud(hold.reason, hold.sentence).until(until)
    }

    /// Wakes when the first exclusion ends; returns that time.
    pub(crate) fn wake_at_exclusions_end(&self) -> Option<Time> {
        let exclusions = self.elected.iter().flat_map(|e| &e.exclusions);
        let living = exclusions.filter(|e| e.holds_at(self.now.unix_ms));
        let end = living.map(|e| e.until_ms).min().map(|end| self.time_of(end))?;
        self.wake_at(end);
        Some(end)
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
