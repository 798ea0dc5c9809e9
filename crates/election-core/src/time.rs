//! Time as an argument: the engine never reads a clock.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// The last millisecond of the year 9999, the last one that has a usual text. No record has a later time.
pub const MAX_MS: u64 = 253_402_300_799_999;

/// How far the wall clocks of members may be apart, in milliseconds. A later time than that is from a wrong clock, and
/// must not delay a decision until then.
pub(crate) const APART_MS: u64 = 10_000;

/// Later than every deadline of a process.
pub(crate) const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Whether `at_ms` is within the last `window`, both by wall clocks.
pub fn is_within(at_ms: u64, window: Duration, now_ms: u64) -> bool {
    let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    at_ms <= now_ms.saturating_add(APART_MS) && at_ms.saturating_add(window) > now_ms
}

/// A duration as text: `250ms`, `1.5s`, `15s`, `1m`, `2h 5m`. Rounded to the relevant digits.
pub fn in_words(span: Duration) -> String {
    let ms = (span.as_nanos() + 500_000) / 1_000_000;
    let tenths = (ms + 50) / 100;
    let seconds = (ms + 500) / 1000;
    let parts = |large: u128, unit: &str, small: u128, other: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit} {small}{other}"),
    };
    match seconds {
        _ if ms < 1000 => format!("{ms}ms"),
        _ if tenths < 100 && !tenths.is_multiple_of(10) => format!("{}.{}s", tenths / 10, tenths % 10),
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => parts(s / 60, "m", s % 60, "s"),
        s if s < 86_400 => parts(s / 3600, "h", s % 3600 / 60, "m"),
        s => parts(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// A moment on the runtime's steady clock, as the time since an origin. The origin is constant while the process lives.
///
/// The runtime feeds `CLOCK_BOOTTIME`, a simulation its virtual clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// For 584 years.
    nanos: u64,
}

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self { nanos: 0 };

    /// The moment `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self { nanos: nanos(since_origin) }
    }

    /// The moment `ms` milliseconds after the clock's origin.
    pub const fn from_millis(ms: u64) -> Self {
        Self::from_origin(Duration::from_millis(ms))
    }

    /// The time since the clock's origin.
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The time that has passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

/// `u64::MAX` for what is longer.
const fn nanos(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos < u64::MAX as u128 { nanos as u64 } else { u64::MAX }
}

impl ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self { nanos: self.nanos.saturating_add(nanos(rhs)) }
    }
}

impl ops::Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self { nanos: self.nanos.saturating_sub(nanos(rhs)) }
    }
}

impl Hash for Time {
    /// Writes one 128-bit number, and nothing else is written as one. A hasher that knows the present time can thus
    /// make moments relative to it, and a model checker treats two states as one if they differ only in the time.
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u128(u128::from(self.nanos));
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.since_origin().as_secs_f64())
    }
}

/// The two clocks that are part of every event.
///
/// Deadlines use `time`. `unix_ms` only stamps records for others (an exclusion's end, the time of a decision). A wrong
/// wall clock can make an exclusion too long or too short, but never causes two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    /// The steady clock.
    pub time: Time,
    /// The wall clock, in milliseconds since the Unix epoch: a time that a record can have.
    pub unix_ms: u64,
}

impl Now {
    /// Both clocks at once.
    pub fn new(time: Time, unix_ms: u64) -> Self {
        Self { time, unix_ms: unix_ms.min(MAX_MS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_end_at_the_origin_and_after_centuries() {
        let second = Duration::from_secs(1);
        let (early, late) = (Time::from_millis(1), Time::from_origin(Duration::MAX));
        assert_eq!((early - second, early + Duration::ZERO), (Time::ZERO, early));
        assert_eq!((Time::default(), Time::ZERO.since_origin()), (Time::ZERO, Duration::ZERO));
        assert_eq!((late + second, late.since(late - second)), (late, second));
        assert_eq!((early.since(late), early.since(Time::ZERO)), (Duration::ZERO, Duration::from_millis(1)));
        assert!(Time::ZERO < early && early + FAR < late);
    }

    #[test]
    fn durations_are_rounded_for_people() {
        let words = |nanos| in_words(Duration::from_nanos(nanos));
        assert_eq!(words(14_999_999_549), "15s");
        assert_eq!(words(0), "0ms");
        assert_eq!(words(250_400_000), "250ms");
        assert_eq!(words(999_600_000), "1s");
        assert_eq!(words(1_500_000_000), "1.5s");
        assert_eq!(words(9_960_000_000), "10s");
        assert_eq!(words(59_700_000_000), "1m");
        assert_eq!(words(90_000_000_000), "1m 30s");
        assert_eq!(words(7_500_000_000_000), "2h 5m");
        assert_eq!(words(3 * 86_400_000_000_000), "3d");
    }
}
