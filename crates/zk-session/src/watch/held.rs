//! Held ephemerals: created again in each new session.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::backoff::Backoff;
use crate::error::{OpError, WatchError};
use crate::node::{CreateMode, Epoch, Node, SessionId, Stat};
use crate::session::incarnation::Incarnation;
use crate::session::live::replace;
use crate::session::shared::View;
use crate::session::state::Machine;
use crate::time::{BootTime, NEVER, sleep_until};
use crate::watch::value::{DataWatch, Observed};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// An ephemeral znode that is created again whenever it is gone. From
/// [`Session::hold_ephemeral`](crate::Session::hold_ephemeral).
///
/// It is created, with its parents, in each new session, and again if a client deletes it. A znode of another session at
/// its path (possibly of this process's own previous session) is not touched: the status is [`HeldStatus::Conflict`], and
/// the znode is created once the other one is gone. Of several that hold one path of one session the first has the znode: the
/// others are in conflict until it is released or dropped.
///
/// Dropping it deletes the znode in the background. [`release`](Self::release) waits until that is done.
#[derive(Debug)]
pub struct HeldEphemeral {
    path: String,
    wish: watch::Sender<Vec<u8>>,
    status: watch::Receiver<HeldStatus>,
}

/// The status of a held ephemeral.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldStatus {
    /// Not created yet, gone, or unknown.
    Pending,
    /// Created in this session, with the latest data.
    Held {
        /// The session that owns it.
        epoch: Epoch,
        /// As of the last change.
        stat: Stat,
    },
    /// A znode that is not this session's exists at the path, or this session holds the path already.
    Conflict {
        /// The session that owns the znode; `None` if it is persistent.
        owner: Option<SessionId>,
    },
    /// ZooKeeper refuses it. It is retried with pauses of seconds.
    Refused {
        /// Why.
        error: OpError,
    },
    /// Released, dropped, or the session is closed. Final.
    Released,
}

impl HeldEphemeral {
    pub(crate) fn new(view: View, path: String, data: Vec<u8>) -> Self {
        let (wish, wishes) = watch::channel(data);
        let (sender, status) = watch::channel(HeldStatus::Pending);
        let watch = DataWatch::of_values(view.clone(), path.as_str().into());
        let keeper = Keeper { view: view.clone(), path: path.clone(), status: sender, claim: None };
        view.shared.spawn(keeper.run(watch, wishes));
        Self { path, wish, status }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Replaces the data, now and in all sessions to come. [`HeldStatus::Held`] is reported again once it is written.
    pub fn set_data(&self, data: impl Into<Vec<u8>>) {
        replace(&self.wish, data.into());
    }

    /// The present status.
    pub fn status(&self) -> HeldStatus {
        self.status.borrow().clone()
    }

    /// The status and its changes.
    pub fn subscribe(&self) -> watch::Receiver<HeldStatus> {
        self.status.clone()
    }

    /// Deletes the znode, if it is this session's, and returns when that is done or impossible, within a few operation
    /// timeouts, and at once when the session is closed. If it can't be deleted, it is removed with its session.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, the release continues.
    pub async fn release(self) {
        let Self { wish, mut status, .. } = self;
        drop(wish);
        // An error means that the keeper has ended: released as well.
        let _ = status.wait_for(|status| *status == HeldStatus::Released).await;
    }
}

struct Keeper {
    view: View,
    path: String,
    status: watch::Sender<HeldStatus>,
    /// The path as the servers know it, from when no other one holds it until the znode is deleted.
    claim: Option<String>,
}

impl Drop for Keeper {
    /// Also if it never ran: the session was closed, or its runtime has ended.
    fn drop(&mut self) {
        if let Some(path) = &self.claim {
            self.view.shared.held.send_if_modified(|held| held.remove(path));
        }
        self.status.send_replace(HeldStatus::Released);
    }
}

impl Keeper {
    async fn run(mut self, mut watch: DataWatch, mut wishes: watch::Receiver<Vec<u8>>) {
        self.claim = self.claim(&mut wishes).await;
        if self.claim.is_none() {
            return;
        }
        let mut seen: Option<Observed<Option<Node>>> = None;
        let mut backoff = BACKOFF;
        // When to try again what has failed.
        let mut again = NEVER;
        loop {
            let held_in = match &*self.status.borrow() {
                HeldStatus::Held { epoch, .. } => Some(*epoch),
                _ => None,
            };
            tokio::select! {
                biased;
                // Its session is over, and its znode with it. The watch reads again in the next session.
                () = self.gone(held_in) => {
                    self.report(HeldStatus::Pending);
                    continue;
                }
                observed = watch.next() => match observed {
                    Ok(observed) => seen = Some(observed),
                    Err(WatchError::Refused(error)) => {
                        // What is read once that is allowed is returned, changed or not.
                        watch.knows(None);
                        self.report(HeldStatus::Refused { error });
                        continue;
                    }
                    Err(WatchError::Closed(_)) => break,
                },
                changed = wishes.changed() => if changed.is_err() { break },
                () = sleep_until(again), if again < NEVER => {}
            }
            again = NEVER;
            let wish = wishes.borrow_and_update().clone();
            if wishes.has_changed().is_err() {
                break;
            }
            let Some(current) = &mut seen else { continue };
            let status = self.reconcile(current, &wish).await;
            // Pending: what exists at the path has changed since it was read.
            let certain = !matches!(status, Ok(HeldStatus::Pending));
            watch.knows(certain.then_some((current.epoch, current.value.as_ref())));
            match status {
                Ok(status) => {
                    backoff = BACKOFF;
                    self.report(status);
                }
                Err(error) if error.is_session_over() => self.report(HeldStatus::Pending),
                Err(error) => {
                    debug!(path = %self.path, %error, "cannot create or update the held znode, retrying");
                    again = BootTime::now() + backoff.next();
                    self.report(if error.is_refused() {
                        HeldStatus::Refused { error }
                    } else {
                        HeldStatus::Pending
                    });
                }
            }
        }
        if let Some(Observed { epoch, .. }) = seen {
            self.delete(epoch).await;
        }
    }

    /// Waits until no other one of this session holds the path; `None` if it is released, or the session closed.
    async fn claim(&self, wishes: &mut watch::Receiver<Vec<u8>>) -> Option<String> {
        let shared = &self.view.shared;
        let path = self.view.scope.absolute(&self.path);
        let mut held = shared.held.subscribe();
        loop {
            if shared.held.send_if_modified(|held| held.insert(path.clone())) {
                return Some(path);
            }
            let living = self.view.living();
            self.report(match &living {
                Some(session) => HeldStatus::Conflict { owner: Some(session.session_id()) },
                None => HeldStatus::Pending,
            });
            let moved = async {
                match &living {
                    Some(session) => self.gone(Some(session.epoch())).await,
                    None => drop(self.view.active().await),
                }
            };
            tokio::select! {
                biased;
                _ = shared.closing() => return None,
                changed = wishes.changed() => if changed.is_err() { return None },
                // The sender is in the shared state.
                _ = held.changed() => {}
                () = moved => {}
            }
        }
    }

    fn report(&self, status: HeldStatus) {
        self.status.send_if_modified(|current| {
            if *current == status {
                return false;
            }
            match &status {
                HeldStatus::Conflict { owner } => {
                    warn!(path = %self.path, owner = owner.map(tracing::field::display), "cannot create the held znode: another one exists at its path; waiting until it is gone");
                }
                HeldStatus::Refused { error } => warn!(path = %self.path, %error, "ZooKeeper refuses the held znode, retrying"),
                HeldStatus::Held { epoch, .. } => debug!(path = %self.path, %epoch, "held znode created or updated"),
                HeldStatus::Pending | HeldStatus::Released => {}
            }
            *current = status;
            true
        });
    }

    /// Creates or updates the znode, on the session on which it was read and on no other.
    async fn reconcile(&self, seen: &mut Observed<Option<Node>>, data: &[u8]) -> Result<HeldStatus, OpError> {
        let Some(session) = self.session(seen.epoch) else { return Ok(HeldStatus::Pending) };
        let written = match &seen.value {
            None => self.create(&session, data).await,
            Some(node) if !node.stat.is_owned_by(session.session_id()) => {
                let owner = node.stat.ephemeral_owner;
                return Ok(HeldStatus::Conflict { owner: (owner != 0).then_some(SessionId(owner)) });
            }
            Some(node) if node.data == data => Ok(node.stat),
            Some(node) => session.set(&self.path, data, Some(node.stat.version)).await,
        };
        match written {
            Ok(stat) => {
                seen.value = Some(Node::new(data, stat));
                Ok(HeldStatus::Held { epoch: seen.epoch, stat })
            }
            // Another client was faster: the watch returns the new state.
            Err(OpError::BadVersion { .. } | OpError::NodeExists { .. }) => Ok(HeldStatus::Pending),
            Err(OpError::NoNode { .. }) if seen.value.is_some() => Ok(HeldStatus::Pending),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, session: &Incarnation, data: &[u8]) -> Result<Stat, OpError> {
        let mut created = session.create(&self.path, data, CreateMode::Ephemeral).await;
        if let Err(OpError::NoNode { .. }) = created {
            session.create_parents(&self.path).await?;
            created = session.create(&self.path, data, CreateMode::Ephemeral).await;
        }
        Ok(created?.stat)
    }

    /// Deletes the znode if it is that session's. The znodes of an ended session are removed by the servers.
    async fn delete(&self, epoch: Epoch) {
        let Some(session) = self.session(epoch) else { return };
        let deleted = match session.get(&self.path).await {
            Ok(Some(node)) if node.stat.is_owned_by(session.session_id()) => {
                session.delete(&self.path, Some(node.stat.version)).await
            }
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) | Err(OpError::NoNode { .. }) => debug!(path = %self.path, "held znode deleted"),
            Err(error) => {
                info!(path = %self.path, %error, "cannot delete the held znode: it is removed with its session")
            }
        }
    }

    /// Returns when the session of that epoch has ended, or is being closed; never for `None`.
    async fn gone(&self, epoch: Option<Epoch>) {
        let is_gone = |known: &Machine| (known.usable(BootTime::now()) != epoch).then_some(());
        match epoch {
            Some(_) => self.view.shared.live.wait_for(is_gone).await,
            None => pending().await,
        }
    }

    fn session(&self, epoch: Epoch) -> Option<Incarnation> {
        self.view.living().filter(|session| session.epoch() == epoch)
    }
}
