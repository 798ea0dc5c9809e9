//! What keeps a session proved to be alive.

use std::sync::Arc;

use tokio::sync::watch;

use crate::lease::Lease;
use crate::session::incarnation::Holder;
use crate::session::shared::Shared;
use crate::time::BootTime;

/// Keeps a lease while it, or a clone of it, exists: the session sends four quorum heartbeats in a session timeout. From
/// [`Session::keep_lease`](crate::Session::keep_lease).
#[derive(Clone, Debug)]
pub struct LeaseKeeper {
    shared: Arc<Shared>,
    _holder: Holder,
}

impl LeaseKeeper {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), _holder: Holder::new(&shared.keepers) }
    }

    /// The present lease: `None` until one is proved, and after the session has ended. It may have run out: compare it with
    /// the clock.
    pub fn lease(&self) -> Option<Lease> {
        self.shared.live.ask(|known| known.lease().filter(|_| known.usable(BootTime::now()).is_some()))
    }

    /// The lease and its changes. Heartbeats prolong it. It is shortened where the clocks of this machine are found to run
    /// at different rates. Running out is no change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Lease>> {
        self.shared.live.leases()
    }
}
