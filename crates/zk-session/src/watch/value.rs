//! The states of a znode, across reconnects and new sessions.
//!
//! A watch of ZooKeeper fires once and is then gone; its session may end; its event may be lost with a connection. The
//! streams here are level-triggered over it: after every event, read again and arm again in one step, and return the value
//! if it differs. An event means nothing but that it is time to read, with one exception: a deletion is returned at once,
//! because the event says all that there is to know. The read follows.

#![allow(private_bounds, reason = "what can be watched is chosen here")]

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use zk_proto::{ErrorCode, Reply, Request, WatchKind};

use crate::error::{OpError, WatchError};
use crate::node::{Children, Epoch, Node, SessionId};
use crate::operations::attempts::Attempts;
use crate::session::armed::Armed;
use crate::session::incarnation::Incarnation;
use crate::session::shared::View;
use crate::watch::stream::{Source, Watch, item};
use crate::watch::tries::Tries;

/// A value and the session on which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<T> {
    /// The session on which it was read.
    pub epoch: Epoch,
    /// What was read.
    pub value: T,
}

/// A znode's data and its changes. From [`Session::watch_data`](crate::Session::watch_data). An item is the value, or
/// `None` if the znode does not exist: at first the present one, later the one after a change.
///
/// Values between the last one returned and the newest may be skipped. The newest is never missed. A deletion is
/// returned as soon as it is known. Within one session the same state is never returned twice. In each new session the
/// value is returned once, changed or not.
pub type DataWatch = Watch<Values<Node>>;

/// The names of a znode's children and their changes. From
/// [`Session::watch_children`](crate::Session::watch_children). An item is the names, or `None` if the znode does not
/// exist. Which changes are returned is as for a [`DataWatch`].
pub type ChildrenWatch = Watch<Values<Children>>;

impl<T: Watched> Watch<Values<T>> {
    pub(crate) fn of_values(view: View, path: Arc<str>) -> Self {
        Self { source: Values { tries: Tries::new(view, path), armed: None, deleted: false, last: None } }
    }
}

impl DataWatch {
    /// Sets the state that counts as already returned, which the caller knows by other means; `None` if the state that was
    /// returned last is known to be out of date. Otherwise that state would not be returned when it comes back: for
    /// example when a znode is created and deleted before it is read.
    pub(crate) fn knows(&mut self, known: Option<(Epoch, Option<&Node>)>) {
        self.source.last = known.map(|(epoch, node)| (epoch, node.map(Node::seen)));
    }

    /// Returns `true` when [`next`](Self::next) would begin a read: at once before the first value, later when the znode has
    /// changed, or the session is over or closed. Returns `false` at once while a read is under way that the stream has
    /// begun. To coalesce changes, wait a while between `changed` and `next`: one read covers all changes of that time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&mut self) -> bool {
        let is_reading = self.source.tries.attempt.is_some();
        // Whoever waits before the read may find another znode there.
        poll_fn(|cx| self.source.poll_fired(cx).map(|_| self.source.deleted = false)).await;
        !is_reading
    }

    /// The next item of the stream that needs no new read: a deletion, or the value of a read that the stream has begun;
    /// `None` if the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost, and the read stays under way.
    pub async fn next_known(&mut self) -> Option<Result<Observed<Option<Node>>, OpError>> {
        let source = &mut self.source;
        poll_fn(|cx| {
            while source.tries.attempt.is_some() {
                if let Some(seen) = ready!(source.poll_read(cx)).transpose() {
                    return Poll::Ready(item(seen));
                }
            }
            match ready!(source.poll_deleted(cx)) {
                Some(epoch) => Poll::Ready(Some(Ok(Observed { epoch, value: None }))),
                None => Poll::Pending,
            }
        })
        .await
    }
}

/// What is watched: how it is read, and how its states are distinguished.
trait Watched: Sized + Send + 'static {
    type Seen: PartialEq;

    /// Reads it and arms a watch.
    fn request(absolute: &str) -> Request<'_>;

    fn take(attempts: &Attempts<'_>, reply: Reply) -> Result<Self, OpError>;

    fn seen(&self) -> Self::Seen;

    /// Has the session check what somebody now waits on.
    fn rely(&self, _armed: &Armed, _absolute: impl FnOnce() -> Arc<str>) {}
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

    fn rely(&self, armed: &Armed, absolute: impl FnOnce() -> Arc<str>) {
        let owner = SessionId(self.stat.ephemeral_owner);
        armed.inner.rely(armed.id, absolute, owner, self.stat.version);
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

/// The states of a znode: when to read again, and whether the state has changed.
pub struct Values<T: Watched> {
    tries: Tries<(Option<T>, Armed)>,
    armed: Option<Armed>,
    /// The last event was a deletion, so there is probably nothing to read.
    deleted: bool,
    last: Option<(Epoch, Option<T::Seen>)>,
}

impl<T: Watched> Values<T> {
    /// Ready when it is time to read; with the session if the reason is a deletion.
    fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Epoch>> {
        let Some(armed) = &self.armed else { return Poll::Ready(None) };
        let fired = ready!(armed.poll_next(cx));
        let epoch = armed.inner.epoch;
        self.armed = None;
        self.deleted = matches!(fired, Some((WatchKind::Deleted, _)));
        Poll::Ready(Some(epoch).filter(|_| self.deleted))
    }

    /// Ready when it is time to read; with the session if a deletion is to be returned before that.
    fn poll_deleted(&mut self, cx: &mut Context<'_>) -> Poll<Option<Epoch>> {
        let deleted = ready!(self.poll_fired(cx));
        Poll::Ready(deleted.filter(|epoch| self.is_news(*epoch, None)))
    }

    /// Reads, and sets the watch again. Ready with the value, unless it was returned before.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Observed<Option<T>>>, WatchError>> {
        let deleted = self.deleted;
        let read = move |incarnation, path| read::<T>(incarnation, path, deleted);
        let (value, armed) = ready!(self.tries.poll(cx, read))?;
        let epoch = armed.inner.epoch;
        if let Some(value) = &value {
            value.rely(&armed, || self.tries.view.scope.absolute_shared(&self.tries.path));
        }
        self.armed = Some(armed);
        let is_news = self.is_news(epoch, value.as_ref());
        Poll::Ready(Ok(is_news.then_some(Observed { epoch, value })))
    }

    /// Whether this state was not returned yet.
    fn is_news(&mut self, epoch: Epoch, value: Option<&T>) -> bool {
        let seen = Some((epoch, value.map(T::seen)));
        let news = self.last != seen;
        self.last = seen;
        news
    }
}

impl<T: Watched> Source for Values<T> {
    type Item = Observed<Option<T>>;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Item, WatchError>> {
        loop {
            if let Some(epoch) = ready!(self.poll_deleted(cx)) {
                return Poll::Ready(Ok(Observed { epoch, value: None }));
            }
            if let Some(seen) = ready!(self.poll_read(cx))? {
                return Poll::Ready(Ok(seen));
            }
        }
    }

    fn path(&self) -> &str {
        &self.tries.path
    }

    fn abandon(&mut self) {
        self.tries.attempt = None;
    }
}

/// Reads what is there and watches it, or watches for it to be created. The latter first if it is probably `absent`.
async fn read<T: Watched>(
    incarnation: Incarnation,
    path: Arc<str>,
    mut absent: bool,
) -> Result<(Option<T>, Armed), OpError> {
    let (absolute, mut attempts) = incarnation.begin(&path)?;
    let exists = Request::Exists { path: absolute.as_str().into(), watch: true };
    loop {
        if !std::mem::take(&mut absent) {
            match attempts.read_and_watch(&T::request(&absolute), Armed::once).await? {
                (Ok(reply), armed) => return Ok((Some(T::take(&attempts, reply)?), armed)),
                (Err(ErrorCode::NO_NODE), _) => {}
                (Err(code), _) => return Err(attempts.refused(code)),
            }
        }
        match attempts.read_and_watch(&exists, Armed::once).await? {
            // Created meanwhile.
            (Ok(_), _) => {}
            (Err(ErrorCode::NO_NODE), armed) => return Ok((None, armed)),
            (Err(code), _) => return Err(attempts.refused(code)),
        }
    }
}
