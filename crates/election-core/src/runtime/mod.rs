//! The tokio side: runs the engine on a `zk-session`, and an application under it.
//!
//! One task per election owns the engine, its watches and its operations, and waits for all of them at once. The
//! application's calls are tasks of their own, whose answers arrive on a queue. So neither the application nor ZooKeeper
//! can delay the engine's next event.
mod base_watch;
mod candidate;
mod changes;
mod config;
mod election;
mod ended;
mod events;
mod first;
mod handler;
mod latch;
pub(crate) mod layout;
mod leaders;
mod living;
pub(crate) mod operations;
mod publisher;
mod runner;
mod status;
mod turn;
mod watches;
mod work;

pub use candidate::{CampaignError, Candidate, RunError};
pub use changes::Changes;
pub use config::ElectionConfig;
pub use election::{AttributesTooLong, Election, MAX_ATTRIBUTES, SwitchoverBlock};
pub use ended::{Ended, StopBudgetTooLong};
pub use events::HandedOver;
pub use handler::{ElectionEvent, Failure, Handler, Leadership, StopOrder};
pub use latch::Latch;
pub use leaders::{Leader, LeaderChange, Leaders};
pub use operations::ReadError;
pub use status::ElectionStatus;

use std::{future::pending, time::Duration};

use zk_session::{BootTime, sleep_until};

use crate::{
    engine::Node,
    time::{Now, Time},
};

/// The delay before a failed read is repeated.
const RETRY: Duration = Duration::from_millis(200);

/// The engine's time: this machine's `CLOCK_BOOTTIME`, and the wall clock.
pub(crate) fn now() -> Now {
    Now::new(to_time(BootTime::now()), unix_ms())
}

/// The wall clock, in milliseconds since the Unix epoch.
pub fn unix_ms() -> u64 {
    crate::record::limits::millis(boot_time::unix_time())
}

pub(crate) fn to_time(boot: BootTime) -> Time {
    Time::from_origin(boot.as_duration())
}

pub(crate) fn to_boot(time: Time) -> BootTime {
    BootTime::from_duration(time.since_origin())
}

/// Waits for a time, if there is one.
async fn at(time: Option<BootTime>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// A znode as the engine has it.
pub fn to_node(node: zk_session::Node) -> Node {
    let stat = node.stat;
    Node {
        data: node.data,
        version: stat.version,
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        owner: stat.ephemeral_owner,
        ctime_ms: stat.ctime_ms,
        mtime_ms: stat.mtime_ms,
    }
}
