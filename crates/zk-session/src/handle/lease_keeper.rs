//! What keeps a session proved to be alive.

use std::sync::Arc;

use tokio::sync::watch;

use crate::lease::Lease;
use crate::session::shared::Shared;
use crate::time::BootTime;

/// Keeps a lease while it, or a clone of it, exists: the session sends four quorum heartbeats in a session timeout. From
/// [`Session::keep_lease`](crate::Session::keep_lease).
#[derive(Debug)]
pub struct LeaseKeeper {
    shared: Arc<Shared>,
}

impl LeaseKeeper {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.keepers.send_modify(|count| *count += 1);
        Self { shared: Arc::clone(shared) }
    }

    /// The present lease: `None` until one is proved, and after the session has ended. It may have run out: compare it with
    /// the clock.
    pub fn lease(&self) -> Option<Lease> {
        self.shared.live.ask(|known| known.lease().filter(|_| known.usable(BootTime::now()).is_some()))
    }

    /// The lease and its changes. It only grows until its session ends; running out is no change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Lease>> {
        self.shared.live.leases()
    }
}

impl Clone for LeaseKeeper {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.shared.keepers.send_modify(|count| *count = count.saturating_sub(1));
    }
}
