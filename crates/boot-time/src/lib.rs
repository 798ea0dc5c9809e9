#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod clocks;

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

#[cfg(feature = "virtual-time")]
pub use clocks::VirtualTime;
pub use clocks::{hardware_time, unix_time};

/// The longest single sleep.
const NAP: Duration = Duration::from_secs(1);

/// A point on `CLOCK_BOOTTIME`, as the time since the machine was booted.
///
/// Unlike [`std::time::Instant`], which is `CLOCK_MONOTONIC` on Linux, it advances
/// while the machine is suspended, so that a machine that wakes up finds its leases run out. It never goes back.
///
/// Arithmetic saturates: a deadline too far away to be represented is simply never reached.
///
/// ```
/// use std::time::Duration;
/// use boot_time::BootTime;
///
/// let start = BootTime::now();
/// let deadline = start + Duration::from_secs(5);
/// assert!(BootTime::now() < deadline);
/// assert_eq!(deadline.duration_since(start), Duration::from_secs(5));
/// assert_eq!(start.duration_since(deadline), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime {
    /// One more than the nanoseconds since boot, so that an `Option` of it is no larger; for 584 years.
    ticks: NonZeroU64,
}

impl BootTime {
    /// The present.
    ///
    /// A clock that can't be read (no such Linux is known) reads as the end of time: every deadline has then passed,
    /// which is the safe side.
    pub fn now() -> Self {
        Self::from_duration(clocks::boot_time())
    }

    const fn from_nanos(nanos: u64) -> Self {
        Self { ticks: NonZeroU64::MIN.saturating_add(nanos) }
    }

    const fn nanos(self) -> u64 {
        self.ticks.get() - 1
    }

    /// The point `since_boot` after the machine was booted.
    pub const fn from_duration(since_boot: Duration) -> Self {
        Self::from_nanos(nanos(since_boot))
    }

    /// The time from boot to this point.
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    /// The time from `earlier` to this point, zero if `earlier` is not earlier.
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()))
    }

    /// How long a task that waits for this point sleeps next, at most a second: tokio's timers stop while the machine is
    /// suspended. `None` once the point has passed. [`sleep_until`] waits like this.
    fn next_nap(self) -> Option<Duration> {
        let remaining = self.duration_since(Self::now());
        (!remaining.is_zero()).then(|| remaining.min(NAP))
    }
}

/// `u64::MAX` for what is longer.
const fn nanos(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos < u64::MAX as u128 { nanos as u64 } else { u64::MAX }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::from_nanos(self.nanos().saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self::from_nanos(self.nanos().saturating_sub(nanos(duration)))
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:.3}s", self.as_duration().as_secs_f64())
    }
}

/// Sleeps until `deadline`, and returns at once if it has passed.
///
/// After a suspend of the machine it returns at most a second late, however long the machine slept.
///
/// # Cancel safety
/// Cancel safe: nothing but time is lost.
pub async fn sleep_until(deadline: BootTime) {
    while let Some(nap) = deadline.next_nap() {
        tokio::time::sleep(nap).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let end = BootTime::from_duration(Duration::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        let start = BootTime::from_duration(Duration::ZERO);
        assert_eq!(start - Duration::from_secs(1), start);
        assert_eq!(start.duration_since(end), Duration::ZERO);
    }
}
