//! Times of one clock for all processes of this machine.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

/// A time of `CLOCK_MONOTONIC`, in nanoseconds. The contestants print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// This moment.
    ///
    /// # Panics
    /// If the system has no such clock.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
        Self(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    }

    /// That instant: it counts by the same clock, but does not say from when.
    #[must_use]
    pub fn of(instant: Instant) -> Self {
        let (base, moment) = *BASE;
        match instant.checked_duration_since(base) {
            Some(later) => Self(moment.0 + nanos(later)),
            None => Self(moment.0 - nanos(base.duration_since(instant))),
        }
    }

    /// How long after `earlier` it is; zero if it is before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// The milliseconds after `zero`; negative before.
    #[must_use]
    pub fn ms_after(self, zero: Self) -> f64 {
        (self.0 - zero.0) as f64 / 1e6
    }
}

/// The same time by both: the closest of some pairs, because this thread can be interrupted between two readings.
static BASE: LazyLock<(Instant, Moment)> = LazyLock::new(|| {
    let pair = || {
        let before = Moment::now();
        let instant = Instant::now();
        (Moment::now().since(before), instant, before)
    };
    let (_, instant, moment) = (0..20).fold(pair(), |best, _| {
        let next = pair();
        if next.0 < best.0 { next } else { best }
    });
    (instant, moment)
});

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_the_moment_at_which_it_was_taken() {
        let before = Moment::now();
        let instant = Instant::now();
        let after = Moment::now();
        // The conversion reads two clocks, one after the other.
        let slack = 5_000_000;
        let moment = Moment::of(instant);
        assert!(
            before.0 - slack <= moment.0 && moment.0 <= after.0 + slack,
            "{before:?} {moment:?} {after:?}"
        );
        assert!((Moment::of(instant + Duration::from_secs(2)).ms_after(moment) - 2000.0).abs() < 5.0);
        assert_eq!(before.since(after), Duration::ZERO);
    }
}
