//! Until when the session is known to be alive: times in, `valid_until` out, no I/O.
//!
//! # Why an answer proves less than it seems to
//! A server that is cut off from its ensemble answers reads and pings for a while, and the ensemble's leader, which alone
//! expires sessions, does not learn of them. So a lease is computed from *heartbeats*, quorum round trips, and even the
//! answer to a heartbeat proves nothing about the time of that heartbeat itself: the write is forwarded to the ensemble's
//! leader at once, while the message that the session was active ('touch') travels separately, with the server's next
//! answer to a ping of the leader, which pings every half a tick.
//!
//! # The rules
//! The session was alive at the leader, and its timeout began again, no earlier than
//! 1. the sending of the connect request that **made** it: the leader tracks a session from the moment at which it
//!    prepares its creation, and the answer comes only once a quorum has agreed;
//! 2. the sending of the connect request that **re-attached** it, once a heartbeat is acknowledged over that
//!    connection: the leader touches the session before it answers the server that asks for it. That answer alone
//!    proves nothing, for a deposed leader may give it; nor does a heartbeat over another connection, for a leader
//!    elected meanwhile may have begun its timers before;
//! 3. the sending of request *m*, a heartbeat or a *probe* (a read, which the server answers by itself), once heartbeat
//!    *n* is acknowledged that went over the same connection and was sent at least **one tick after *m* had been
//!    answered**. Each request touches its session at the server, whatever it asks for. Between the arrival of *m* and
//!    that of *n* at the server lies an answer to the leader's ping, which went ahead of *n* on the same ordered
//!    connection. Half a tick would be enough if pings were never late. Over another connection *n* proves nothing of
//!    *m*: a session that moves has asked the next server before it leaves the last one, so *m* may be later than that,
//!    and its touch may not have left the last one.
//!
//! Hence, with the latest such moment: `valid_until = moment + granted timeout − margin`.
//!
//! A session without a lease sends probes as often as it would send heartbeats. So it has a lease after one round trip,
//! at any time: its first heartbeat proves a probe, or the connect request of a younger connection.
//!
//! # Clocks
//! The margin covers clocks that drift. Where this machine's clock is slewed while the lease runs, which is checked sixteen
//! times in a session timeout, the lease is shortened by as much. A suspend hides the slew since the check before it, which
//! the margin covers, and nothing of what was found earlier. Assumed: this machine's clock and the servers' differ in rate
//! by no more than the margin, 1 %, and no hypervisor stops this machine, which its clocks need not show.
//!
//! # Not covered
//! Servers behind an observer master (`zookeeper.observerMasterPort`): a touch takes two hops there, each with a ping.

use std::collections::VecDeque;
use std::time::Duration;

use crate::node::Epoch;
use crate::time::{BootTime, Moment};

/// A shorter session timeout leaves no time for a lease after its margin and a heartbeat.
pub(crate) const SHORTEST: Duration = Duration::from_millis(300);

/// Until when the session of an epoch is known to be alive.
///
/// A lease only ever proves something about the time before [`valid_until`](Self::valid_until): compare it with the clock
/// at each use, because no event announces its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// The session it is about.
    pub epoch: Epoch,
    /// ZooKeeper does not expire the session before this moment.
    pub valid_until: BootTime,
}

impl Lease {
    /// A lease that was not proved by heartbeats, for tests of code that takes leases.
    pub const fn new(epoch: Epoch, valid_until: BootTime) -> Self {
        Self { epoch, valid_until }
    }

    /// Whether the session is known to be alive at `now`.
    pub fn is_valid_at(&self, now: BootTime) -> bool {
        now < self.valid_until
    }
}

/// What covers the drift of this machine's clock against the servers': 1 % of the session timeout, at least 100 ms.
/// Clocks that are slewed further are compared.
pub fn lease_margin(granted_timeout: Duration) -> Duration {
    (granted_timeout / 100).max(Duration::from_millis(100))
}

/// The times of a session's heartbeats and leases, for code that must have ended before its lease does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Asked for or granted.
    pub session_timeout: Duration,
    /// The servers' tickTime.
    pub tick_time: Duration,
}

impl LeaseTiming {
    /// The assumed time of a quorum round trip.
    pub const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// How often the session sends a heartbeat while a lease is kept, and a probe otherwise: four times in a session
    /// timeout. Eight times if two of those lie within a tick and a round trip, because each heartbeat then proves one that
    /// is several intervals older.
    pub fn heartbeat_interval(&self) -> Duration {
        let quarter = self.session_timeout / 4;
        if quarter < self.tick_time.saturating_add(Self::ROUND_TRIP) { quarter / 2 } else { quarter }
    }

    /// How much older than the latest heartbeat the one is that it proves: as many intervals as a tick and a round trip
    /// take.
    pub fn proving_time(&self) -> Duration {
        let heartbeat = self.heartbeat_interval();
        let longest = self.tick_time.saturating_add(Self::ROUND_TRIP);
        let heartbeats = longest.as_nanos().div_ceil(heartbeat.as_nanos().max(1));
        heartbeat.saturating_mul(u32::try_from(heartbeats).unwrap_or(u32::MAX))
    }

    /// How much is left of a lease at least while heartbeats and probes are answered within a round trip (in the first
    /// interval of a lease: until the next heartbeat is sent). This is what work that has to end with the lease may need
    /// for that. Zero where the session timeout is too short for the servers' ticks.
    pub fn shortest_lease(&self) -> Duration {
        let answered = self.proving_time().saturating_add(Self::ROUND_TRIP);
        let spent = self.heartbeat_interval().saturating_add(answered);
        self.session_timeout.saturating_sub(lease_margin(self.session_timeout)).saturating_sub(spent)
    }
}

/// How often the clocks are compared while a lease is kept.
pub(crate) fn clock_interval(granted_timeout: Duration) -> Duration {
    granted_timeout / 16
}

/// A heartbeat or a probe that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) sent: Moment,
    pub(crate) at: BootTime,
    /// When the connect request was sent of the connection that it went over, or of an earlier one. It identifies the
    /// connection: a session sends one connect request after the other.
    pub(crate) attached: Moment,
    /// The session may have moved to another connection between the sending and the answer.
    pub(crate) moved: bool,
}

/// What is proved of one session, and what its next heartbeat can prove.
#[derive(Debug)]
pub(crate) struct LeaseHistory {
    pub(crate) timing: LeaseTiming,
    /// The latest moment at which the session is proved to have been alive.
    alive: Moment,
    /// What was answered over the present connection and is not proved yet, in the order of sending: of about one tick.
    unproved: VecDeque<Answered>,
    /// When the clocks were compared, in a session timeout up to the last time. A lease on what is older has run out.
    compared: VecDeque<Moment>,
}

impl LeaseHistory {
    /// Of a session that is proved to have been alive at that moment: it was made or re-attached then.
    pub(crate) fn new(timing: LeaseTiming, alive: Moment) -> Self {
        Self { timing, alive, unproved: VecDeque::new(), compared: VecDeque::from([alive]) }
    }

    /// Records heartbeats and probes in the order in which they were sent.
    pub(crate) fn heartbeat(&mut self, heartbeat: Answered) {
        self.leave_another_connection(&heartbeat);
        let mut alive = heartbeat.attached;
        if let Some(latest) = self.latest_before(&heartbeat) {
            alive = later(alive, self.unproved[latest].sent);
            self.unproved.drain(..=latest);
        }
        self.alive = later(self.alive, alive);
        self.record(heartbeat);
    }

    /// The same for a probe, which proves nothing.
    pub(crate) fn probe(&mut self, probe: Answered) {
        self.leave_another_connection(&probe);
        // The next heartbeat is sent later than this, and proves the latest that is old enough.
        if let Some(latest) = self.latest_before(&probe) {
            self.unproved.drain(..latest);
        }
        self.record(probe);
    }

    fn leave_another_connection(&mut self, next: &Answered) {
        if next.moved || self.unproved.back().is_some_and(|last| last.attached != next.attached) {
            self.unproved.clear();
        }
    }

    /// The latest that a heartbeat proves which is sent with `request`.
    fn latest_before(&self, request: &Answered) -> Option<usize> {
        self.unproved.iter().rposition(|earlier| earlier.at + self.timing.tick_time <= request.sent.boot)
    }

    fn record(&mut self, answered: Answered) {
        self.compare(answered.sent);
        if !answered.moved {
            self.unproved.push_back(answered);
        }
    }

    /// When the clocks are to be compared again.
    pub(crate) fn comparison_due(&self) -> BootTime {
        let last = self.compared.back().unwrap_or(&self.alive);
        last.boot + clock_interval(self.timing.session_timeout)
    }

    /// Compares the clocks if it is time for that. Not more often: each comparison may count the time between the readings of
    /// the two clocks as slew.
    pub(crate) fn compare(&mut self, now: Moment) {
        if now.boot < self.comparison_due() {
            return;
        }
        self.compared.push_back(now);
        let is_needed = |compared: &Moment| compared.boot + self.timing.session_timeout >= now.boot;
        self.compared.retain(is_needed);
    }

    /// Until when the session is known to be alive, as the clocks have run so far.
    pub(crate) fn valid_until(&self, now: Moment) -> BootTime {
        // A session timeout below the margin proves nothing.
        let span = self.timing.session_timeout.saturating_sub(lease_margin(self.timing.session_timeout));
        // A suspend within one of the intervals must not undo the slew of another.
        let later = self.compared.iter().filter(|compared| compared.boot > self.alive.boot);
        let (mut slewed, mut last) = (Duration::ZERO, self.alive);
        for next in later.chain([&now]) {
            slewed += next.slewed_since(last);
            last = *next;
        }
        self.alive.boot + span.saturating_sub(slewed)
    }

    /// When the next heartbeat is due that follows one sent at `last_sent`: after a heartbeat interval, or earlier if less
    /// than the [shortest lease](LeaseTiming::shortest_lease) would be left by then, and an earlier one proves more.
    pub(crate) fn next_heartbeat(&self, last_sent: BootTime, now: Moment) -> BootTime {
        let regular = last_sent + self.timing.heartbeat_interval();
        let is_late =
            self.valid_until(now) < regular + LeaseTiming::ROUND_TRIP + self.timing.shortest_lease();
        let proves = self.unproved.front().map(|first| first.at + self.timing.tick_time);
        match proves {
            Some(proves) if is_late && proves > last_sent => regular.min(proves),
            _ => regular,
        }
    }
}

fn later(one: Moment, other: Moment) -> Moment {
    if other.boot > one.boot { other } else { one }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRANTED: Duration = Duration::from_secs(10);
    const TICK: Duration = Duration::from_secs(2);
    /// Of the leases; their margin is 100 ms.
    const SPAN: u64 = 9900;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    /// Both clocks run alike.
    fn moment(ms: u64) -> Moment {
        Moment::at(at(ms), Duration::from_millis(ms))
    }

    fn answered(sent: u64, answered: u64) -> Answered {
        Answered { sent: moment(sent), at: at(answered), attached: moment(0), moved: false }
    }

    fn history() -> LeaseHistory {
        LeaseHistory::new(LeaseTiming { session_timeout: GRANTED, tick_time: TICK }, moment(0))
    }

    #[test]
    fn what_the_last_of_several_heartbeats_proves() {
        // When each was sent and acknowledged, and at which moment the session is proved to have been alive. It was
        // made at 0.
        for (heartbeats, alive) in [
            // Alone, or less than a tick after the one before, it proves nothing new.
            (&[][..], 0),
            (&[(1000, 1001)], 0),
            (&[(1000, 1001), (3000, 3001)], 0),
            // A tick after the earlier one was acknowledged it proves that, from its sending.
            (&[(1000, 1001), (3001, 3002)], 1000),
            // The latest that is old enough counts.
            (&[(10, 11), (1000, 1001), (2500, 2501), (4500, 4501)], 1000),
            (&[(10, 11), (1000, 1001), (2500, 2501), (4500, 4501), (4501, 4502)], 2500),
            // Held up on its way for 1.9 s: its touch may not have travelled when the next heartbeat went out.
            (&[(100, 2000), (2101, 2102)], 0),
            (&[(100, 2000), (2101, 2102), (3999, 4000)], 0),
            (&[(100, 2000), (2101, 2102), (4000, 4001)], 100),
            // It never goes back.
            (&[(1000, 1001), (3001, 3002), (3100, 9000)], 1000),
        ] {
            let mut history = history();
            for (sent, acknowledged) in heartbeats {
                history.heartbeat(answered(*sent, *acknowledged));
            }
            assert_eq!(history.valid_until(moment(9000)), at(alive + SPAN), "{heartbeats:?}");
        }
    }

    /// The session has asked the next server at 5 s, and moves there after a heartbeat that it sent at 6 s by the last
    /// one, which is cut off by then.
    #[test]
    fn a_heartbeat_over_another_connection_proves_its_connect_request_and_nothing_of_those_before() {
        let mut history = history();
        history.heartbeat(answered(6000, 6001));
        history.heartbeat(Answered { attached: moment(5000), ..answered(9000, 9001) });
        assert_eq!(history.valid_until(moment(9001)), at(5000 + SPAN));
        // It went over this connection or a later one.
        history.heartbeat(Answered { attached: moment(7000), moved: true, ..answered(12_000, 12_001) });
        assert_eq!(history.valid_until(moment(12_001)), at(7000 + SPAN));
    }

    #[test]
    fn the_margin_is_a_hundredth_and_no_less_than_a_tenth_of_a_second() {
        assert_eq!(lease_margin(Duration::from_secs(4)), Duration::from_millis(100));
        assert_eq!(lease_margin(Duration::from_secs(60)), Duration::from_millis(600));
    }

    #[test]
    fn the_first_heartbeat_of_a_session_that_was_probed_gives_a_lease_at_once() {
        let mut history = history();
        for sent in [20_000, 22_500, 25_000, 27_500] {
            history.probe(answered(sent, sent + 1));
        }
        assert_eq!(history.valid_until(moment(28_000)), at(SPAN), "a probe proves nothing");
        assert_eq!(history.unproved.len(), 2, "no more than a heartbeat can need");
        history.heartbeat(answered(28_000, 28_001));
        assert_eq!(history.valid_until(moment(28_001)), at(25_000 + SPAN));
    }

    #[test]
    fn a_timeout_below_the_margin_gives_a_lease_that_is_never_valid() {
        let timing =
            LeaseTiming { session_timeout: Duration::from_millis(50), tick_time: Duration::from_millis(10) };
        let history = LeaseHistory::new(timing, moment(1000));
        assert!(!Lease::new(Epoch(1), history.valid_until(moment(1000))).is_valid_at(at(1000)));
    }

    #[test]
    fn a_clock_that_is_slewed_shortens_the_lease_and_a_suspended_machine_does_not_lengthen_it() {
        let history = history();
        // 4.6 s have passed, and the clock shows 4.2.
        let slow = Moment::at(at(4200), Duration::from_millis(4600));
        assert_eq!(history.valid_until(slow), at(SPAN - 400));
        // It ran too fast, or the machine was suspended for a second: the time that it shows has passed.
        let fast = Moment::at(at(5000), Duration::from_millis(4000));
        assert_eq!(history.valid_until(fast), at(SPAN));
    }

    #[test]
    fn a_suspend_does_not_undo_the_slew_before_it() {
        let mut history = history();
        // By the hardware's clock 6 s, in which the clock is slewed by half a second; then a suspend of 3 s.
        let slow = |raw: u64| Moment::at(at(raw * 11 / 12), Duration::from_millis(raw));
        for raw in (0..=6000).step_by(100) {
            history.compare(slow(raw));
        }
        assert_eq!(history.valid_until(slow(6000)), at(SPAN - 500));
        let woken = Moment::at(at(5500 + 3000), Duration::from_millis(6000));
        let hidden = 100;
        assert!(history.valid_until(woken) <= at(SPAN - 500 + hidden), "{:?}", history.valid_until(woken));
        history.compare(woken);
        assert!(history.compared.len() < 20, "no more than a lease can need");
    }

    #[test]
    fn a_lease_that_has_run_out_is_not_kept_waiting_for_a_whole_interval() {
        let mut history = history();
        history.heartbeat(answered(20_000, 20_001));
        assert_eq!(history.next_heartbeat(at(20_000), moment(20_001)), at(22_001));
        history.heartbeat(answered(22_001, 22_002));
        assert_eq!(history.next_heartbeat(at(22_001), moment(22_002)), at(24_501));
    }

    #[test]
    fn the_shortest_session_that_servers_grant_by_default_leaves_a_lease() {
        let shortest = |session_timeout| LeaseTiming { session_timeout, tick_time: TICK }.shortest_lease();
        assert_eq!(shortest(TICK * 2), Duration::from_millis(800));
        assert_eq!(shortest(GRANTED), Duration::from_millis(4800));
        assert_eq!(shortest(TICK), Duration::ZERO);
        let endless = LeaseTiming { session_timeout: Duration::MAX, tick_time: Duration::MAX };
        assert_eq!(endless.shortest_lease(), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_lease_is_never_shorter_than_said_while_heartbeats_are_answered_in_time(
            session_timeout in 1000u64..60_000,
            tick_time in 100u64..3000,
            round_trips in prop::collection::vec(0u64..=100, 40),
        ) {
            let [session_timeout, tick_time] = [session_timeout, tick_time].map(Duration::from_millis);
            let timing = LeaseTiming { session_timeout, tick_time };
            let mut history = LeaseHistory::new(timing, moment(0));
            let mut sent = at(0);
            for round_trip in round_trips {
                let answered = sent + Duration::from_millis(round_trip);
                let before = Moment::at(answered, answered.as_duration());
                let left = history.valid_until(before).duration_since(answered);
                prop_assert!(left >= timing.shortest_lease(), "{:?} of {:?} with {:?}", left, timing.shortest_lease(), timing);
                let sending = Moment::at(sent, sent.as_duration());
                history.heartbeat(Answered { sent: sending, at: answered, attached: moment(0), moved: false });
                sent = history.next_heartbeat(sent, before).max(answered);
            }
        }

        /// Probes first, then heartbeats, from any moment on.
        #[test]
        fn the_first_lease_of_a_session_that_was_probed_is_as_long(
            session_timeout in 1000u64..60_000,
            tick_time in 100u64..3000,
            probes in prop::collection::vec(0u64..=100, 0..20),
            wanted_after in 0.0..=1.0,
            heartbeats in prop::collection::vec(0u64..=100, 20),
        ) {
            let [session_timeout, tick_time] = [session_timeout, tick_time].map(Duration::from_millis);
            let timing = LeaseTiming { session_timeout, tick_time };
            let answered = |sent: BootTime, round_trip| {
                let at = sent + Duration::from_millis(round_trip);
                let sent = Moment::at(sent, sent.as_duration());
                Answered { sent, at, attached: moment(0), moved: false }
            };
            let mut history = LeaseHistory::new(timing, moment(0));
            let mut sent = at(0);
            let last = probes.len().saturating_sub(1);
            for (nth, round_trip) in probes.into_iter().enumerate() {
                let probe = answered(sent, round_trip);
                history.probe(probe);
                let wait = timing.heartbeat_interval().mul_f64(if nth < last { 1.0 } else { wanted_after });
                sent = (sent + wait).max(probe.at);
            }
            for round_trip in heartbeats {
                let heartbeat = answered(sent, round_trip);
                history.heartbeat(heartbeat);
                // Before the next one proves more.
                sent = history.next_heartbeat(sent, moment(0)).max(heartbeat.at);
                let left = history.valid_until(Moment::at(sent, sent.as_duration())).duration_since(sent);
                let shortest = timing.shortest_lease();
                prop_assert!(left >= shortest, "{:?} of {:?} with {:?}", left, shortest, timing);
            }
        }

        /// Against the rule, written down naively over the whole history, and against what a leader of an ensemble may
        /// know at the worst: no touch reaches it after the last acknowledged heartbeat, and its pings come up to a
        /// tick apart. Of a probe it learns by pings alone.
        #[test]
        fn no_lease_outlives_the_session_at_the_leader(
            steps in prop::collection::vec(
                (1u64..3000, 0u64..3000, 0u64..=100, prop::bool::weighted(0.2), prop::bool::ANY),
                1..40,
            ),
            gaps in prop::collection::vec(1u64..=2000, 400),
        ) {
            // When a server has answered a ping, with all touches up to then.
            let pings: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut history = history();
            let (mut now, mut attached) = (0, 0);
            // The leader knows of the creation from its sending on, at the earliest.
            let (mut touched_at_leader, mut touched_at_server) = (0, Vec::new());
            // Over the present connection: when they were sent and acknowledged.
            let (mut requests, mut alive): (Vec<(u64, u64)>, _) = (Vec::new(), 0);
            for (pause, round_trip, arrives, moves, quorum) in steps {
                // Later than any connect request before it: the time of the request identifies the connection.
                let asked = now + pause.div_ceil(2);
                let sent = now + pause;
                let arrived = sent + round_trip * arrives / 100;
                touched_at_server.push(arrived);
                now = sent + round_trip;
                let request = Answered { attached: moment(attached), ..answered(sent, now) };
                if quorum {
                    let told = pings.iter().rev().find(|ping| **ping <= arrived).copied().unwrap_or(0);
                    let known = touched_at_server.iter().filter(|touch| **touch <= told).max().copied();
                    touched_at_leader = touched_at_leader.max(known.unwrap_or(0));
                    history.heartbeat(request);
                    let proved = requests.iter().filter(|(_, at)| at + 2000 <= sent).map(|(sent, _)| *sent).max();
                    alive = alive.max(attached).max(proved.unwrap_or(0));
                } else {
                    history.probe(request);
                }
                requests.push((sent, now));
                prop_assert_eq!(history.valid_until(moment(now)), at(alive + SPAN));
                let expires = at(touched_at_leader + 10_000);
                prop_assert!(history.valid_until(moment(now)) < expires, "{:?} and {:?}", history, expires);
                if moves {
                    // To a server that was asked before this heartbeat was sent by the last one, which is cut off now.
                    attached = asked;
                    touched_at_leader = touched_at_leader.max(asked);
                    touched_at_server.clear();
                    requests.clear();
                }
            }
        }
    }
}
