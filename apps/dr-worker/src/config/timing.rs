//! Whether a job can be stopped before its lease ends: the rule of leases, said in the
//! words of the configuration.

use std::{fmt, time::Duration};

use zk_session::{LeaseTiming, lease_margin};

use super::spec::KILL_RESERVE;

/// The times that the end of a job has to fit into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// Of the session timeout that is asked for or granted.
    pub(super) lease: LeaseTiming,
    /// The job's own part of the stop budget.
    pub(super) stop_timeout: Duration,
}

impl Timing {
    fn stop_budget(&self) -> Duration {
        self.stop_timeout + KILL_RESERVE
    }

    fn fits(&self) -> bool {
        self.stop_budget() < self.lease.shortest_lease()
    }

    /// Checks that a job which needs all its time has ended before the lease has.
    ///
    /// # Errors
    /// With all figures, and what to change them to.
    pub(super) fn check(&self) -> Result<(), DoesNotFit> {
        if self.fits() { Ok(()) } else { Err(DoesNotFit(*self)) }
    }

    /// The longest stop timeout, if there is one, that would do.
    fn longest_stop(&self) -> Option<Duration> {
        self.lease.shortest_lease().checked_sub(KILL_RESERVE + Duration::from_millis(1))
    }

    /// The shortest session timeout, in half seconds, that is long enough.
    fn shortest_session(&self) -> Duration {
        let step = Duration::from_millis(500);
        let mut longer = *self;
        while !longer.fits() {
            longer.lease.session_timeout += step;
        }
        longer.lease.session_timeout
    }
}

/// The stop doesn't fit into the session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoesNotFit(Timing);

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(timing) = self;
        let show = humantime::format_duration;
        let lease = &timing.lease;
        let margin = lease_margin(lease.session_timeout);
        let parts = [
            timing.stop_budget(),
            lease.beat_interval(),
            lease.proving_time(),
            margin,
            LeaseTiming::ROUND_TRIP,
        ];
        write!(
            f,
            "the job can't surely be stopped before its lease ends: stop budget {} (stop_timeout {} + {} for the \
             kill) + beat interval {} + beats that a tick of {} and a round trip take {} + margin {} + one round \
             trip {} = {}, which must be less than the session timeout of {}; set ",
            show(timing.stop_budget()),
            show(timing.stop_timeout),
            show(KILL_RESERVE),
            show(lease.beat_interval()),
            show(lease.tick_time),
            show(lease.proving_time()),
            show(margin),
            show(LeaseTiming::ROUND_TRIP),
            show(parts.iter().sum()),
            show(lease.session_timeout),
        )?;
        if let Some(longest) = timing.longest_stop() {
            write!(f, "stop_timeout to at most {}, or ", show(longest))?;
        }
        write!(f, "zookeeper.session_timeout to at least {}", show(timing.shortest_session()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(session_ms: u64, tick_ms: u64, stop_ms: u64) -> Timing {
        Timing {
            lease: LeaseTiming {
                session_timeout: Duration::from_millis(session_ms),
                tick_time: Duration::from_millis(tick_ms),
            },
            stop_timeout: Duration::from_millis(stop_ms),
        }
    }

    #[test]
    fn the_built_in_defaults_fit() {
        assert_eq!(timing(10_000, 2_000, 2_000).check(), Ok(()));
    }

    #[test]
    fn the_sum_that_is_shown_is_too_long_by_as_much_as_the_stop_is() {
        let said = timing(10_000, 2_000, 30_000).check().unwrap_err().to_string();
        assert!(said.contains("= 35s 500ms, which must be less than the session timeout of 10s"), "{said}");
        assert!(said.contains("stop_timeout to at most 4s 499ms"), "{said}");
    }

    #[test]
    fn what_the_error_advises_does_fit_and_no_more_would() {
        for (session, tick, stop) in [(10_000, 2_000, 30_000), (4_000, 2_000, 2_000), (10_000, 2_000, 4_800)]
        {
            let wrong = timing(session, tick, stop);
            wrong.check().unwrap_err();
            let mut longer = wrong;
            longer.lease.session_timeout = wrong.shortest_session();
            assert_eq!(longer.check(), Ok(()));
            if let Some(stop_timeout) = wrong.longest_stop() {
                assert_eq!(Timing { stop_timeout, ..wrong }.check(), Ok(()));
                let stop_timeout = stop_timeout + Duration::from_millis(1);
                assert!(Timing { stop_timeout, ..wrong }.check().is_err());
            }
        }
    }
}
