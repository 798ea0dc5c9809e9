//! Watches that survive reconnects and new sessions.
//!
//! A watch of ZooKeeper fires once and is then gone; its session may end; its event may be lost with a connection. The
//! streams here are level-triggered over it: whatever happens, read again and arm again in one step, and tell the value
//! if it is another one. Nothing is ever deduced from an event but that it is time to read.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use zk_proto::{ErrorCode, Reply, Request};

use crate::attempts::Attempts;
use crate::backoff::Backoff;
use crate::error::{Closed, OpError};
use crate::incarnation::{ArmedWatch, Incarnation};
use crate::node::{Children, Epoch, Node};
use crate::operations::check;
use crate::shared::Shared;
use crate::time::BootTime;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// A value and the session on which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// The session on which it was read.
    pub epoch: Epoch,
    /// What was read.
    pub value: T,
}

/// A znode's data and its changes. From [`Session::watch_data`](crate::Session::watch_data).
#[derive(Debug)]
pub struct DataWatch {
    watch: Watch<DataSeen>,
}

impl DataWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.path
    }

    /// What the caller knows by other means counts as told; `None` if he knows that what was told is out of date. Without
    /// that, what was there before would be no news when it comes back: a znode that is created, here or by others, and
    /// deleted before it is read.
    pub(crate) fn knows(&mut self, known: Option<(Epoch, Option<&Node>)>) {
        self.watch.last = known.map(|(epoch, node)| (epoch, node.map(seen)));
    }

    /// Returns when [`next`](Self::next) would read: at once before the first value, later when the znode has changed, or
    /// when the session is over. Who waits a while between the two reads once for all that changes meanwhile.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&mut self) {
        self.watch.changed().await;
    }

    /// The next value: at the first call what is there now, later what is there after a change. `None` where the znode
    /// does not exist.
    ///
    /// Values between the last one told and the newest may be skipped; the last one is never missed. Within one session
    /// the same state is never told twice; in each new session the value is told once, changed or not.
    ///
    /// If the znode can't be read, say for lack of permission, that is logged and tried again, with pauses of seconds.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next(&mut self) -> Result<Observed<Option<Node>>, Closed> {
        loop {
            let (incarnation, attempt) = self.watch.begin().await?;
            // On the heap: a watch mostly waits, and would otherwise be as large as its reading for good.
            let read = Box::pin(read_data(&incarnation, &self.watch.path)).await;
            let Some((value, armed)) = self.watch.finish(read, attempt) else { continue };
            let seen = value.as_ref().map(seen);
            if let Some(epoch) = self.watch.tell(armed, seen) {
                return Ok(Observed { epoch, value });
            }
        }
    }
}

/// A znode's children and their changes. From [`Session::watch_children`](crate::Session::watch_children).
#[derive(Debug)]
pub struct ChildrenWatch {
    watch: Watch<ChildrenSeen>,
}

impl ChildrenWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.path
    }

    /// The next value, as [`DataWatch::next`] for data: the names of the children, `None` where the znode does not
    /// exist.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next(&mut self) -> Result<Observed<Option<Children>>, Closed> {
        loop {
            let (incarnation, attempt) = self.watch.begin().await?;
            let read = Box::pin(read_children(&incarnation, &self.watch.path)).await;
            let Some((value, armed)) = self.watch.finish(read, attempt) else { continue };
            let seen = value
                .as_ref()
                .map(|children| (children.stat.czxid, children.stat.pzxid, children.names.clone()));
            if let Some(epoch) = self.watch.tell(armed, seen) {
                return Ok(Observed { epoch, value });
            }
        }
    }
}

/// The creation and the last change of the data.
type DataSeen = (i64, i64);

fn seen(node: &Node) -> DataSeen {
    (node.stat.czxid, node.stat.mzxid)
}

/// The creation and the last change of the children, and their names: zxids alone have been wrong after a restart of
/// servers.
type ChildrenSeen = (i64, i64, Vec<String>);

/// What both kinds have in common: when to read again, and whether what was read is news.
struct Watch<S> {
    shared: Arc<Shared>,
    path: String,
    armed: Option<ArmedWatch>,
    last: Option<(Epoch, Option<S>)>,
    backoff: Backoff,
    /// Not before this moment, after a read that failed.
    not_before: Option<BootTime>,
}

impl<S: PartialEq> Watch<S> {
    fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { shared, path, armed: None, last: None, backoff: BACKOFF, not_before: None }
    }

    async fn changed(&mut self) {
        if let Some(armed) = &mut self.armed {
            armed.fired().await;
            self.armed = None;
        }
    }

    /// Waits until it is time to read, and says on which session.
    async fn begin(&mut self) -> Result<(Incarnation, u32), Closed> {
        self.changed().await;
        if let Some(not_before) = self.not_before {
            self.shared.sleep(not_before).await.map_err(|_| Closed)?;
            self.not_before = None;
        }
        Ok((self.shared.active().await?, self.backoff.attempts()))
    }

    fn finish<T>(&mut self, read: Result<(T, ArmedWatch), OpError>, attempt: u32) -> Option<(T, ArmedWatch)> {
        match read {
            Ok(read) => {
                self.backoff = BACKOFF;
                Some(read)
            }
            Err(error) => {
                if attempt == 0 && !error.is_session_over() {
                    warn!(path = %self.path, %error, "watch: can't be read, trying again");
                }
                self.not_before = Some(BootTime::now() + self.backoff.next());
                None
            }
        }
    }

    /// Takes what was read; answers the session if it is to be told.
    fn tell(&mut self, armed: ArmedWatch, seen: Option<S>) -> Option<Epoch> {
        let epoch = armed.epoch();
        self.armed = Some(armed);
        let seen = Some((epoch, seen));
        if self.last == seen {
            return None;
        }
        self.last = seen;
        Some(epoch)
    }
}

impl<S> std::fmt::Debug for Watch<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("path", &self.path).finish_non_exhaustive()
    }
}

async fn read_data(incarnation: &Incarnation, path: &str) -> Result<(Option<Node>, ArmedWatch), OpError> {
    check(path)?;
    let absolute = incarnation.inner.absolute(path);
    let mut attempts = Attempts::new(&incarnation.inner, path);
    let read = Request::GetData { path: absolute.as_str().into(), watch: true };
    let (reply, armed) = read_or_absent(&mut attempts, &absolute, &read).await?;
    let data = reply.map(|reply| attempts.data(reply)).transpose()?;
    Ok((data.map(|(data, stat)| Node::new(data, stat)), armed))
}

async fn read_children(
    incarnation: &Incarnation,
    path: &str,
) -> Result<(Option<Children>, ArmedWatch), OpError> {
    check(path)?;
    let absolute = incarnation.inner.absolute(path);
    let mut attempts = Attempts::new(&incarnation.inner, path);
    let read = Request::GetChildren { path: absolute.as_str().into(), watch: true, with_stat: true };
    let (reply, armed) = read_or_absent(&mut attempts, &absolute, &read).await?;
    let names = reply.map(|reply| attempts.names(reply)).transpose()?;
    Ok((names.map(|(names, stat)| Children::new(names, stat)), armed))
}

/// Reads what is there and watches it, or watches for it to be created.
async fn read_or_absent(
    attempts: &mut Attempts<'_>,
    absolute: &str,
    read: &Request<'_>,
) -> Result<(Option<Reply>, ArmedWatch), OpError> {
    let exists = Request::Exists { path: absolute.into(), watch: true };
    loop {
        match attempts.read_and_watch(read).await? {
            (Ok(reply), armed) => return Ok((Some(reply), armed)),
            (Err(ErrorCode::NO_NODE), _) => {}
            (Err(code), _) => return Err(attempts.refused(code)),
        }
        match attempts.read_and_watch(&exists).await? {
            // Created meanwhile.
            (Ok(_), _) => {}
            (Err(ErrorCode::NO_NODE), armed) => return Ok((None, armed)),
            (Err(code), _) => return Err(attempts.refused(code)),
        }
    }
}
