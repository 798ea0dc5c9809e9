//! Time as an argument: the engine never reads a clock.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops,
    time::Duration,
};

/// A moment on the shell's steady clock, as the time since an origin that only
/// has to stay the same while the process lives.
///
/// The tokio shell feeds `CLOCK_BOOTTIME`, a simulation its virtual clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(Duration);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The moment `ms` milliseconds after the clock's origin.
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// The time since the clock's origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The time that has passed since `earlier`, zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl ops::Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

impl Hash for Time {
    /// As one 128-bit number, which nothing else is written as: so a hasher that knows what
    /// time it is can take moments relative to that, and a model checker sees that two
    /// states which differ in the hour alone are one.
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write_u128(self.0.as_nanos());
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}

/// The two clocks that come in with every event.
///
/// Deadlines are kept on `time`; `unix_ms` only stamps what is written for others
/// to read (an exclusion's end, the time of a decision), so a wrong wall clock
/// can make an exclusion too long or too short, and never two leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Now {
    /// The steady clock.
    pub time: Time,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Now {
    /// Both clocks at once.
    pub const fn new(time: Time, unix_ms: u64) -> Self {
        Self { time, unix_ms }
    }
}
