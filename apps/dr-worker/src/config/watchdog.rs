use std::{path::PathBuf, time::Duration};

use zk_session::LeaseTiming;

use super::{
    parse::{HOUR, MILLISECOND, MINUTE, SECOND, choice},
    table::{optional, table, value},
};

choice! {
    /// Whether a watchdog device resets this machine when its jobs can't be ended in time.
    pub enum WatchdogMode {
        /// Never.
        Off = "off",
        /// If the device can be used.
        Automatic = "automatic",
        /// This node leads only with the device.
        Required = "required",
    }
}

table! {
    /// `[watchdog]`: the watchdog device of this machine.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WatchdogConfig {
        /// "off", "automatic" (if the device can be used) or "required" (this node leads only with it).
        pub mode: WatchdogMode = WatchdogMode::Off => value();
        /// The device.
        pub device: PathBuf = "/dev/watchdog".into() => value();
        /// How long before the end of its lease a job must have ended. The machine is reset in the middle of that time.
        pub safety_margin: Duration = SECOND => value().within(200 * MILLISECOND..=10 * MINUTE);
        /// The timeout of a device that accepts none. Default: the longest that leases allow is set.
        pub fixed_timeout: Option<Duration> = None => optional().within(MILLISECOND..=HOUR).example("\"4s\"");
    }
}

impl WatchdogConfig {
    /// The longest timeout of the device with which it can be kicked at any time while leases are renewed. Devices have whole
    /// seconds.
    pub fn longest_timeout(&self, lease: LeaseTiming) -> Duration {
        let longest = lease.shortest_lease().saturating_sub(self.safety_margin / 2);
        if self.fixed_timeout.is_some() { longest } else { Duration::from_secs(longest.as_secs()) }
    }

    /// Checks that there is such a timeout.
    pub(super) fn check(&self, lease: LeaseTiming) -> Result<(), String> {
        let longest = self.longest_timeout(lease);
        let shortest = self.fixed_timeout.unwrap_or(Duration::from_secs(1));
        if self.mode == WatchdogMode::Off || longest >= shortest {
            return Ok(());
        }
        let show = humantime::format_duration;
        Err(format!(
            "a lease may have only {} left before it is renewed, which is too short for a device with a timeout of {} \
             and half of the safety_margin of {}; lengthen zookeeper.session_timeout or shorten safety_margin",
            show(lease.shortest_lease()),
            show(shortest),
            show(self.safety_margin),
        ))
    }

    /// How much of the end of each lease is left to the device.
    pub fn reserve(&self) -> Duration {
        if self.mode == WatchdogMode::Off { Duration::ZERO } else { self.safety_margin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_what_leases_allow_and_a_session_that_is_too_short_is_refused() {
        let lease = |seconds| LeaseTiming {
            session_timeout: Duration::from_secs(seconds),
            tick_time: Duration::from_secs(2),
        };
        let config = |fixed_timeout| WatchdogConfig {
            mode: WatchdogMode::Required,
            device: "/dev/watchdog".into(),
            safety_margin: Duration::from_secs(1),
            fixed_timeout,
        };
        let (set, fixed) = (config(None), config(Some(Duration::from_secs(5))));
        assert_eq!(set.longest_timeout(lease(10)), Duration::from_secs(4));
        assert_eq!(fixed.longest_timeout(lease(10)), Duration::from_millis(4300));
        assert_eq!((set.check(lease(10)), fixed.check(lease(20))), (Ok(()), Ok(())));
        let said = set.check(lease(4)).unwrap_err();
        assert!(said.starts_with("a lease may have only 800ms left"), "{said}");
        assert!(fixed.check(lease(10)).is_err(), "its device has a longer timeout than leases allow");
        let off = WatchdogConfig { mode: WatchdogMode::Off, ..set };
        assert_eq!((off.check(lease(4)), off.reserve()), (Ok(()), Duration::ZERO));
    }
}
