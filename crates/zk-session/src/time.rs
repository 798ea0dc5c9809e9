//! The clock of leases, and how far it is slewed.

use std::time::Duration;

pub(crate) use boot_time::{BootTime, sleep_until};

/// Later than anything.
pub(crate) const NEVER: BootTime = BootTime::from_duration(Duration::MAX);

/// One moment on two clocks.
///
/// `CLOCK_BOOTTIME` is slewed when the time of day is corrected: chrony lets it run up to 8.3 % too slow or too fast by
/// default. `CLOCK_MONOTONIC_RAW` has the hardware's own rate, but stops while the machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) boot: BootTime,
    raw: Duration,
}

impl Moment {
    /// The present.
    pub(crate) fn now() -> Self {
        Self { boot: BootTime::now(), raw: boot_time::hardware_time() }
    }

    #[cfg(test)]
    pub(crate) const fn at(boot: BootTime, raw: Duration) -> Self {
        Self { boot, raw }
    }

    /// How much more time has passed since `earlier` than `CLOCK_BOOTTIME` shows. A suspend in between hides that.
    pub(crate) fn slewed_since(self, earlier: Self) -> Duration {
        self.raw.saturating_sub(earlier.raw).saturating_sub(self.boot.duration_since(earlier.boot))
    }
}

/// `future`'s output, or `None` once `deadline` has passed. A future that is ready at its first poll always wins, even
/// past the deadline.
pub(crate) async fn within<F: Future>(deadline: BootTime, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = sleep_until(deadline) => None,
    }
}
