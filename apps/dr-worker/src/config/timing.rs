//! Whether a job can be stopped before its lease ends: the engine's rule, said in the
//! words of the configuration.

use std::{fmt, time::Duration};

use election_core::engine;

use crate::guard::KILL_RESERVE;

/// What one quorum round trip is taken to last.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// The times that the end of a job has to fit into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timing {
    /// Asked for or granted.
    pub(super) session_timeout: Duration,
    /// The servers' tickTime.
    pub(super) tick: Duration,
    /// The job's own part of the stop budget.
    pub(super) stop_timeout: Duration,
}

impl Timing {
    fn rule(&self) -> engine::Timing {
        engine::Timing {
            session_timeout: self.session_timeout,
            tick: self.tick,
            stop_budget: self.stop_timeout + KILL_RESERVE,
            round_trip: ROUND_TRIP,
        }
    }

    /// Checks that a job which needs all its time has ended before the lease has.
    ///
    /// # Errors
    /// With all figures, and what to change them to.
    pub(super) fn check(&self) -> Result<(), DoesNotFit> {
        self.rule()
            .check()
            .map_err(|e| DoesNotFit { timing: *self, longest_stop: e.longest.checked_sub(KILL_RESERVE) })
    }

    /// How much older than the latest beat the one is that it proves: the beats that a tick takes.
    fn proving_time(&self) -> Duration {
        let beat = self.rule().beat_interval();
        let beats = self.tick.as_nanos().div_ceil(beat.as_nanos().max(1)).max(1);
        beat.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX))
    }

    /// The shortest session timeout, in half seconds, that is long enough.
    fn shortest_session(&self) -> Duration {
        let step = Duration::from_millis(500);
        let mut longer = *self;
        while longer.rule().check().is_err() {
            longer.session_timeout += step;
        }
        longer.session_timeout
    }
}

/// The stop doesn't fit into the session timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoesNotFit {
    timing: Timing,
    longest_stop: Option<Duration>,
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.timing.rule();
        let show = humantime::format_duration;
        let wait = self.timing.proving_time();
        write!(
            f,
            "the job can't surely be stopped before its lease ends: stop budget {} (stop_timeout {} + {} for the \
             kill) + beat interval {} + beats that a tick of {} takes {} + margin {} + one round trip {} = {}, \
             which must be less than the session timeout of {}; set ",
            show(rule.stop_budget),
            show(self.timing.stop_timeout),
            show(KILL_RESERVE),
            show(rule.beat_interval()),
            show(rule.tick),
            show(wait),
            show(rule.margin()),
            show(rule.round_trip),
            show(rule.stop_budget + rule.beat_interval() + wait + rule.margin() + rule.round_trip),
            show(rule.session_timeout),
        )?;
        if let Some(longest) = self.longest_stop {
            write!(f, "stop_timeout to at most {}, or ", show(longest))?;
        }
        write!(f, "zookeeper.session_timeout to at least {}", show(self.timing.shortest_session()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(session_ms: u64, tick_ms: u64, stop_ms: u64) -> Timing {
        Timing {
            session_timeout: Duration::from_millis(session_ms),
            tick: Duration::from_millis(tick_ms),
            stop_timeout: Duration::from_millis(stop_ms),
        }
    }

    #[test]
    fn the_built_in_defaults_fit() {
        assert_eq!(timing(10_000, 2_000, 2_000).check(), Ok(()));
    }

    #[test]
    fn the_figures_are_those_of_the_rule() {
        for (session, tick, stop) in [(10_000, 2_000, 30_000), (6_000, 2_000, 2_000), (4_000, 3_000, 1)] {
            let wrong = timing(session, tick, stop);
            let rule = wrong.rule();
            let wait = wrong.proving_time();
            let sum = rule.stop_budget + rule.beat_interval() + wait + rule.margin() + rule.round_trip;
            let said = rule.check().unwrap_err().to_string();
            assert!(said.contains(&format!(" {wait:?} + margin")), "{wait:?} is not in {said}");
            assert!(said.contains(&format!("= {sum:?} must")), "{sum:?} is not in {said}");
        }
    }

    #[test]
    fn what_the_error_advises_does_fit_and_no_more_would() {
        for (session, tick, stop) in [(10_000, 2_000, 30_000), (4_000, 2_000, 2_000), (10_000, 2_000, 4_800)]
        {
            let wrong = timing(session, tick, stop);
            let error = wrong.check().unwrap_err();
            let session_timeout = wrong.shortest_session();
            assert_eq!(Timing { session_timeout, ..wrong }.check(), Ok(()));
            if let Some(stop_timeout) = error.longest_stop {
                assert_eq!(Timing { stop_timeout, ..wrong }.check(), Ok(()));
                let stop_timeout = stop_timeout + Duration::from_millis(1);
                assert!(Timing { stop_timeout, ..wrong }.check().is_err());
            }
        }
    }
}
