//! The right to run, and when it ends.

use std::time::Duration;

use boot_time::BootTime;
use tokio::sync::watch;

/// The right of jobs to run until a deadline, which its owner moves on.
///
/// If it is dropped, nothing moves the deadline on any more, and what runs under it ends by then.
#[derive(Debug)]
pub struct Lease {
    until: watch::Sender<BootTime>,
    suspended: watch::Sender<bool>,
}

impl Lease {
    /// One that ends `lasting` from now.
    pub fn lasting(lasting: Duration) -> Lease {
        Lease::until(BootTime::now() + lasting)
    }

    /// One that ends then.
    pub fn until(end: BootTime) -> Lease {
        Lease { until: watch::Sender::new(end), suspended: watch::Sender::new(false) }
    }

    /// It ends `lasting` from now.
    pub fn renew(&self, lasting: Duration) {
        self.renew_until(BootTime::now() + lasting);
    }

    /// It ends then, which may be earlier than before.
    pub fn renew_until(&self, end: BootTime) {
        self.until.send_replace(end);
    }

    /// Stops the processes of jobs that [freeze](crate::Job::freezes), or lets them continue. Others are not affected.
    pub fn suspend(&self, suspended: bool) {
        self.suspended.send_replace(suspended);
    }

    /// When it ends.
    pub fn ends(&self) -> BootTime {
        *self.until.borrow()
    }
}

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

    /// Without a deadline: as long as its worker lives.
    pub fn unlimited() -> WorkTime {
        WorkTime::from(watch::channel(BootTime::from_duration(Duration::MAX)).1)
    }
}

impl From<&Lease> for WorkTime {
    fn from(lease: &Lease) -> WorkTime {
        WorkTime::new(lease.until.subscribe(), lease.suspended.subscribe())
    }
}

impl From<watch::Receiver<BootTime>> for WorkTime {
    fn from(until: watch::Receiver<BootTime>) -> WorkTime {
        WorkTime::new(until, watch::channel(false).1)
    }
}
