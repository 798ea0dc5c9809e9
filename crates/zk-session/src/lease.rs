//! Until when this process may believe that its session is alive: times in, `valid_until` out, no I/O.
//!
//! # Why an answer proves less than it seems to
//! A server that has been cut off from its ensemble goes on answering reads and pings for a while, and the ensemble's
//! leader, which alone expires sessions, hears nothing of them. So a lease is computed from *beats*, quorum round trips,
//! and even the answer to a beat proves nothing about the time of that beat itself: the write is forwarded to the
//! ensemble's leader at once, while the note that the session was heard of ('touch') travels separately, with the
//! server's next answer to the leader's ping, half a tick later at most.
//!
//! # The rule
//! When beat *n* is acknowledged, the leader has processed the touch of every beat *m* that
//! 1. was **sent** at least one tick before *n* was sent, and
//! 2. was **acknowledged** at least half a tick before *n* was sent.
//!
//! The second condition is about a beat that was long on its way: sent early, it may have reached the server together
//! with *n*, and then its touch has not travelled yet. Between the arrival of *m* and that of *n* lies a ping of the
//! leader, whose answer went ahead of *n* on the same ordered connection. Where *n* went by another server than *m*,
//! moving the session there has touched it at the leader, later than *m*.
//!
//! Hence, with the latest such *m*: `valid_until = (time m was sent) + granted timeout − margin`. The time is taken
//! before the beat is sent, so the touch can only be later. The margin covers clocks that do not run alike.

use std::collections::VecDeque;
use std::time::Duration;

use crate::node::Epoch;
use crate::time::BootTime;

/// Until when the session of an epoch is known to be alive.
///
/// A lease only ever proves something about the time before [`valid_until`](Self::valid_until): compare it with the
/// clock at each use, for no event announces its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The session it is about.
    pub epoch: Epoch,
    /// ZooKeeper does not expire the session before this moment.
    pub valid_until: BootTime,
}

impl Lease {
    /// A lease that was not proved by beats, for tests of code that takes leases.
    pub const fn new(epoch: Epoch, valid_until: BootTime) -> Self {
        Self { epoch, valid_until }
    }

    /// Whether the session is known to be alive at `now`.
    pub fn is_valid_at(&self, now: BootTime) -> bool {
        now < self.valid_until
    }

    /// How much longer it is known to be alive, zero once that is not known any more.
    pub fn remaining_at(&self, now: BootTime) -> Duration {
        self.valid_until.duration_since(now)
    }
}

/// What covers the drift of this machine's clock against the servers': 1 % of the session timeout, at least 100 ms.
pub fn lease_margin(granted_timeout: Duration) -> Duration {
    (granted_timeout / 100).max(Duration::from_millis(100))
}

/// How often the session beats while somebody needs a lease: four times in a session timeout.
pub fn beat_interval(granted_timeout: Duration) -> Duration {
    granted_timeout / 4
}

/// A beat that was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: BootTime,
    acknowledged: BootTime,
}

/// The history of beats of one session, as far as it can still matter.
#[derive(Debug)]
pub(crate) struct LeaseHistory {
    granted: Duration,
    tick: Duration,
    /// In the order of sending; the ages differ by at least a part of the beat interval, so there are few.
    beats: VecDeque<Beat>,
    valid_until: Option<BootTime>,
}

impl LeaseHistory {
    pub(crate) fn new(granted: Duration, tick: Duration) -> Self {
        Self { granted, tick, beats: VecDeque::new(), valid_until: None }
    }

    /// Beat *n*, sent at `sent`, has been acknowledged at `acknowledged`. Answers until when the session is known to be
    /// alive, which never goes back. Beats are told in the order in which they were sent.
    pub(crate) fn acknowledged(&mut self, sent: BootTime, acknowledged: BootTime) -> Option<BootTime> {
        let proved = |beat: &Beat| beat.sent + self.tick <= sent && beat.acknowledged + self.tick / 2 <= sent;
        if let Some(latest) = self.beats.iter().rposition(proved) {
            // Older ones can prove nothing more: whatever comes next proves this one too.
            self.beats.drain(..latest);
            let margin = lease_margin(self.granted);
            // A session timeout below the margin proves nothing.
            let until = self.beats[0].sent + self.granted.saturating_sub(margin);
            self.valid_until = self.valid_until.max(Some(until));
        }
        self.beats.push_back(Beat { sent, acknowledged });
        self.valid_until
    }

    /// When the next beat is due that follows one sent at `last_sent`: after a beat interval, or earlier if an earlier
    /// one gives the first lease.
    pub(crate) fn next_beat(&self, last_sent: BootTime) -> BootTime {
        let regular = last_sent + beat_interval(self.granted);
        match (self.valid_until, self.beats.front()) {
            (None, Some(first)) => {
                let proves = (first.sent + self.tick).max(first.acknowledged + self.tick / 2);
                if proves > last_sent { regular.min(proves) } else { regular }
            }
            _ => regular,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRANTED: Duration = Duration::from_secs(10);
    const TICK: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    fn history() -> LeaseHistory {
        LeaseHistory::new(GRANTED, TICK)
    }

    #[test]
    fn one_beat_proves_nothing() {
        assert_eq!(history().acknowledged(at(1000), at(1001)), None);
    }

    #[test]
    fn a_pair_less_than_a_tick_apart_proves_nothing() {
        let mut history = history();
        history.acknowledged(at(1000), at(1001));
        assert_eq!(history.acknowledged(at(2999), at(3000)), None);
    }

    #[test]
    fn a_pair_a_tick_apart_proves_the_earlier_beat_from_its_sending() {
        let mut history = history();
        history.acknowledged(at(1000), at(1001));
        let margin = 100;
        assert_eq!(history.acknowledged(at(3000), at(3001)), Some(at(1000 + 10_000 - margin)));
    }

    #[test]
    fn the_latest_beat_that_is_old_enough_counts() {
        let mut history = history();
        for sent in [0, 1000, 2500] {
            history.acknowledged(at(sent), at(sent + 1));
        }
        assert_eq!(history.acknowledged(at(4499), at(4500)), Some(at(1000 + 9900)));
        assert_eq!(history.acknowledged(at(4500), at(4501)), Some(at(2500 + 9900)));
    }

    #[test]
    fn a_beat_that_arrived_with_the_next_one_proves_nothing() {
        let mut history = history();
        // Held up on its way for 1.9 s: its touch may not have travelled when the next beat went out.
        history.acknowledged(at(0), at(1900));
        assert_eq!(history.acknowledged(at(2000), at(2001)), None);
        // Half a tick after its answer it has.
        assert_eq!(history.acknowledged(at(2900), at(2901)), Some(at(9900)));
    }

    #[test]
    fn a_lease_never_shrinks() {
        let mut history = history();
        history.acknowledged(at(0), at(1));
        let first = history.acknowledged(at(2000), at(2001));
        assert_eq!(history.acknowledged(at(2100), at(9000)), first);
    }

    #[test]
    fn the_margin_is_a_hundredth_and_no_less_than_a_tenth_of_a_second() {
        assert_eq!(lease_margin(Duration::from_secs(4)), Duration::from_millis(100));
        assert_eq!(lease_margin(Duration::from_secs(60)), Duration::from_millis(600));
    }

    #[test]
    fn a_timeout_below_the_margin_gives_a_lease_that_is_never_valid() {
        let mut history = LeaseHistory::new(Duration::from_millis(50), Duration::from_millis(10));
        history.acknowledged(at(1000), at(1001));
        let until = history.acknowledged(at(1020), at(1021)).unwrap();
        assert!(!Lease::new(Epoch(1), until).is_valid_at(at(1021)));
    }

    #[test]
    fn the_first_lease_is_not_kept_waiting_for_a_whole_interval() {
        let mut history = history();
        history.acknowledged(at(0), at(1));
        assert_eq!(history.next_beat(at(0)), at(2000));
        history.acknowledged(at(2000), at(2001));
        assert_eq!(history.next_beat(at(2000)), at(4500));
    }

    #[test]
    fn where_a_tick_is_longer_than_the_interval_beats_stay_regular() {
        let mut history = LeaseHistory::new(Duration::from_secs(4), TICK);
        history.acknowledged(at(0), at(1));
        assert_eq!(history.next_beat(at(0)), at(1000));
        history.acknowledged(at(1000), at(1001));
        assert_eq!(history.next_beat(at(1000)), at(2000));
        assert_eq!(history.acknowledged(at(2000), at(2001)), Some(at(3900)));
    }

    proptest! {
        /// Against the rule, written down naively over the whole history.
        #[test]
        fn the_history_forgets_nothing_that_matters(steps in prop::collection::vec((1u64..3000, 0u64..3000), 1..40)) {
            let mut history = history();
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            let mut expected: Option<u64> = None;
            for (pause, round_trip) in steps {
                let sent = now + pause;
                let acknowledged = sent + round_trip;
                now = acknowledged;
                let proved = all.iter().filter(|(s, a)| s + 2000 <= sent && a + 1000 <= sent).map(|(s, _)| s + 9900).max();
                expected = expected.max(proved);
                all.push((sent, acknowledged));
                prop_assert_eq!(history.acknowledged(at(sent), at(acknowledged)), expected.map(at));
            }
        }
    }
}
