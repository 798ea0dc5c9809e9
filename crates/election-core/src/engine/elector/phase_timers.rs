//! The elector's memory: what it has been waiting for, and since when.
//!
//! The published algorithm has one timer for a whole takeover, which excludes the new leader when the old one is at
//! fault. Here each phase has its own timer. The new leader's timer runs only while the leader znode is free or its
//! own.

use std::time::Duration;

use crate::{
    ids::{Ballot, SiteId},
    slots::Slots,
    time::{Now, Time},
};

/// What an elector waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The leader is lost, and the first in line is to step in.
    Succession,
    /// The old leader holds the leader znode.
    Release,
    /// The leader znode is free, and the member that is named has not created it.
    Acquire,
    /// The named member holds it in PROGRESS.
    Takeover,
    /// It is READY.
    Serving,
}

/// The elector's memory. Each elector begins with an empty one: it grants whole timeouts, and does not guess what the
/// former elector has seen.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct PhaseTimers {
    slots: Slots<SlotTimers>,
    first_pass: Option<Time>,
    /// Sites without a member.
    gone: Vec<(SiteId, Time)>,
    wake: Option<Time>,
}

/// The memory of one slot. All terms in it are those in which the slot was decided, so a change of another slot
/// restarts nothing.
#[derive(Clone, Debug, Default, Hash)]
struct SlotTimers {
    phase: Option<PhaseOfTerm>,
    /// What is to be decided in which term, and when that was noticed: by the wall clock, since it is only reported.
    trigger: Option<(u64, &'static str, u64)>,
    /// The members that are better than the leader of this term, each since when.
    better: (u64, Vec<(Ballot, Time)>),
}

/// The phase of a term, and how long the earlier phases of that term have taken. A candidate that repeatedly creates
/// and deletes its leader znode gets no more time than one that does neither.
#[derive(Clone, Debug, Hash)]
struct PhaseOfTerm {
    term: u64,
    phase: Phase,
    since: Time,
    spent: Vec<(Phase, Duration)>,
}

impl PhaseTimers {
    /// Sets since when a slot has been in this phase, according to the znodes: for a member that has not watched it.
    pub(crate) fn assume(&mut self, slot: usize, term: u64, phase: Phase, since: Time) {
        self.slot(slot).phase = Some(PhaseOfTerm { term, phase, since, spent: Vec::new() });
    }

    /// Begins a pass.
    pub(crate) fn begin(&mut self) {
        self.wake = None;
    }

    /// When the pass should be repeated even if nothing happens.
    pub(crate) fn wake(&self) -> Option<Time> {
        self.wake
    }

    /// Asks for another pass at `at`.
    pub(crate) fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |known| known.min(at)));
    }

    fn slot(&mut self, slot: usize) -> &mut SlotTimers {
        self.slots.grow(slot + 1);
        &mut self.slots[slot]
    }

    /// Records that the term of a slot is in this phase. Returns how long it has been in it altogether, and asks to
    /// be woken when `limit` is over.
    pub(crate) fn phase(
        &mut self,
        slot: usize,
        term: u64,
        phase: Phase,
        limit: Option<Duration>,
        now: Now,
    ) -> Duration {
        let known = self.slot(slot).phase.take().filter(|known| known.term == term);
        let mut current = known.unwrap_or(PhaseOfTerm { term, phase, since: now.time, spent: Vec::new() });
        if current.phase != phase {
            let took = now.time.since(current.since);
            match current.spent.iter_mut().find(|(known, _)| *known == current.phase) {
                Some((_, spent)) => *spent += took,
                None => current.spent.push((current.phase, took)),
            }
            current.phase = phase;
            current.since = now.time;
        }
        if phase == Phase::Serving {
            current.spent.clear();
        }
        let before: Duration = current.spent.iter().filter(|(p, _)| *p == phase).map(|(_, took)| *took).sum();
        let took = before + now.time.since(current.since);
        if let Some(limit) = limit.filter(|limit| *limit > took) {
            self.wake_at(now.time + (limit - took));
        }
        self.slot(slot).phase = Some(current);
        took
    }

    /// Records that there is something to decide in `term`; returns when that was first noticed.
    pub(crate) fn noticed(&mut self, slot: usize, term: u64, what: &'static str, now: Now) -> u64 {
        let trigger = &mut self.slot(slot).trigger;
        let known = trigger.filter(|(of_term, known, _)| (*of_term, *known) == (term, what));
        trigger.insert(known.unwrap_or((term, what, now.unix_ms))).2
    }

    /// Records which members are better than the leader of this term, the best first; returns for how long the best one has
    /// been. Its time goes on while another one is the best for a moment.
    pub(crate) fn better<'a>(
        &mut self,
        slot: usize,
        term: u64,
        members: impl Iterator<Item = &'a Ballot>,
        now: Now,
    ) -> Duration {
        let (of_term, known) = std::mem::take(&mut self.slot(slot).better);
        let since = |ballot: &Ballot| {
            let known = known.iter().filter(|_| of_term == term).find(|(known, _)| known == ballot);
            known.map_or(now.time, |(_, since)| *since)
        };
        let better: Vec<_> = members.map(|ballot| (ballot.clone(), since(ballot))).collect();
        let best = better.first().map_or(now.time, |(_, since)| *since);
        self.slot(slot).better = (term, better);
        now.time.since(best)
    }

    /// Records that no other member is better.
    pub(crate) fn no_better_candidate(&mut self, slot: usize) {
        self.slot(slot).better = Default::default();
    }

    /// Records that these sites have no member; returns since when each of them has had none.
    pub(crate) fn gone(&mut self, sites: Vec<SiteId>, now: Now) -> Vec<(SiteId, Time)> {
        let since =
            |site: &SiteId| self.gone.iter().find(|(known, _)| known == site).map(|(_, since)| *since);
        let gone = sites.into_iter().map(|site| (site.clone(), since(&site).unwrap_or(now.time)));
        let gone: Vec<_> = gone.collect();
        self.gone.clone_from(&gone);
        gone
    }

    /// When this elector made its first pass.
    pub(crate) fn first_pass(&mut self, now: Now) -> Time {
        *self.first_pass.get_or_insert(now.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_better_member_goes_on_while_another_one_is_the_best() {
        let [a, b, c] =
            ["x-0000000001", "x-0000000002", "x-0000000003"].map(|ballot| Ballot::new(ballot).unwrap());
        let mut timers = PhaseTimers::default();
        let mut better = |second, term, members: &[&Ballot]| {
            let span = Duration::from_secs(second);
            let now = Now { time: Time::ZERO + span, unix_ms: 1000 * second };
            timers.better(0, term, members.iter().copied(), now).as_secs()
        };
        assert_eq!(better(0, 1, &[&a, &b]), 0);
        assert_eq!(better(10, 1, &[&b, &a]), 10);
        assert_eq!(better(11, 1, &[&c, &b, &a]), 0, "it has just become better");
        assert_eq!(better(20, 1, &[&b]), 20);
        assert_eq!(better(21, 1, &[&a, &b]), 0, "it was not better without a break");
        assert_eq!(better(22, 2, &[&b]), 0, "another term");
    }
}
