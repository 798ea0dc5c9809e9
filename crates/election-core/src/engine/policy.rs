//! The settings of one election, and the timing rule that they must fit.

use std::{fmt, time::Duration};

use super::sites::SiteFailureLimit;
use crate::calendar::Windows;

/// How an election behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How many members lead at once, each in a slot of its own: 1 to
    /// [`MAX_SLOTS`](crate::record::MAX_SLOTS); anything else counts as the nearest of them.
    pub slots: usize,
    /// What a leader does when its connection is lost.
    pub on_pause: OnPause,
    /// How long the work may need to end, killing included. A leader begins to
    /// stop this long before its lease ends.
    pub stop_budget: Duration,
    /// How long PROGRESS may last before the candidate is excluded.
    pub takeover_timeout: Duration,
    /// How long the old leader may take to let go before that is reported.
    pub release_timeout: Duration,
    /// How long the one who is named may take to create its place.
    pub acquire_timeout: Duration,
    /// How long a candidate that failed is excluded.
    pub exclusion: Duration,
    /// The longest exclusion: it doubles with each failure that is remembered.
    pub max_exclusion: Duration,
    /// How long the failures of a member are remembered; zero for not at all.
    pub penalty_window: Duration,
    /// How often a site may fail as a whole before it is not gone back to.
    pub max_site_failures: SiteFailureLimit,
    /// How long a leader is left in office before somebody better may follow.
    pub min_tenure: Duration,
    /// How long after the last failover leadership doesn't move electively.
    pub cooldown: Duration,
    /// How many decisions that nobody ordered may be taken in a window before the
    /// election holds still.
    pub max_takeovers: TakeoverLimit,
    /// How long somebody else must have been better, without a break, before
    /// leadership moves by itself.
    pub better_after: Duration,
    /// When leadership may move by itself to another site; at any time if there are none.
    pub failback_windows: Windows,
    /// How long the very first decision waits when the strategy says that
    /// somebody better may be about to join.
    pub startup_wait: Duration,
    /// How many leaderships the history keeps.
    pub history_kept: usize,
    /// Whether the resource refuses whoever comes with an older token than the newest
    /// that it has seen. Only the job's owner can know that.
    pub fenced: bool,
    /// Whether a leader that enough members have lost makes room before its session
    /// ends. Two may act for a moment then, so it does nothing unless `fenced`.
    pub fast_failover: bool,
    /// How long a member must have gone unanswered before a witness says so.
    pub suspect_after: Duration,
}

impl Policy {
    /// Whether a leader can be put out of office on what its peers say.
    pub const fn may_suspect(&self) -> bool {
        self.fenced && self.fast_failover
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            slots: 1,
            on_pause: OnPause::Stop,
            stop_budget: Duration::from_secs(2),
            takeover_timeout: Duration::from_secs(60),
            release_timeout: Duration::from_secs(30),
            acquire_timeout: Duration::from_secs(10),
            exclusion: Duration::from_secs(300),
            max_exclusion: Duration::from_secs(3600),
            penalty_window: Duration::from_secs(6 * 3600),
            max_site_failures: SiteFailureLimit { count: 2, within: Duration::from_secs(24 * 3600) },
            min_tenure: Duration::from_secs(60),
            cooldown: Duration::from_secs(30),
            max_takeovers: TakeoverLimit { count: 5, within: Duration::from_secs(600) },
            better_after: Duration::from_secs(600),
            failback_windows: Windows::default(),
            startup_wait: Duration::from_secs(5),
            history_kept: 200,
            fenced: false,
            fast_failover: false,
            suspect_after: Duration::from_millis(500),
        }
    }
}

/// What a leader does when its connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPause {
    /// At most one leader: work on until the lease nears its end, then stop.
    Stop,
    /// At least one leader: work on until another one is named, or for this long.
    /// Two may lead meanwhile.
    Keep {
        /// The longest pause, or none.
        max_pause: Option<Duration>,
    },
}

/// How many takeovers within which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverLimit {
    /// So many.
    pub count: u32,
    /// Within so long.
    pub within: Duration,
}

/// The figures that decide whether a leader can always stop before its session
/// can expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The session timeout that the server granted.
    pub session_timeout: Duration,
    /// The ensemble's tickTime.
    pub tick: Duration,
    /// How long the work may need to end.
    pub stop_budget: Duration,
    /// What one round trip to the ensemble may cost.
    pub round_trip: Duration,
}

/// The timing rule doesn't hold. All figures are in its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingError {
    timing: Timing,
    /// The longest stop budget that would fit.
    pub longest: Duration,
}

impl std::error::Error for TimingError {}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timing = &self.timing;
        write!(
            f,
            "the stop budget does not fit the session timeout: stop budget {:?} + beat interval {:?} \
             + beats that a tick takes {:?} + margin {:?} + one round trip {:?} = {:?} must be less than the \
             session timeout of {:?}; shorten the stop timeout to at most {:?}, or lengthen the session timeout",
            timing.stop_budget,
            timing.beat_interval(),
            timing.proving_time(),
            timing.margin(),
            timing.round_trip,
            timing.stop_budget + timing.overhead(),
            timing.session_timeout,
            self.longest
        )
    }
}

impl Timing {
    /// How often a leader's session beats.
    pub fn beat_interval(&self) -> Duration {
        self.session_timeout / 4
    }

    /// What covers the difference of two clocks' rates: 1 % of the timeout, at
    /// least 100 ms.
    pub fn margin(&self) -> Duration {
        (self.session_timeout / 100).max(Duration::from_millis(100))
    }

    /// How much older than the latest beat the one is that it proves: a tick at
    /// least, and as beats come at intervals, a whole number of those.
    fn proving_time(&self) -> Duration {
        let beat = self.beat_interval();
        if beat.is_zero() {
            return self.tick;
        }
        let beats = self.tick.as_nanos().div_ceil(beat.as_nanos()).max(1);
        beat.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX))
    }

    /// Checks that work which needs the whole stop budget has ended before a
    /// lease that is renewed at every beat can run out.
    ///
    /// # Errors
    /// When it doesn't fit; the error names every figure.
    pub fn check(&self) -> Result<(), TimingError> {
        let overhead = self.overhead();
        if self.stop_budget + overhead < self.session_timeout {
            return Ok(());
        }
        let longest = self.session_timeout.saturating_sub(overhead).saturating_sub(Duration::from_millis(1));
        Err(TimingError { timing: *self, longest })
    }

    /// What a lease that is renewed at every beat is short of a session timeout at worst.
    fn overhead(&self) -> Duration {
        self.beat_interval() + self.proving_time() + self.margin() + self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(session_timeout_ms: u64, stop_budget_ms: u64) -> Timing {
        Timing {
            session_timeout: Duration::from_millis(session_timeout_ms),
            tick: Duration::from_secs(2),
            stop_budget: Duration::from_millis(stop_budget_ms),
            round_trip: Duration::from_millis(100),
        }
    }

    #[test]
    fn the_default_budget_fits_the_default_timeout() {
        timing(10_000, 2_000).check().unwrap();
    }

    #[test]
    fn a_tick_that_is_longer_than_a_beat_costs_whole_beats() {
        // Beats each 1.5 s, a tick of 2 s: the latest one proves the last but one.
        let longest = timing(6_000, 5_000).check().unwrap_err().longest;
        assert!(longest < Duration::from_millis(6_000 - 1_500 - 3_000 - 100 - 100), "{longest:?}");
    }

    #[test]
    fn a_budget_that_does_not_fit_is_refused_with_the_longest_that_would() {
        let error = timing(10_000, 6_000).check().unwrap_err();
        assert!(error.to_string().contains("10s"), "{error}");
        timing(10_000, error.longest.as_millis() as u64).check().unwrap();
        timing(10_000, error.longest.as_millis() as u64 + 1).check().unwrap_err();
    }
}
