//! What is known of a session: one state machine, fed with all that happens, and the one place from which its changes are
//! published, in their order. Whether a session is open, over or proved to be alive is asked here and held nowhere else.

use std::future::pending;

use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::error::InactiveReason;
use crate::instruments::{Instruments, RECONNECTS};
use crate::lease::Lease;
use crate::node::Epoch;
use crate::session::state::{Event, Machine, SessionState};
use crate::time::BootTime;

pub(crate) struct Live {
    known: watch::Sender<Machine>,
    /// Derived from it, for those who follow one of the two.
    states: watch::Sender<SessionState>,
    leases: watch::Sender<Option<Lease>>,
    instruments: Instruments,
}

impl Live {
    pub(crate) fn new(instruments: Instruments) -> Self {
        let machine = Machine::new();
        Self {
            states: watch::Sender::new(machine.state().clone()),
            leases: watch::Sender::new(None),
            known: watch::Sender::new(machine),
            instruments,
        }
    }

    /// Something has happened: to the session of that epoch, if one is named, and then nothing if that is over. Returns
    /// whether anything has changed but the deadline.
    pub(crate) fn handle(&self, epoch: Option<Epoch>, now: BootTime, event: Event) -> bool {
        self.known.send_if_modified(|machine| {
            let before = machine.state().clone();
            let is_meant = epoch.is_none() || epoch == before.epoch();
            let changed = is_meant && machine.handle(now, event);
            if *machine.state() != before {
                self.instruments.span().in_scope(|| self.report(&before, machine));
            }
            if changed {
                // Under the lock, so that all see the changes in one order; the end of a lease before that of its session.
                replace(&self.leases, machine.lease());
                replace(&self.states, machine.state().clone());
            }
            changed
        })
    }

    /// Logs and counts a change of the state, before anybody sees it.
    fn report(&self, before: &SessionState, machine: &Machine) {
        let (state, cause) = (machine.state(), machine.cause());
        match state {
            SessionState::Active { epoch } => {
                if let SessionState::Paused { .. } = before {
                    self.instruments.count(RECONNECTS);
                }
                info!(%state, %epoch, reason = %cause, "ZooKeeper session is active");
            }
            SessionState::Paused { epoch, .. } => {
                warn!(%state, %epoch, reason = %cause, "ZooKeeper session is paused");
            }
            SessionState::Inactive { reason: InactiveReason::AuthFailed { reason } } => {
                error!(%state, %reason, "ZooKeeper refuses the credentials, retrying: correct the credentials or the servers");
            }
            SessionState::Inactive { .. } => warn!(%state, reason = %cause, "ZooKeeper session is over"),
            SessionState::Closed => info!(%state, reason = %cause, "ZooKeeper session is closed"),
        }
    }

    /// For who waits on a change. What it lends must be given back before anything happens to the session.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Machine> {
        self.known.subscribe()
    }

    pub(crate) fn state(&self) -> SessionState {
        self.states.borrow().clone()
    }

    pub(crate) fn states(&self) -> watch::Receiver<SessionState> {
        self.states.subscribe()
    }

    pub(crate) fn leases(&self) -> watch::Receiver<Option<Lease>> {
        self.leases.subscribe()
    }

    /// What `ask` asks of the present state.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Machine) -> T) -> T {
        ask(&self.known.borrow())
    }

    /// Whether that session has ended. The local clock may say so of one that has not.
    pub(crate) fn has_ended(&self, epoch: Epoch) -> bool {
        self.ask(|machine| machine.state().epoch() != Some(epoch))
    }

    /// When that session is over unless something is answered before; `None` once it is over.
    pub(crate) fn deadline(&self, epoch: Epoch) -> Option<BootTime> {
        self.ask(|machine| machine.deadline().filter(|_| machine.state().epoch() == Some(epoch)))
    }

    /// Waits until `answer` has one, which is asked at each change.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait_for<T>(&self, mut answer: impl FnMut(&Machine) -> Option<T>) -> T {
        let mut known = self.known.subscribe();
        let mut found = None;
        let is_found = |machine: &Machine| {
            found = answer(machine);
            found.is_some()
        };
        // The sender is in `self`.
        let _ = known.wait_for(is_found).await;
        match found {
            Some(found) => found,
            None => pending().await,
        }
    }
}

/// Sends a value if it is another one than before.
pub(crate) fn replace<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|known| {
        let differs = *known != value;
        *known = value;
        differs
    });
}
