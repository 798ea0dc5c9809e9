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

/// Since when a condition has held without a break.
#[derive(Clone, Debug, Hash)]
struct Since<K, T>(Option<(K, T)>);

impl<K, T> Default for Since<K, T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq, T: Copy> Since<K, T> {
    fn note(&mut self, key: K, now: T) -> T {
        match &self.0 {
            Some((known, since)) if *known == key => *since,
            _ => {
                self.0 = Some((key, now));
                now
            }
        }
    }
}

/// The elector's memory. Each elector begins with an empty one: it grants whole timeouts, and does not guess what the
/// former elector has seen.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct PhaseTimers {
    slots: Slots<SlotTimers>,
    first_pass: Since<(), Time>,
    /// Sites without a member.
    gone: Vec<(SiteId, Time)>,
    wake: Option<Time>,
}

/// The memory of one slot. All terms in it are those in which the slot was decided, so a change of another slot
/// restarts nothing.
#[derive(Clone, Debug, Default, Hash)]
struct SlotTimers {
    phase: Option<PhaseOfTerm>,
    /// By the wall clock, since it is only reported.
    trigger: Since<(u64, &'static str), u64>,
    better: Since<(u64, Ballot), Time>,
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
        self.slot(slot).trigger.note((term, what), now.unix_ms)
    }

    /// Records that another member is better; returns for how long.
    pub(crate) fn better(&mut self, slot: usize, term: u64, ballot: &Ballot, now: Now) -> Duration {
        let since = self.slot(slot).better.note((term, ballot.clone()), now.time);
        now.time.since(since)
    }

    /// Records that no other member is better.
    pub(crate) fn no_better_candidate(&mut self, slot: usize) {
        self.slot(slot).better = Since(None);
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
        self.first_pass.note((), now.time)
    }
}
