//! The end of the lease, and the pauses before it.

use boot_time::BootTime;
use tokio::sync::watch;

/// When a job may work.
#[derive(Clone, Debug)]
pub struct WorkTime {
    /// The end of the lease.
    pub(super) until: watch::Receiver<BootTime>,
    /// Whether a job that freezes has to rest now.
    pub(super) suspended: watch::Receiver<bool>,
}

impl WorkTime {
    /// Until the end of a lease, renewed through the sender, and not while `suspended` is true.
    pub fn new(until: watch::Receiver<BootTime>, suspended: watch::Receiver<bool>) -> WorkTime {
        WorkTime { until, suspended }
    }
}

impl From<watch::Receiver<BootTime>> for WorkTime {
    fn from(until: watch::Receiver<BootTime>) -> WorkTime {
        WorkTime::new(until, watch::channel(false).1)
    }
}
