//! The rule that a job's stop must fit its lease, with the figures and keys of the configuration. The rule itself is
//! [`StopBudgetTooLong::check`].

use std::{fmt, time::Duration};

use election_core::errors::StopBudgetTooLong;
use job_guard::KILL_RESERVE;
use zk_session::{LeaseTiming, lease_margin};

use super::spec::JobSpec;

/// Checks that `job` has ended `reserve` before its lease has, even if it needs all of its stop timeout.
///
/// # Errors
/// With all figures, and what to change them to.
pub(super) fn check(job: &JobSpec, lease: LeaseTiming, reserve: Duration) -> Result<(), DoesNotFit> {
    let check = StopBudgetTooLong::check(job.stop_budget() + reserve, lease);
    check.map_err(|wrong| DoesNotFit(wrong, reserve))
}

/// The stop does not fit into the session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoesNotFit(StopBudgetTooLong, Duration);

impl DoesNotFit {
    fn stop_timeout(&self) -> Duration {
        self.0.stop_budget.saturating_sub(KILL_RESERVE + self.1)
    }

    /// The longest stop timeout, if there is one, that would do.
    fn longest_stop_timeout(&self) -> Option<Duration> {
        self.0.timing.shortest_lease().checked_sub(KILL_RESERVE + self.1 + Duration::from_millis(1))
    }

    /// The shortest session timeout, in half seconds, that is long enough.
    fn shortest_session_timeout(&self) -> Duration {
        let StopBudgetTooLong { stop_budget, mut timing } = self.0;
        while StopBudgetTooLong::check(stop_budget, timing).is_err() {
            timing.session_timeout += Duration::from_millis(500);
        }
        timing.session_timeout
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = humantime::format_duration;
        let StopBudgetTooLong { stop_budget, timing: lease } = self.0;
        let margin = lease_margin(lease.session_timeout);
        let parts =
            [stop_budget, lease.heartbeat_interval(), lease.proving_time(), margin, LeaseTiming::ROUND_TRIP];
        let watchdog = match self.1 {
            Duration::ZERO => String::new(),
            margin => format!(" + {} for watchdog.safety_margin", show(margin)),
        };
        write!(
            f,
            "the job cannot be stopped before its lease ends: stop budget {} (stop_timeout {} + {} for the kill{}) + \
             heartbeat interval {} + heartbeats that a tick of {} and a round trip take {} + margin {} + one round trip \
             {} = {}, which must be less than the session timeout of {}; set ",
            show(stop_budget),
            show(self.stop_timeout()),
            show(KILL_RESERVE),
            watchdog,
            show(lease.heartbeat_interval()),
            show(lease.tick_time),
            show(lease.proving_time()),
            show(margin),
            show(LeaseTiming::ROUND_TRIP),
            show(parts.iter().sum()),
            show(lease.session_timeout),
        )?;
        if let Some(longest) = self.longest_stop_timeout() {
            write!(f, "stop_timeout to at most {}, or ", show(longest))?;
        }
        write!(f, "zookeeper.session_timeout to at least {}", show(self.shortest_session_timeout()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(session_ms: u64, tick_ms: u64, stop_timeout: Duration) -> Result<(), DoesNotFit> {
        let lease = LeaseTiming {
            session_timeout: Duration::from_millis(session_ms),
            tick_time: Duration::from_millis(tick_ms),
        };
        check_with(stop_timeout, Duration::ZERO, lease)
    }

    fn check_with(stop_timeout: Duration, reserve: Duration, lease: LeaseTiming) -> Result<(), DoesNotFit> {
        super::check(&JobSpec { stop_timeout, ..JobSpec::example() }, lease, reserve)
    }

    #[test]
    fn the_margin_of_a_watchdog_is_a_part_of_the_stop() {
        let (stop, tick_time) = (Duration::from_secs(4), Duration::from_secs(2));
        let lease = LeaseTiming { session_timeout: Duration::from_secs(10), tick_time };
        assert_eq!(check_with(stop, Duration::from_millis(400), lease), Ok(()));
        let said = check_with(stop, Duration::from_secs(1), lease).unwrap_err().to_string();
        assert!(
            said.contains("stop_timeout 4s + 300ms for the kill + 1s for watchdog.safety_margin"),
            "{said}"
        );
        assert!(said.contains("stop_timeout to at most 3s 499ms"), "{said}");
    }

    #[test]
    fn the_built_in_defaults_fit() {
        assert_eq!(check(10_000, 2_000, Duration::from_secs(2)), Ok(()));
    }

    #[test]
    fn the_sum_that_is_shown_is_too_long_by_as_much_as_the_stop_is() {
        let said = check(10_000, 2_000, Duration::from_secs(30)).unwrap_err().to_string();
        assert!(said.contains("= 35s 500ms, which must be less than the session timeout of 10s"), "{said}");
        assert!(said.contains("stop_timeout to at most 4s 499ms"), "{said}");
    }

    #[test]
    fn what_the_error_advises_does_fit_and_no_more_would() {
        for (session, tick, stop) in [(10_000, 2_000, 30_000), (4_000, 2_000, 2_000), (10_000, 2_000, 4_800)]
        {
            let stop_timeout = Duration::from_millis(stop);
            let wrong = check(session, tick, stop_timeout).unwrap_err();
            let longer = wrong.shortest_session_timeout().as_millis();
            assert_eq!(check(u64::try_from(longer).unwrap(), tick, stop_timeout), Ok(()));
            if let Some(stop_timeout) = wrong.longest_stop_timeout() {
                assert_eq!(check(session, tick, stop_timeout), Ok(()));
                check(session, tick, stop_timeout + Duration::from_millis(1)).unwrap_err();
            }
        }
    }
}
