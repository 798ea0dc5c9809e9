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
use crate::incarnation::{ArmedOnce, Incarnation, Inner};
use crate::node::{Children, Epoch, Node};
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
    watch: Watch<Node>,
}

impl DataWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.tries.path
    }

    /// What the caller knows by other means counts as told; `None` if he knows that what was told is out of date. Without
    /// that, what was there before would be no news when it comes back: a znode that is created, here or by others, and
    /// deleted before it is read.
    pub(crate) fn knows(&mut self, known: Option<(Epoch, Option<&Node>)>) {
        self.watch.last = known.map(|(epoch, node)| (epoch, node.map(Node::seen)));
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
        self.watch.next().await
    }
}

/// A znode's children and their changes. From [`Session::watch_children`](crate::Session::watch_children).
#[derive(Debug)]
pub struct ChildrenWatch {
    watch: Watch<Children>,
}

impl ChildrenWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.tries.path
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
        self.watch.next().await
    }
}

/// What is watched: how it is read, and by what its states are told apart.
trait Watched: Sized {
    type Seen: PartialEq + std::fmt::Debug;

    /// Reads it and arms a watch.
    fn request(absolute: &str) -> Request<'_>;

    fn take(attempts: &Attempts<'_>, reply: Reply) -> Result<Self, OpError>;

    fn seen(&self) -> Self::Seen;
}

impl Watched for Node {
    /// The creation and the last change of the data.
    type Seen = (i64, i64);

    fn request(absolute: &str) -> Request<'_> {
        Request::GetData { path: absolute.into(), watch: true }
    }

    fn take(attempts: &Attempts<'_>, reply: Reply) -> Result<Self, OpError> {
        attempts.node(reply)
    }

    fn seen(&self) -> Self::Seen {
        (self.stat.czxid, self.stat.mzxid)
    }
}

impl Watched for Children {
    /// The creation and the last change of the children, and their names: zxids alone have been wrong after a restart
    /// of servers.
    type Seen = (i64, i64, Vec<String>);

    fn request(absolute: &str) -> Request<'_> {
        Request::GetChildren { path: absolute.into(), watch: true, with_stat: true }
    }

    fn take(attempts: &Attempts<'_>, reply: Reply) -> Result<Self, OpError> {
        attempts.names(reply)
    }

    fn seen(&self) -> Self::Seen {
        (self.stat.czxid, self.stat.pzxid, self.names.clone())
    }
}

/// What both kinds have in common: when to read again, and whether what was read is news.
#[derive(Debug)]
struct Watch<T: Watched> {
    tries: Tries,
    armed: Option<ArmedOnce>,
    last: Option<(Epoch, Option<T::Seen>)>,
}

impl<T: Watched> Watch<T> {
    fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { tries: Tries::new(shared, path), armed: None, last: None }
    }

    async fn changed(&mut self) {
        if let Some(armed) = &mut self.armed {
            armed.fired().await;
            self.armed = None;
        }
    }

    async fn next(&mut self) -> Result<Observed<Option<T>>, Closed> {
        loop {
            self.changed().await;
            let incarnation = self.tries.session().await?;
            // On the heap: a watch mostly waits, and would otherwise be as large as its reading for good.
            let read = Box::pin(read::<T>(&incarnation, &self.tries.path)).await;
            let Some((value, armed)) = self.tries.take(read) else { continue };
            let epoch = armed.inner.epoch;
            self.armed = Some(armed);
            let seen = Some((epoch, value.as_ref().map(T::seen)));
            if self.last != seen {
                self.last = seen;
                return Ok(Observed { epoch, value });
            }
        }
    }
}

/// Attempts to set a watch, with pauses between them.
#[derive(Debug)]
pub(crate) struct Tries {
    shared: Arc<Shared>,
    pub(crate) path: String,
    backoff: Backoff,
    /// Not before this moment, after an attempt that failed.
    not_before: Option<BootTime>,
}

impl Tries {
    pub(crate) fn new(shared: Arc<Shared>, path: String) -> Self {
        Self { shared, path, backoff: BACKOFF, not_before: None }
    }

    /// Waits until it is time for an attempt, and says on which session. Cancel safe.
    pub(crate) async fn session(&mut self) -> Result<Incarnation, Closed> {
        if let Some(not_before) = self.not_before {
            self.shared.sleep(not_before).await.map_err(|_| Closed)?;
            self.not_before = None;
        }
        self.shared.active().await
    }

    /// What an attempt has come to; `None` where another one is due.
    pub(crate) fn take<T>(&mut self, attempt: Result<T, OpError>) -> Option<T> {
        match attempt {
            Ok(taken) => {
                self.backoff = BACKOFF;
                Some(taken)
            }
            Err(error) => {
                if self.backoff.attempts() == 0 && !error.is_session_over() {
                    warn!(path = %self.path, %error, "watch: can't be set, trying again");
                }
                self.not_before = Some(BootTime::now() + self.backoff.next());
                None
            }
        }
    }
}

/// Reads what is there and watches it, or watches for it to be created.
async fn read<T: Watched>(incarnation: &Incarnation, path: &str) -> Result<(Option<T>, ArmedOnce), OpError> {
    let (absolute, mut attempts) = incarnation.begin(path)?;
    let exists = Request::Exists { path: absolute.as_str().into(), watch: true };
    loop {
        match attempts.read_and_watch(&T::request(&absolute), Inner::prepare_watch).await? {
            (Ok(reply), armed) => return Ok((Some(T::take(&attempts, reply)?), armed)),
            (Err(ErrorCode::NO_NODE), _) => {}
            (Err(code), _) => return Err(attempts.refused(code)),
        }
        match attempts.read_and_watch(&exists, Inner::prepare_watch).await? {
            // Created meanwhile.
            (Ok(_), _) => {}
            (Err(ErrorCode::NO_NODE), armed) => return Ok((None, armed)),
            (Err(code), _) => return Err(attempts.refused(code)),
        }
    }
}
