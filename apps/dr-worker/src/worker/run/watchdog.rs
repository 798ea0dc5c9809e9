//! The watchdog device when a worker begins: it is used, done without, or waited for.

use std::time::Duration;

use election_core::Election;
use zk_session::LeaseTiming;

use crate::{
    config::{WatchdogConfig, WatchdogMode},
    worker::watchdog::Watchdog,
};

/// How often a device that is required is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The device, as far as this worker uses it.
pub(super) struct NodeWatchdog {
    config: WatchdogConfig,
    longest: Duration,
    pub(super) watchdog: Option<Watchdog>,
    /// How much of the end of each lease is left to it.
    pub(super) reserve: Duration,
    /// Why it can't be used, where it is required.
    missing: Option<String>,
}

impl NodeWatchdog {
    /// Looks for the device, which also stops one that the last worker has left running. `is_alone`: no process of that
    /// worker is left; otherwise the device must go on.
    pub(super) fn find(config: &WatchdogConfig, lease: LeaseTiming, is_alone: bool) -> NodeWatchdog {
        let longest = config.longest_timeout(lease);
        let missing = match config.mode {
            WatchdogMode::Off => None,
            _ if !is_alone => Some("processes of an earlier worker may be left".to_owned()),
            _ => Watchdog::check(config, longest).err(),
        };
        let is_used = match config.mode {
            WatchdogMode::Off => false,
            WatchdogMode::Automatic => missing.is_none(),
            WatchdogMode::Required => true,
        };
        if let Some(why) = &missing {
            tracing::warn!(mode = config.mode.as_str(), "the watchdog device is not used: {why}");
        }
        NodeWatchdog {
            longest,
            watchdog: is_used.then(|| Watchdog::start(config.clone(), longest)),
            reserve: if is_used { config.safety_margin } else { Duration::ZERO },
            missing: missing.filter(|_| is_used),
            config: config.clone(),
        }
    }

    /// Keeps this member from leading while the device is required and missing. Ends once it was found.
    pub(super) async fn await_it(self, elections: Vec<Election>) {
        let Some(mut why) = self.missing else { return };
        loop {
            for election in &elections {
                election.withdraw(format!("watchdog.mode is \"required\": {why}"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            match Watchdog::check(&self.config, self.longest) {
                Ok(()) => break,
                Err(still) => why = still,
            }
        }
        tracing::info!("the watchdog device can be used: this member is a candidate again");
        elections.iter().for_each(Election::rejoin);
    }
}
