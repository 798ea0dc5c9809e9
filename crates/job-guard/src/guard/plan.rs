//! When the guard sends the stop signal, and when SIGKILL. Pure: time is an argument.
//!
//! ```text
//!            stop order, worker gone,
//!            lease near its end, job exited         kill time reached
//!  Working ─────────────────────────────▶ Stopping ─────────────────▶ Killing
//!     └────────────────────────────────────────────────────────────────▲
//!                 no time left to ask (a frozen guard that wakes late)
//! ```
//!
//! No transition leads back: a renewal after the stop signal does not keep a half-stopped job.
//!
//! A job that freezes is not asked to end for its lease. Its processes are stopped, and continue if the worker confirms the
//! leadership in time:
//!
//! ```text
//!            the worker suspends it, or
//!            the lease is near its end                 stop order, worker gone, kill time reached
//!  Working ─────────────────────────────▶ Frozen ──────────────────────────────────────────────▶ Killing
//!     ◀─────────────────────────────────────┘
//!      neither of the two holds any more
//! ```
//!
//! A frozen job is killed without the stop signal, which would take effect only if it continued.

use std::time::Duration;

use boot_time::BootTime;

use super::protocol::Why;
use crate::config::KILL_RESERVE;

/// When SIGKILL is sent for a stop that began at `began`, at the latest: after the time that it is given, and early enough that
/// the job is gone `by`, if that is asked for.
pub(crate) fn kill_at(began: BootTime, given: Duration, by: Option<BootTime>) -> BootTime {
    let after = began + given;
    by.map_or(after, |by| after.min(last_kill(by)))
}

/// When SIGKILL is sent at the latest, for the job to be gone at `end`, such as the end of its lease.
pub(crate) fn last_kill(end: BootTime) -> BootTime {
    before(end, KILL_RESERVE)
}

/// So long before `end`. An end of time stays: until then there is time for anything.
pub(crate) fn before(end: BootTime, span: Duration) -> BootTime {
    if end >= END_OF_TIME { end } else { end - span }
}

/// Also after its way to a guard, in whole milliseconds.
const END_OF_TIME: BootTime = BootTime::from_duration(Duration::from_secs(u64::MAX / 1_000_000_000));

/// When a stop begins at the latest, for the job to have its whole stop timeout before its lease ends.
pub(crate) fn last_stop(lease_end: BootTime, stop_timeout: Duration) -> BootTime {
    before(last_kill(lease_end), stop_timeout)
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Do nothing until [`Plan::wake_at`].
    Wait,
    /// Stop all processes, repeatedly.
    Freeze,
    /// Continue them.
    Thaw,
    /// Send the stop signal: once.
    Ask(Why),
    /// Send SIGKILL to everything, repeatedly until no process is left.
    Kill,
}

/// The plan for the end of a job.
#[derive(Debug)]
pub(super) struct Plan {
    stop_timeout: Duration,
    until: BootTime,
    freezes: bool,
    /// Whether the worker has suspended the job.
    is_suspended: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    Frozen,
    /// The next step sends the stop signal.
    Asking {
        kill_at: BootTime,
        why: Why,
    },
    Stopping {
        kill_at: BootTime,
    },
    Killing,
}

impl Plan {
    /// A job that may work until `until`, and gets `stop_timeout` between the stop signal and
    /// SIGKILL. One that `freezes` is not asked to end when the lease is near its end.
    pub(super) fn new(stop_timeout: Duration, until: BootTime, freezes: bool) -> Self {
        Plan { stop_timeout, until, freezes, is_suspended: false, phase: Phase::Working }
    }

    /// From now on a job with these terms. It is to be what [`new`](Self::new) makes, unless its end has begun.
    pub(super) fn arm(&mut self, stop_timeout: Duration, until: BootTime, freezes: bool) {
        (self.stop_timeout, self.until, self.freezes) = (stop_timeout, until, freezes);
        self.is_suspended &= freezes;
    }

    /// The lease was renewed. The newest value counts, even if it is earlier.
    pub(super) fn renew(&mut self, until: BootTime) {
        self.until = until;
    }

    /// The worker suspends the job, or lets it continue. A job that is being stopped is not suspended.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.is_suspended = self.freezes && suspended;
    }

    /// Whether the job may not run at `now`, though it is not to end.
    fn rests(&self, now: BootTime) -> bool {
        self.is_suspended || (self.freezes && now >= self.start_by())
    }

    /// Whether the processes are to be stopped.
    pub(super) fn is_frozen(&self) -> bool {
        self.phase == Phase::Frozen
    }

    /// Stops the job: the stop signal at once, SIGKILL after the stop timeout. As [`stop_by`](Self::stop_by) otherwise.
    pub(super) fn stop(&mut self, now: BootTime, why: Why) {
        self.stop_by(now, now + self.stop_timeout, why);
    }

    /// Stops the job: the stop signal at once, SIGKILL at `kill_at`, which may be later than the stop timeout, and no later
    /// than [`KILL_RESERVE`] before the end of the lease.
    ///
    /// Called again, it can only bring SIGKILL forward.
    pub(super) fn stop_by(&mut self, now: BootTime, kill_at: BootTime, why: Why) {
        let rests = self.rests(now);
        match &mut self.phase {
            Phase::Working | Phase::Frozen if rests => self.phase = Phase::Killing,
            Phase::Working | Phase::Frozen => self.phase = Phase::Asking { kill_at, why },
            Phase::Asking { kill_at: set, .. } | Phase::Stopping { kill_at: set } => {
                *set = kill_at.min(*set);
            }
            Phase::Killing => {}
        }
    }

    /// Whether the job's end has begun.
    pub(super) fn is_stopping(&self) -> bool {
        !matches!(self.phase, Phase::Working | Phase::Frozen)
    }

    /// What to do at `now`.
    pub(super) fn step(&mut self, now: BootTime) -> Step {
        let last_kill = last_kill(self.until);
        if now >= last_kill {
            self.phase = Phase::Killing;
        }
        match self.phase {
            Phase::Working | Phase::Frozen if self.rests(now) => {
                self.phase = Phase::Frozen;
                Step::Freeze
            }
            Phase::Frozen => {
                self.phase = Phase::Working;
                Step::Thaw
            }
            Phase::Working if now >= self.start_by() => {
                self.phase = Phase::Stopping { kill_at: last_kill };
                Step::Ask(Why::Deadline)
            }
            Phase::Working => Step::Wait,
            Phase::Asking { kill_at, .. } | Phase::Stopping { kill_at } if now >= kill_at => {
                self.phase = Phase::Killing;
                Step::Kill
            }
            Phase::Asking { kill_at, why } => {
                self.phase = Phase::Stopping { kill_at };
                Step::Ask(why)
            }
            Phase::Stopping { .. } => Step::Wait,
            Phase::Killing => Step::Kill,
        }
    }

    /// The last moment at which the job may be started, with time left to stop it.
    pub(super) fn start_by(&self) -> BootTime {
        last_stop(self.until, self.stop_timeout)
    }

    /// When [`Plan::step`] has to be called again, if nothing else happens before.
    pub(super) fn wake_at(&self) -> BootTime {
        let last_kill = last_kill(self.until);
        match self.phase {
            Phase::Working => self.start_by(),
            Phase::Frozen => last_kill,
            Phase::Asking { kill_at, .. } | Phase::Stopping { kill_at } => kill_at.min(last_kill),
            Phase::Killing => BootTime::from_duration(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    fn plan(stop_timeout_ms: u64, until_ms: u64) -> Plan {
        Plan::new(Duration::from_millis(stop_timeout_ms), at(until_ms), false)
    }

    fn freezing(stop_timeout_ms: u64, until_ms: u64) -> Plan {
        Plan { freezes: true, ..plan(stop_timeout_ms, until_ms) }
    }

    #[test]
    fn a_lease_that_is_renewed_keeps_the_job_working() {
        let mut plan = plan(1_000, 10_000);
        assert_eq!(plan.step(at(8_699)), Step::Wait);
        plan.renew(at(20_000));
        assert_eq!(plan.step(at(10_000)), Step::Wait);
        assert_eq!(plan.wake_at(), at(18_700));
    }

    #[test]
    fn a_lease_that_is_not_renewed_leaves_the_stop_timeout_and_the_reserve() {
        let mut plan = plan(1_000, 10_000);
        assert_eq!(plan.wake_at(), at(8_700));
        assert_eq!(plan.step(at(8_700)), Step::Ask(Why::Deadline));
        assert_eq!(plan.step(at(9_699)), Step::Wait);
        assert_eq!(plan.wake_at(), at(9_700));
        assert_eq!(plan.step(at(9_700)), Step::Kill);
        assert_eq!(plan.step(at(9_701)), Step::Kill, "until nothing is left");
    }

    #[test]
    fn a_renewal_after_the_stop_signal_saves_nothing() {
        let mut plan = plan(1_000, 10_000);
        assert_eq!(plan.step(at(9_000)), Step::Ask(Why::Deadline));
        plan.renew(at(60_000));
        assert_eq!(plan.step(at(9_900)), Step::Kill);
    }

    #[test]
    fn a_guard_that_wakes_past_the_deadline_kills_without_asking() {
        assert_eq!(plan(1_000, 10_000).step(at(9_700)), Step::Kill);
        assert_eq!(plan(1_000, 10_000).step(at(99_000)), Step::Kill);
    }

    #[test]
    fn a_guard_that_wakes_late_asks_for_as_long_as_there_is_time() {
        let mut plan = plan(1_000, 10_000);
        assert_eq!(plan.step(at(9_600)), Step::Ask(Why::Deadline));
        assert_eq!(plan.wake_at(), at(9_700));
    }

    #[test]
    fn a_stop_order_asks_at_once_and_kills_after_the_stop_timeout() {
        let mut plan = plan(1_000, 10_000);
        plan.stop(at(2_000), Why::Order);
        assert_eq!(plan.step(at(2_000)), Step::Ask(Why::Order));
        assert_eq!(plan.step(at(2_999)), Step::Wait);
        assert_eq!(plan.step(at(3_000)), Step::Kill);
    }

    #[test]
    fn a_stop_order_keeps_to_its_own_deadline_and_to_the_lease() {
        let mut sooner = plan(1_000, 10_000);
        sooner.stop_by(at(2_000), at(2_200), Why::Order);
        assert_eq!(sooner.step(at(2_000)), Step::Ask(Why::Order));
        assert_eq!(sooner.wake_at(), at(2_200));

        let mut lease = plan(5_000, 10_000);
        lease.stop(at(4_500), Why::WorkerGone);
        assert_eq!(lease.step(at(4_500)), Step::Ask(Why::WorkerGone));
        assert_eq!(lease.wake_at(), at(9_500));
        lease.renew(at(6_000));
        assert_eq!(lease.wake_at(), at(5_700));
        assert_eq!(lease.step(at(5_700)), Step::Kill);
    }

    #[test]
    fn a_second_stop_order_can_only_hasten() {
        let mut plan = plan(1_000, 10_000);
        plan.stop(at(2_000), Why::Order);
        assert_eq!(plan.step(at(2_000)), Step::Ask(Why::Order));
        plan.stop(at(2_900), Why::WorkerGone);
        assert_eq!(plan.wake_at(), at(3_000));
        plan.stop_by(at(2_400), at(2_300), Why::Order);
        assert_eq!(plan.wake_at(), at(2_300));
        assert_eq!(plan.step(at(2_401)), Step::Kill);
    }

    #[test]
    fn a_stop_that_is_given_longer_than_the_stop_timeout_lasts_as_long_as_the_lease_is_renewed() {
        let mut plan = plan(1_000, 10_000);
        plan.stop_by(at(2_000), at(30_000), Why::Order);
        assert_eq!(plan.step(at(2_000)), Step::Ask(Why::Order));
        assert_eq!(plan.wake_at(), at(9_700));
        assert_eq!(plan.step(at(9_000)), Step::Wait, "it has been asked already");
        plan.renew(at(60_000));
        assert_eq!((plan.step(at(29_999)), plan.wake_at()), (Step::Wait, at(30_000)));
        assert_eq!(plan.step(at(30_000)), Step::Kill);
    }

    #[test]
    fn the_stop_timeout_counts_again_for_a_long_stop_once_the_worker_is_gone_or_the_lease_ends() {
        let long = || {
            let mut plan = plan(1_000, 10_000);
            plan.stop_by(at(2_000), at(30_000), Why::Order);
            assert_eq!(plan.step(at(2_000)), Step::Ask(Why::Order));
            plan
        };
        let mut gone = long();
        gone.stop(at(4_000), Why::WorkerGone);
        assert_eq!((gone.step(at(4_999)), gone.step(at(5_000))), (Step::Wait, Step::Kill));
        let mut not_renewed = long();
        assert_eq!((not_renewed.step(at(9_699)), not_renewed.step(at(9_700))), (Step::Wait, Step::Kill));
    }

    #[test]
    fn a_program_without_a_deadline_gets_one_and_loses_it() {
        let mut plan = Plan::new(Duration::from_secs(5), BootTime::from_duration(Duration::MAX), false);
        assert_eq!(plan.step(at(1_000_000)), Step::Wait);
        plan.arm(Duration::from_secs(1), at(2_000_000), true);
        assert_eq!(plan.wake_at(), at(1_998_700));
        plan.suspend(true);
        assert_eq!(plan.step(at(1_500_000)), Step::Freeze);
        plan.arm(Duration::from_secs(5), BootTime::from_duration(Duration::MAX), false);
        assert_eq!((plan.step(at(1_600_000)), plan.step(at(9_000_000))), (Step::Thaw, Step::Wait));
    }

    #[test]
    fn without_a_deadline_no_stop_timeout_is_too_long() {
        let end = BootTime::from_duration(Duration::MAX);
        let of_guard = BootTime::from(crate::guard::protocol::Millis::from(end));
        for until in [end, of_guard] {
            assert_eq!(last_stop(until, Duration::MAX), until);
            assert_eq!(Plan::new(Duration::MAX, until, false).step(at(1_000)), Step::Wait);
        }
    }

    #[test]
    fn a_deadline_that_comes_too_late_ends_the_program_at_once_and_an_end_that_has_begun_goes_on() {
        let mut plan = plan(1_000, u64::MAX);
        plan.arm(Duration::from_secs(1), at(10_000), false);
        assert_eq!(plan.step(at(9_800)), Step::Kill);
        let mut stopping = self::plan(1_000, 10_000);
        stopping.stop(at(2_000), Why::Order);
        assert_eq!(stopping.step(at(2_000)), Step::Ask(Why::Order));
        stopping.arm(Duration::from_secs(60), at(90_000), false);
        assert_eq!(stopping.step(at(3_000)), Step::Kill);
    }

    #[test]
    fn a_job_that_the_worker_suspends_rests_until_it_is_let_go_or_killed_for_its_lease() {
        let mut plan = freezing(1_000, 10_000);
        plan.suspend(true);
        assert_eq!(plan.step(at(2_000)), Step::Freeze);
        assert_eq!(plan.step(at(2_100)), Step::Freeze, "what another process has continued is stopped again");
        assert!(plan.is_frozen() && !plan.is_stopping());
        plan.suspend(false);
        assert_eq!(plan.step(at(3_000)), Step::Thaw);
        assert_eq!((plan.step(at(3_001)), plan.wake_at()), (Step::Wait, at(8_700)));
        plan.suspend(true);
        assert_eq!(plan.step(at(4_000)), Step::Freeze);
        assert_eq!(plan.wake_at(), at(9_700));
        assert_eq!(plan.step(at(9_699)), Step::Freeze, "it is not asked to end");
        assert_eq!(plan.step(at(9_700)), Step::Kill);
        plan.renew(at(60_000));
        plan.suspend(false);
        assert_eq!(plan.step(at(9_701)), Step::Kill);
    }

    #[test]
    fn without_its_worker_a_job_rests_near_the_end_of_the_lease_and_a_renewal_continues_it() {
        let mut plan = freezing(1_000, 10_000);
        assert_eq!(plan.step(at(8_699)), Step::Wait);
        assert_eq!(plan.step(at(8_700)), Step::Freeze);
        plan.renew(at(11_000));
        assert_eq!(plan.step(at(9_650)), Step::Thaw);
        assert_eq!(plan.step(at(9_700)), Step::Freeze);
        // A worker that suspends it does not let it go by renewing the lease.
        plan.suspend(true);
        plan.renew(at(20_000));
        assert_eq!(plan.step(at(9_800)), Step::Freeze);
    }

    #[test]
    fn a_job_that_rests_is_killed_by_a_stop_and_one_that_may_continue_is_asked() {
        let mut suspended = freezing(1_000, 10_000);
        suspended.suspend(true);
        suspended.stop(at(2_000), Why::Order);
        assert_eq!(suspended.step(at(2_000)), Step::Kill, "suspended in the same moment");

        let mut near_the_end = freezing(1_000, 10_000);
        assert_eq!(near_the_end.step(at(9_000)), Step::Freeze);
        near_the_end.stop(at(9_001), Why::WorkerGone);
        assert_eq!(near_the_end.step(at(9_001)), Step::Kill);

        let mut let_go = freezing(1_000, 10_000);
        let_go.suspend(true);
        assert_eq!(let_go.step(at(2_000)), Step::Freeze);
        let_go.suspend(false);
        let_go.stop(at(3_000), Why::Order);
        assert_eq!(let_go.step(at(3_000)), Step::Ask(Why::Order));
        let_go.suspend(true);
        assert_eq!(let_go.step(at(3_500)), Step::Wait, "a stop that has begun has its time");
        assert_eq!(let_go.step(at(4_000)), Step::Kill);
    }

    #[test]
    fn a_job_that_does_not_freeze_is_not_suspended() {
        let mut plan = plan(1_000, 10_000);
        plan.suspend(true);
        assert_eq!(plan.step(at(2_000)), Step::Wait);
    }

    #[test]
    fn no_stop_timeout_means_no_asking() {
        let mut plan = plan(0, 10_000);
        plan.stop(at(2_000), Why::Order);
        assert_eq!(plan.step(at(2_000)), Step::Kill);
    }
}
