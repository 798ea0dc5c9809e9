//! Why leadership is where it is: what an elector would ask, answer and wait for, derived from what any client can
//! read.
//!
//! This module has no rules of its own. It runs the elector's own pass over what was read, with a
//! [trace](super::elector::trace) of what it asks. The pass returns everything that blocks a decision, and what it
//! would decide without the blockers. What only the elector's memory contains (since when it has seen something) is
//! taken from the times in the records, or reported as unknown ([`Bound`]).

pub(crate) mod simulate;
#[cfg(test)]
mod tests;

use std::{cell::RefCell, sync::Arc};

use serde::Serialize;

use super::{
    elector::{
        decided::is_vacated,
        next_step::{Act, Blocker, Verdict, Wait, loud},
        pass::Pass,
        phase_timers::{Phase, PhaseTimers},
        trace::{Asked, DecisionTrace},
    },
    io::Reason,
    policy::Policy,
    reading::Reading,
    znode::{Known, Meta},
};
use crate::{
    ids::{Ballot, MemberId},
    record::{
        Cause, Control, Current, Elected, FiledRequest, Given, MAX_SLOTS, MemberRecord, Mode, Named,
        RecordError, Slot, Status,
    },
    strategy::{Ranking, Strategy},
    time::{Now, Time},
};

/// An election under an elector, as it was read at one moment.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The living members, lowest ballot first.
    pub members: Vec<MemberRecord>,
    /// The lowest living ballot.
    pub lowest: Option<Ballot>,
    /// The decision.
    pub elected: Option<Elected>,
    /// The leader znodes, by slot.
    pub leader_znodes: Vec<Option<Current>>,
    /// The standing orders.
    pub control: Control,
    /// The operators' requests by name.
    pub requests: Vec<FiledRequest>,
    /// Records that can't be used.
    pub unreadable: Vec<RecordError>,
}

/// What an elector decides about an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// When it was explained, by the caller's wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The elector; `None` if no member is a candidate, or if the elector's record can't be read.
    pub elector: Option<MemberId>,
    /// What must be done next.
    pub step: NextStep,
    /// Whether an elector with this policy would write other lines of succession than those in the decision. They are
    /// about to be brought up to date, or the elector has another policy.
    pub other_line: bool,
    /// One explanation for each slot.
    pub slots: Vec<SlotExplanation>,
}

/// What an elector does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// Whether it acts, rather than waits.
    pub acts: bool,
    /// The name of the action; for a wait, that of the [`Reason`].
    pub reason: &'static str,
    /// The sentence.
    pub sentence: String,
}

/// What an elector decides about one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotExplanation {
    /// Counted from 0.
    pub slot: usize,
    /// The question that is asked about it now.
    pub question: Cause,
    /// The member that is named.
    pub named: Option<Named>,
    /// The holder of the leader znode, and its status.
    pub leader: Option<(Named, Status)>,
    /// All members that may lead it, best first, and all members that may not. The latter include members that are
    /// not asked about: those that are not candidates, or have another slot.
    pub ranking: Ranking,
    /// The order in which members follow if its leader is lost, and those that may not. It is what the elector writes as the
    /// line of succession. Empty if no member is named.
    pub if_lost: Ranking,
    /// The order for a switchover now that names no target, and those that may not lead then. Empty if
    /// the leader znode is free.
    pub switchover: Ranking,
    /// What would be decided without the obstacles; `None` if the slot is as it should be.
    pub proposal: Option<Proposal>,
    /// What blocks that decision, or prevents knowing it.
    pub obstacles: Vec<Obstacle>,
}

/// A decision that has not been taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// The member that would be named; `None` while the leader znode is being vacated.
    pub named: Option<Named>,
    /// Why.
    pub cause: Cause,
    /// The sentence that the decision would have.
    pub sentence: String,
}

/// Why a decision is not taken now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// Which of the reasons.
    pub reason: Reason,
    /// The sentence.
    pub sentence: String,
    /// When it ends by itself, in milliseconds since the Unix epoch; `None` for never.
    pub until_ms: Option<u64>,
    /// How well that time is known.
    pub bound: Bound,
}

/// How well a time is known to a reader that has not watched the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The records contain it.
    Exactly,
    /// At this time or later: an elector that took over meanwhile counts from when it did.
    Earliest,
    /// At this time or earlier: the elector has counted for a while already.
    Latest,
}

impl Bound {
    /// The words for it, written before a time.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exactly => "at",
            Self::Earliest => "not before",
            Self::Latest => "at the latest at",
        }
    }
}

/// How an elector with this policy and strategy judges what was `seen`, at `unix_ms` of the wall clock. The
/// elector is the member with the lowest ballot, regardless of the caller.
///
/// Pure: the same input gives the same result.
pub fn explain(seen: &Seen, policy: &Policy, strategy: &dyn Strategy, unix_ms: u64) -> Explanation {
    Looker::new(seen, policy, strategy, unix_ms).explain()
}

/// Why nothing is decided in an election without members.
const NO_MEMBER: &str = "no elector: no member is there";

/// An election as an elector sees it.
pub(crate) struct Looker<'a> {
    pub(crate) seen: &'a Seen,
    policy: &'a Policy,
    strategy: &'a dyn Strategy,
    now: Now,
    elector: Option<&'a MemberRecord>,
    reading: Reading,
}

impl<'a> Looker<'a> {
    pub(crate) fn new(seen: &'a Seen, policy: &'a Policy, strategy: &'a dyn Strategy, unix_ms: u64) -> Self {
        let elector = seen.members.iter().find(|m| seen.lowest.as_ref() == Some(&m.ballot));
        // A steady clock that starts together with the wall clock.
        let now = Now::new(Time::from_millis(unix_ms), unix_ms);
        Self { seen, policy, strategy, now, elector, reading: seen.reading(policy) }
    }

    /// The elector's verdict over all slots, or why no decision is made.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.elector.is_none() {
            let unread = self.seen.lowest.is_some() && !self.seen.members.is_empty();
            let sentence = match unread {
                true => "no elector: the member with the lowest ballot has no record that can be read",
                false => NO_MEMBER,
            };
            return loud(Reason::NoElector, sentence).into();
        }
        let verdict = self.ask(self.memory(), |pass| pass.verdict());
        verdict.map_or_else(Verdict::from, |(verdict, _)| verdict)
    }

    fn explain(&self) -> Explanation {
        let verdict = self.verdict();
        let slots = match &verdict {
            Verdict::Wait(Wait { reason: Reason::Unreadable, .. }) => Vec::new(),
            verdict => (0..self.slots()).map(|slot| self.slot(slot, verdict)).collect(),
        };
        let elector = self.elector.map(|m| m.member.clone());
        let other_line = self.other_line();
        Explanation { unix_ms: self.now.unix_ms, elector, step: self.step(verdict), other_line, slots }
    }

    fn other_line(&self) -> bool {
        let Some(elected) = &self.seen.elected else { return false };
        // Until every named member is READY, the elector keeps the lines as the decision has them.
        let serves = |(slot, named): (usize, &Named)| {
            self.leader_znode(slot).is_some_and(|c| c.ballot == named.ballot && c.status == Status::Ready)
        };
        let differs = |pass: &Pass<'_>| {
            pass.question(0, self.now.unix_ms, Cause::LeaderLost).refresh(elected).is_some()
        };
        let kept = self.elector.is_some() && elected.leaders().all(serves);
        kept && self.ask(PhaseTimers::default(), differs).is_ok_and(|(differs, _)| differs)
    }

    /// The number of slots: those of the decision, or those of the policy if it has more.
    fn slots(&self) -> usize {
        let known = self.seen.elected.as_ref().map_or(0, |e| e.slots.len());
        known.max(self.policy.slots.clamp(1, MAX_SLOTS))
    }

    /// Explains one slot, given the elector's verdict over all slots.
    fn slot(&self, slot: usize, verdict: &Verdict) -> SlotExplanation {
        let mut obstacles = Vec::new();
        if let Verdict::Wait(wait) = verdict
            && matches!(wait.reason, Reason::NoElector | Reason::Observe)
        {
            obstacles.extend(wait.blockers.iter().map(|blocker| self.obstacle(blocker.clone())));
        }
        let (next, mut asked) = self.look(slot, self.memory());
        let proposal = match next {
            Verdict::Act(act) => {
                // A step that is overdue according to the records may not be overdue for an elector that has begun
                // since.
                let (anew, _) = self.look(slot, PhaseTimers::default());
                if let Verdict::Wait(Wait { reason, sentence, .. }) = anew
                    && matches!(reason, Reason::Acquire | Reason::Takeover)
                {
                    let until_ms = Some(self.now.unix_ms);
                    obstacles.push(Obstacle { reason, sentence, until_ms, bound: Bound::Earliest });
                }
                self.proposal(slot, act)
            }
            Verdict::Wait(Wait { blockers, proposal, .. }) => {
                obstacles.extend(blockers.into_iter().map(|blocker| self.obstacle(blocker)));
                proposal.and_then(|decided| proposal_of(slot, *decided))
            }
        };
        asked.retain(|a| a.slot == slot);
        let about = |a: &&Asked| proposal.as_ref().is_none_or(|p: &Proposal| p.cause == a.cause);
        let asked = asked.iter().rfind(about).or(asked.first()).cloned();
        let Asked { cause, ranking, .. } =
            asked.unwrap_or_else(|| self.would_ask(slot, proposal.as_ref().and_then(|p| p.named.as_ref())));
        let elected = self.seen.elected.as_ref();
        let (if_lost, switchover) = self.orders(slot);
        SlotExplanation {
            slot,
            if_lost,
            switchover,
            question: cause,
            named: elected.and_then(|e| e.named(slot)).cloned(),
            leader: self.leader_znode(slot).map(|c| (c.named(), c.status)),
            ranking,
            proposal,
            obstacles,
        }
    }

    /// Who follows if the leader of the slot is lost, and who by a switchover now.
    fn orders(&self, slot: usize) -> (Ranking, Ranking) {
        let orders = |pass: &Pass<'_>| {
            let question = pass.question(slot, self.now.unix_ms, Cause::LeaderLost);
            // As the elector brings the lines up to date.
            let elected = self.seen.elected.as_ref().map(|elected| question.with_given_up(elected));
            let mut if_lost = elected.and_then(|elected| question.successors(slot, &elected));
            if let Some(if_lost) = &mut if_lost {
                if_lost.refused.extend(question.withdrawn());
            }
            let switchover = self.leader_znode(slot).map(|_| question.rank_switchover());
            (if_lost.unwrap_or_default(), switchover.unwrap_or_default())
        };
        self.ask(PhaseTimers::default(), orders).map(|(orders, _)| orders).unwrap_or_default()
    }

    /// What an elector with this memory does about the slot, and what it asks for that. Where nothing is decided in the mode
    /// observe, what would be done in another mode.
    fn look(&self, slot: usize, timers: PhaseTimers) -> (Verdict, Vec<Asked>) {
        let look = |pass: &Pass<'_>| match pass.control.mode {
            Mode::Observe => {
                let control = Control { mode: Mode::Auto, ..pass.control.clone() };
                Pass { control: &control, ..pass.clone() }.look_at_either(slot)
            }
            _ => pass.look_at_either(slot),
        };
        self.ask(timers, look).unwrap_or_else(|wait| (wait.into(), Vec::new()))
    }

    fn obstacle(&self, blocker: Blocker) -> Obstacle {
        let Blocker { reason, sentence, until } = blocker;
        let until_ms = until.map(|at| self.wall(at));
        Obstacle { reason, sentence, until_ms, bound: bound_of(reason) }
    }

    /// Asks an elector that has this memory. Returns also what it has asked of the strategy for that; fails if more must be read
    /// first.
    fn ask<T>(&self, timers: PhaseTimers, ask: impl FnOnce(&Pass<'_>) -> T) -> Result<(T, Vec<Asked>), Wait> {
        // The elector's id is in what it writes; nothing else depends on the id.
        let me = self.elector.or(self.seen.members.first());
        let Some(me) = me else { return Err(loud(Reason::NoElector, NO_MEMBER)) };
        let (timers, trace) = (RefCell::new(timers), DecisionTrace::default());
        let pass = Pass::new(self.now, me.member.as_str(), self.policy, self.strategy, &timers);
        let answer = ask(&Pass { trace: Some(&trace), ..pass }.read(&self.reading)?);
        Ok((answer, trace.take()))
    }

    /// The memory of an elector that has seen every event whose time is in the records.
    fn memory(&self) -> PhaseTimers {
        let mut timers = PhaseTimers::default();
        let Some(elected) = &self.seen.elected else { return timers };
        for (slot, named) in elected.leaders() {
            let Given { term, decided_at_ms, .. } = elected.slots[slot].given;
            let (phase, since) = match self.leader_znode(slot) {
                None => (Phase::Acquire, decided_at_ms),
                Some(c) if c.ballot != named.ballot || c.term != term => (Phase::Release, decided_at_ms),
                Some(c) if c.status == Status::Progress => (Phase::Takeover, c.since_ms),
                Some(c) => (Phase::Serving, c.ready_ms.unwrap_or(c.since_ms)),
            };
            timers.assume(slot, term, phase, Time::from_millis(since).min(self.now.time));
        }
        for slot in (0..elected.slots.len()).filter(|slot| is_vacated(elected, *slot)) {
            let Given { term, decided_at_ms, .. } = elected.slots[slot].given;
            timers.assume(slot, term, Phase::Release, Time::from_millis(decided_at_ms).min(self.now.time));
        }
        timers
    }

    /// The question that would be asked next of a slot about which nothing is asked now, once the member that is
    /// named, or about to be, leads.
    fn would_ask(&self, slot: usize, about_to_be: Option<&Named>) -> Asked {
        let ask = |pass: &Pass<'_>| {
            let question = pass.question(slot, self.now.unix_ms, Cause::LeaderLost);
            let elected = self.seen.elected.as_ref();
            match about_to_be.or_else(|| elected?.named(slot)) {
                Some(named) => drop(question.rank_elective(&named.ballot)),
                None => {
                    let cause =
                        elected.and_then(|e| e.given(slot)).map_or(Cause::Startup, |given| given.cause);
                    drop(pass.question(slot, self.now.unix_ms, cause).decide("", None));
                }
            }
        };
        let asked = self.ask(PhaseTimers::default(), ask).ok().and_then(|((), mut asked)| asked.pop());
        let cause = self.seen.elected.as_ref().map_or(Cause::Startup, |_| Cause::LeaderLost);
        asked.unwrap_or(Asked { slot, cause, ranking: Ranking::default() })
    }

    fn proposal(&self, slot: usize, act: Act) -> Option<Proposal> {
        let Act::Vacate { slot, .. } = act else { return proposal_of(slot, *act.into_decision()?) };
        let holder = self.leader_znode(slot).map_or("its holder", |c| c.member.as_str());
        let given = self.seen.elected.as_ref().and_then(|e| e.given(slot));
        let cause = given.map_or(Cause::Failover, |given| given.cause);
        let sentence = format!("the leader znode is taken from {holder}, and the next is named then");
        Some(Proposal { named: None, cause, sentence })
    }

    fn step(&self, verdict: Verdict) -> NextStep {
        let act = match verdict {
            Verdict::Wait(Wait { reason, sentence, .. }) => {
                return NextStep { acts: false, reason: reason.as_str(), sentence };
            }
            Verdict::Act(act) => act,
        };
        let (reason, sentence) = match act {
            Act::Write(next, _)
            | Act::Depose(_, next, _)
            | Act::Begin(next, ..)
            | Act::CallOff(_, next, _) => ("decides", format!("term {}: {}", next.term, next.sentence())),
            Act::Vacate { slot, .. } => {
                let sentence = self.proposal(slot, act).map(|p| p.sentence);
                ("vacates", sentence.unwrap_or_default())
            }
            Act::Answer(name, _, request) | Act::Refuse(name, _, request) => {
                let (kind, progress) = (request.kind.as_str(), request.kind.progress(&request.state));
                ("answers", format!("request {name}, {kind}: {progress}"))
            }
            Act::Trim(name) => ("trims", format!("request {name} ended long ago, and is removed")),
        };
        NextStep { acts: true, reason, sentence }
    }

    fn leader_znode(&self, slot: usize) -> Option<&'a Current> {
        self.seen.leader_znodes.get(slot)?.as_ref()
    }

    fn wall(&self, at: Time) -> u64 {
        let ahead = at.since(self.now.time).as_millis();
        self.now.unix_ms.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))
    }
}

fn proposal_of(slot: usize, next: Elected) -> Option<Proposal> {
    let Slot { named, given, .. } = next.slots.into_iter().nth(slot)?;
    Some(Proposal { named, cause: given.cause, sentence: given.sentence })
}

/// How well the end of a wait is known to a reader that has not watched it from its beginning.
const fn bound_of(reason: Reason) -> Bound {
    match reason {
        Reason::BetterAfter | Reason::StartupWait => Bound::Latest,
        Reason::MinTenure | Reason::Acquire | Reason::Release | Reason::Takeover => Bound::Earliest,
        _ => Bound::Exactly,
    }
}

impl Pass<'_> {
    /// What must be done about a slot, whether it has been decided already or not yet.
    fn look_at_either(&self, slot: usize) -> Verdict {
        match self.elected.zip(self.meta) {
            None => self.first(),
            Some((elected, meta)) if slot < elected.slots.len() => self.look_at(slot, elected, meta),
            Some((elected, _)) => self.resize(elected),
        }
    }
}

impl Seen {
    /// The same as an elector has read it that has just begun.
    fn reading(&self, policy: &Policy) -> Reading {
        // Newer than any other record.
        const ANY: Meta = Meta { version: 0, czxid: 0, mzxid: i64::MAX, owner: 0 };
        fn known<T: Clone>(record: Option<&T>, unreadable: Option<&RecordError>) -> Known<T> {
            match (record, unreadable) {
                (_, Some(error)) => Known::Unreadable(Box::new(error.clone()), ANY),
                (Some(record), None) => Known::Present(Arc::new(record.clone()), ANY),
                (None, None) => Known::Absent,
            }
        }
        let unreadable = |end: &str| self.unreadable.iter().find(|error| error.path.ends_with(end));
        let mut reading = Reading::default();
        let view = &mut reading.view;
        view.elected = known(self.elected.as_ref(), unreadable("/leader/elected"));
        let electors = view.electors_mut();
        electors.control = known(Some(&self.control), unreadable("/control"));
        electors.members = Some(self.members.clone());
        electors.requests = Some(self.requests.iter().map(|filed| (filed.clone(), ANY)).collect());
        electors.unreadable.clone_from(&self.unreadable);
        let slots = self.elected.as_ref().map_or(0, |e| e.slots.len()).max(self.leader_znodes.len());
        for slot in 0..slots.max(policy.slots.clamp(1, MAX_SLOTS)) {
            let end =
                if slot == 0 { "/leader/current".to_owned() } else { format!("/leader/current-{slot}") };
            let leader = self.leader_znodes.get(slot).and_then(Option::as_ref);
            view.see_leader_znode(slot, known(leader, unreadable(&end)), None);
        }
        reading
    }
}
