//! When the watchdog device gets a sign of life. Pure: time is an argument.
//!
//! ```text
//!   lease of a job ─────────────────────────────▶│ its end: no process of the job is left │◀─ margin / 2 ─▶│ the reset
//!        kick   kick   kick     the last kick ─────────────────────────── timeout ──────────────────────▶│
//! ```
//!
//! Each kick moves the reset of the machine to `timeout` later. So a kick is only allowed while that is not later than half a
//! margin after the end of each lease. Without a renewal the last kick comes exactly that early, so that a job that ends in time
//! never costs a reset.

use std::time::Duration;

use zk_session::BootTime;

/// How much earlier than at the last moment the last kick comes: a busy machine must not miss it.
const LEAD: Duration = Duration::from_millis(50);

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing until [`Plan::wake_at`].
    Wait,
    /// Write to the device.
    Kick,
    /// Stop the device: no process of a job is left.
    Disarm,
}

/// The plan for one device, from its opening until it is stopped.
#[derive(Debug)]
pub(super) struct Plan {
    timeout: Duration,
    margin: Duration,
    last: Option<BootTime>,
}

impl Plan {
    pub(super) fn new(timeout: Duration, margin: Duration) -> Plan {
        Plan { timeout, margin, last: None }
    }

    /// The last moment at which a kick is allowed, if the first lease ends at `end`.
    fn last_chance(&self, end: BootTime) -> BootTime {
        end + self.margin / 2 - self.timeout
    }

    /// What to do at `now`. `end` is the end of the first lease of those of which a process may be left.
    pub(super) fn step(&mut self, now: BootTime, end: Option<BootTime>) -> Step {
        let Some(end) = end else { return Step::Disarm };
        let last_chance = self.last_chance(end);
        // One more kick before the last chance, and not two.
        let is_last = now + LEAD >= last_chance && self.last.is_none_or(|last| last + LEAD < last_chance);
        if now > last_chance || !(self.is_due(now) || is_last) {
            return Step::Wait;
        }
        self.last = Some(now);
        Step::Kick
    }

    fn is_due(&self, now: BootTime) -> bool {
        self.last.is_none_or(|last| now >= last + self.interval())
    }

    /// Several kicks in each timeout: a slow machine may miss some.
    fn interval(&self) -> Duration {
        self.timeout / 8
    }

    /// When [`Plan::step`] has to be called again, unless something changes before; `None` without a lease.
    pub(super) fn wake_at(&self, now: BootTime, end: Option<BootTime>) -> Option<BootTime> {
        let end = end?;
        let due = self.last.map_or(now, |last| last + self.interval());
        let last_chance = self.last_chance(end);
        // Past the last chance a renewal has to be noticed soon.
        let next = if now > last_chance { now + LEAD } else { due.min(last_chance - LEAD / 2) };
        Some(next.max(now + Duration::from_millis(5)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    /// A timeout of 4 s, and a margin of 1 s.
    fn plan() -> Plan {
        Plan::new(Duration::from_secs(4), Duration::from_secs(1))
    }

    /// The times of all kicks until `to`, and whether the device was stopped, while the lease ends at `end`.
    fn kicks(plan: &mut Plan, from: u64, to: u64, end: Option<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        let mut now = from;
        while now <= to {
            if plan.step(at(now), end.map(at)) == Step::Kick {
                found.push(now);
            }
            let Some(next) = plan.wake_at(at(now), end.map(at)) else { break };
            now = u64::try_from(next.as_duration().as_millis()).expect("short").max(now + 1);
        }
        found
    }

    #[test]
    fn a_lease_that_is_not_renewed_gets_its_last_kick_a_timeout_before_the_reset() {
        // The job has ended by 10 s, and the reset is due at 10.5 s.
        let found = kicks(&mut plan(), 5000, 60_000, Some(10_000));
        assert_eq!(found, [5000, 5500, 6000, 6475]);
    }

    #[test]
    fn a_renewal_lets_it_go_on_also_after_the_last_chance() {
        let mut plan = plan();
        assert_eq!(kicks(&mut plan, 5000, 7000, Some(10_000)).last(), Some(&6475));
        assert_eq!(plan.step(at(7000), Some(at(13_000))), Step::Kick);
    }

    #[test]
    fn it_is_stopped_once_no_job_is_left() {
        let mut plan = plan();
        assert_eq!(plan.step(at(0), Some(at(9000))), Step::Kick);
        assert_eq!((plan.step(at(10), None), plan.wake_at(at(10), None)), (Step::Disarm, None));
    }

    proptest! {
        /// Whatever becomes of the leases and of the task that kicks.
        #[test]
        fn no_kick_puts_the_reset_off_beyond_half_the_margin_after_a_lease(
            timeout in 1000..10_000u64,
            margin in 200..3000u64,
            steps in prop::collection::vec((0..3000u64, 0..20_000u64), 1..60),
        ) {
            let ms = Duration::from_millis;
            let mut plan = Plan::new(ms(timeout), ms(margin));
            let mut now = 100_000;
            for (pause, left) in steps {
                now += pause;
                let end = at(now + left);
                if plan.step(at(now), Some(end)) == Step::Kick {
                    prop_assert!(at(now) + ms(timeout) <= end + ms(margin) / 2);
                }
                prop_assert!(plan.wake_at(at(now), Some(end)) > Some(at(now)));
            }
        }

        /// While leases are renewed in time no two kicks are a timeout apart; and the last kick after the renewals have
        /// stopped leaves the job its time.
        #[test]
        fn a_machine_whose_jobs_end_in_time_is_not_reset(
            timeout in 2000..10_000u64,
            margin in 300..3000u64,
            renewed_every in 100..5000u64,
            renewals in 1..10u64,
        ) {
            let ms = Duration::from_millis;
            let mut plan = Plan::new(ms(timeout), ms(margin));
            // What is left of the lease, less its reserve, before each renewal.
            let longest = timeout - margin / 2;
            let end = |now: u64| {
                let renewal = (now / renewed_every).min(renewals);
                renewal * renewed_every + renewed_every + longest + 1
            };
            let (mut now, mut last) = (0, 0);
            while now < end(u64::MAX) {
                if plan.step(at(now), Some(at(end(now)))) == Step::Kick {
                    last = now;
                }
                prop_assert!(now <= last + timeout, "it is reset at {} at work until {}", now, end(now));
                now += 5;
            }
            prop_assert!(last + timeout >= end(u64::MAX), "it is reset before its job has to be gone");
        }
    }
}
