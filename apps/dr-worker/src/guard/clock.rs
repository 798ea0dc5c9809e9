//! The clock of all deadlines: `CLOCK_BOOTTIME`, which goes on while the machine is suspended.

use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A point on `CLOCK_BOOTTIME`, counted from the machine's start. Arithmetic saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(Duration);

impl BootTime {
    /// The time now.
    pub fn now() -> Self {
        // The call fails only for a clock the kernel does not have; this one is older (2.6.39)
        // than anything else used here. 'Later than anything' makes every deadline pass, which
        // errs to the safe side.
        match clock_gettime(ClockId::CLOCK_BOOTTIME) {
            Ok(time) => BootTime(Duration::from(time)),
            Err(_) => BootTime(Duration::MAX),
        }
    }

    /// The point that lies `since_boot` after the machine's start.
    pub const fn from_duration(since_boot: Duration) -> Self {
        BootTime(since_boot)
    }

    /// How long after the machine's start this is.
    pub const fn as_duration(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is the later one.
    pub fn duration_since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;
    fn add(self, rhs: Duration) -> BootTime {
        BootTime(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for BootTime {
    type Output = BootTime;
    fn sub(self, rhs: Duration) -> BootTime {
        BootTime(self.0.saturating_sub(rhs))
    }
}

/// The longest nap of [`sleep_until`]: tokio's timers stand still while the machine is suspended.
const NAP: Duration = Duration::from_secs(1);

/// Sleeps until `deadline`; returns at once if it has passed, and at most a second late after the
/// machine was suspended.
///
/// # Cancel safety
/// Cancel safe.
pub async fn sleep_until(deadline: BootTime) {
    loop {
        let remaining = deadline.duration_since(BootTime::now());
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(NAP)).await;
    }
}
