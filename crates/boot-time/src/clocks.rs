//! The clocks of the machine, each read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// The time since the machine was booted.
pub(crate) fn boot_time() -> Duration {
    #[cfg(feature = "virtual-time")]
    if let Some(passed) = virtual_time::passed() {
        return virtual_time::BOOTED + passed;
    }
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::MAX, Duration::from)
}

/// `CLOCK_MONOTONIC_RAW`: the hardware's own rate, which no correction of the time of day changes. It stops while the machine is
/// suspended. A clock that can't be read stands still.
#[must_use]
pub fn hardware_time() -> Duration {
    #[cfg(feature = "virtual-time")]
    if let Some(passed) = virtual_time::passed() {
        return passed;
    }
    clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).map_or(Duration::ZERO, Duration::from)
}

/// The time of day, since 1970.
#[must_use]
pub fn unix_time() -> Duration {
    #[cfg(feature = "virtual-time")]
    if let Some(passed) = virtual_time::passed() {
        return virtual_time::SINCE_1970 + passed;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(feature = "virtual-time")]
mod virtual_time {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::time::Duration;

    use tokio::time::Instant;

    /// The machine was booted so long before the beginning.
    pub(super) const BOOTED: Duration = Duration::from_secs(1000);
    /// The date of the beginning: one second after 2020 has begun.
    pub(super) const SINCE_1970: Duration = Duration::from_secs(1_577_836_801);

    thread_local! {
        static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    pub(super) fn passed() -> Option<Duration> {
        BEGUN.get().map(|begun| begun.elapsed())
    }

    /// While this exists, the clocks of this thread are that of its tokio runtime, which a test can pause. For a runtime of
    /// one thread.
    #[derive(Debug)]
    pub struct VirtualTime {
        /// It stays on its thread.
        _thread: PhantomData<*const ()>,
    }

    impl VirtualTime {
        /// Begins now.
        #[must_use]
        pub fn begin() -> Self {
            BEGUN.set(Some(Instant::now()));
            Self { _thread: PhantomData }
        }
    }

    impl Drop for VirtualTime {
        fn drop(&mut self) {
            BEGUN.set(None);
        }
    }
}
#[cfg(feature = "virtual-time")]
pub use virtual_time::VirtualTime;
