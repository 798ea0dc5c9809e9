//! Watches that survive reconnects and new sessions.
//!
//! A watch of ZooKeeper fires once and is then gone; its session may end; its event may be lost with a connection. The
//! streams here are level-triggered over it: after every event, read again and arm again in one step, and return the value
//! if it differs. An event means nothing but that it is time to read, with one exception: a deletion is returned at once,
//! because the event says all that there is to know. The read follows.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tracing::warn;
use zk_proto::{ErrorCode, Reply, Request, WatchKind};

use crate::backoff::Backoff;
use crate::driver::BoxFuture;
use crate::error::{Closed, OpError, WatchError};
use crate::node::{Children, Epoch, Node, SessionId};
use crate::operations::attempts::Attempts;
use crate::path::check;
use crate::session::incarnation::{ArmedOnce, Incarnation, Inner};
use crate::session::shared::Shared;
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
///
/// As a [`Stream`] it yields what [`next`](Self::next) returns, and ends when the session is closed. An error does not end
/// it: polled again, it asks again after a pause.
///
/// # Cancel safety
/// No value is lost when the future of `next` or of `StreamExt::next` is dropped. A read that is under way is abandoned
/// with the future of `next`, and repeated by the next call. The stream keeps it. Drop a stream that is no longer polled:
/// its read may occupy one of the session's 512 requests.
pub struct DataWatch {
    watch: Watch<Node>,
}

impl DataWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: Arc<str>) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.tries.path
    }

    /// Sets the state that counts as already returned, which the caller knows by other means; `None` if the state that was
    /// returned last is known to be out of date. Otherwise that state would not be returned when it comes back: for
    /// example when a znode is created and deleted before it is read.
    pub(crate) fn knows(&mut self, known: Option<(Epoch, Option<&Node>)>) {
        self.watch.last = known.map(|(epoch, node)| (epoch, node.map(Node::seen)));
    }

    /// Returns when [`next`](Self::next) would read: at once before the first value, later when the znode has changed, or
    /// the session is over or closed. To coalesce changes, wait a while between `changed` and `next`: one read covers all changes of
    /// that time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn changed(&mut self) {
        std::future::poll_fn(|cx| self.poll_changed(cx)).await;
    }

    /// [`changed`](Self::changed) for a caller that polls.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.watch.poll_changed(cx)
    }

    /// Like the stream, but begins no read: returns a deletion, or the value of a read that is under way, and `None` if the
    /// session is closed. Poll the stream when a read may begin: until then, nothing but those two wakes the task.
    pub fn poll_known(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Observed<Option<Node>>, OpError>>> {
        while self.is_reading() {
            if let Some(seen) = ready!(self.watch.poll_read(cx)).transpose() {
                return Poll::Ready(item(seen));
            }
        }
        match ready!(self.watch.poll_deleted(cx)) {
            Some(epoch) => Poll::Ready(Some(Ok(Observed { epoch, value: None }))),
            None => Poll::Pending,
        }
    }

    /// Whether the stream has begun a read that has not ended. [`changed`](Self::changed) does not wait then.
    pub fn is_reading(&self) -> bool {
        self.watch.tries.attempt.is_some()
    }

    /// The next value: at the first call the present one, later the one after a change. `None` if the znode does not
    /// exist.
    ///
    /// Values between the last one returned and the newest may be skipped. The newest is never missed. A deletion is
    /// returned as soon as it is known. Within one session the same state is never returned twice. In each new session the
    /// value is returned once, changed or not.
    ///
    /// It waits for as long as nothing changes, and while there is no session or no connection.
    ///
    /// # Errors
    /// [`WatchError::Refused`] at once if the path is invalid, or ZooKeeper refuses the read, for example for lack of
    /// permission. [`WatchError::Closed`] when the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next(&mut self) -> Result<Observed<Option<Node>>, WatchError> {
        Next(&mut self.watch).await
    }

    /// [`next`](Self::next) for a program that waits until what refuses the watch is corrected: asks again, with pauses of
    /// seconds, until there is a value. The first refusal is logged.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next_allowed(&mut self) -> Result<Observed<Option<Node>>, Closed> {
        next_allowed(&mut self.watch).await
    }
}

/// A znode's children and their changes. From [`Session::watch_children`](crate::Session::watch_children).
///
/// As a [`Stream`] it yields what [`next`](Self::next) returns, and ends when the session is closed. An error does not end
/// it: polled again, it asks again after a pause.
///
/// # Cancel safety
/// No value is lost when the future of `next` or of `StreamExt::next` is dropped. A read that is under way is abandoned
/// with the future of `next`, and repeated by the next call. The stream keeps it. Drop a stream that is no longer polled:
/// its read may occupy one of the session's 512 requests.
pub struct ChildrenWatch {
    watch: Watch<Children>,
}

impl ChildrenWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: Arc<str>) -> Self {
        Self { watch: Watch::new(shared, path) }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.tries.path
    }

    /// The next value: at the first call the present names of the children, later those after a change. `None` if the
    /// znode does not exist.
    ///
    /// Values between the last one returned and the newest may be skipped. The newest is never missed. A deletion is
    /// returned as soon as it is known. Within one session the same state is never returned twice. In each new session the
    /// value is returned once, changed or not.
    ///
    /// It waits for as long as nothing changes, and while there is no session or no connection.
    ///
    /// # Errors
    /// [`WatchError::Refused`] at once if the path is invalid, or ZooKeeper refuses the read, for example for lack of
    /// permission. [`WatchError::Closed`] when the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next(&mut self) -> Result<Observed<Option<Children>>, WatchError> {
        Next(&mut self.watch).await
    }

    /// [`next`](Self::next) for a program that waits until what refuses the watch is corrected: asks again, with pauses of
    /// seconds, until there is a value. The first refusal is logged.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    pub async fn next_allowed(&mut self) -> Result<Observed<Option<Children>>, Closed> {
        next_allowed(&mut self.watch).await
    }
}

/// The stream of a watch, and its `Debug`, both by the one field that it has.
macro_rules! watch_stream {
    ($($watch:ident of $value:ty),*) => {
        $(
            impl Stream for $watch {
                type Item = Result<Observed<Option<$value>>, OpError>;

                fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
                    self.watch.poll_next(cx).map(item)
                }
            }

            impl fmt::Debug for $watch {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($watch)).field("path", &self.path()).finish_non_exhaustive()
                }
            }
        )*
    };
}

watch_stream!(DataWatch of Node, ChildrenWatch of Children);

/// What `next` and the stream of a watch have in common.
pub(crate) trait PollNext {
    type Item;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Item, WatchError>>;

    /// Drops the attempt under way, if any. The next poll begins another one.
    fn abandon(&mut self);
}

/// An item of a stream, which ends when the session is closed.
pub(crate) fn item<T>(next: Result<T, WatchError>) -> Option<Result<T, OpError>> {
    match next {
        Ok(value) => Some(Ok(value)),
        Err(WatchError::Refused(error)) => Some(Err(error)),
        Err(WatchError::Closed(Closed)) => None,
    }
}

/// The next item, once nothing refuses it.
pub(crate) async fn next_allowed<W: PollNext>(watch: &mut W) -> Result<W::Item, Closed> {
    loop {
        match Next(watch).await {
            Ok(value) => return Ok(value),
            // The next attempt has a pause before it.
            Err(WatchError::Refused(_)) => {}
            Err(WatchError::Closed(closed)) => return Err(closed),
        }
    }
}

/// The next item of a watch. When it is dropped, the attempt under way is dropped, so no attempt stays unpolled.
pub(crate) struct Next<'a, W: PollNext>(pub(crate) &'a mut W);

impl<W: PollNext> Future for Next<'_, W> {
    type Output = Result<W::Item, WatchError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_next(cx)
    }
}

impl<W: PollNext> Drop for Next<'_, W> {
    fn drop(&mut self) {
        self.0.abandon();
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
    fn rely(&self, _armed: &ArmedOnce, _path: &Arc<str>) {}
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

    fn rely(&self, armed: &ArmedOnce, path: &Arc<str>) {
        let owner = SessionId(self.stat.ephemeral_owner);
        armed.inner.rely(armed.id, path, owner, self.stat.version);
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

/// What both kinds have in common: when to read again, and whether the value has changed.
struct Watch<T: Watched> {
    tries: Tries<(Option<T>, ArmedOnce)>,
    armed: Option<ArmedOnce>,
    /// The last event was a deletion, so there is probably nothing to read.
    deleted: bool,
    last: Option<(Epoch, Option<T::Seen>)>,
}

impl<T: Watched> Watch<T> {
    fn new(shared: Arc<Shared>, path: Arc<str>) -> Self {
        Self { tries: Tries::new(shared, path), armed: None, deleted: false, last: None }
    }

    fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Whoever waits before the read may find another znode there.
        self.poll_fired(cx).map(|_| self.deleted = false)
    }

    /// Ready when it is time to read; with the session if the reason is a deletion.
    fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Epoch>> {
        let Some(armed) = &mut self.armed else { return Poll::Ready(None) };
        let kind = ready!(armed.poll_fired(cx));
        let epoch = armed.inner.epoch;
        self.armed = None;
        self.deleted = kind == Some(WatchKind::Deleted);
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
            value.rely(&armed, &self.tries.path);
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

impl<T: Watched> PollNext for Watch<T> {
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

    fn abandon(&mut self) {
        self.tries.abandon();
    }
}

type Attempt<T> = BoxFuture<'static, Result<Result<T, OpError>, Closed>>;

/// Attempts to set a watch, with pauses between them.
pub(crate) struct Tries<T> {
    shared: Arc<Shared>,
    pub(crate) path: Arc<str>,
    /// There after an attempt that has failed.
    failed: Option<Box<RetryDue>>,
    /// The attempt under way. The mutex makes it `Sync`; it is never locked. On the heap, because there is none while the
    /// watch is set.
    attempt: Option<Box<Mutex<Attempt<T>>>>,
}

/// When the next attempt is due.
struct RetryDue {
    backoff: Backoff,
    not_before: BootTime,
}

impl<T: 'static> Tries<T> {
    pub(crate) fn new(shared: Arc<Shared>, path: Arc<str>) -> Self {
        Self { shared, path, failed: None, attempt: None }
    }

    /// Waits until it is time for an attempt and there is a session, makes it, and repeats that until one succeeds or is
    /// refused.
    pub(crate) fn poll<F>(
        &mut self,
        cx: &mut Context<'_>,
        set: impl Fn(Incarnation, Arc<str>) -> F + Copy + Send + 'static,
    ) -> Poll<Result<T, WatchError>>
    where
        F: Future<Output = Result<T, OpError>> + Send + 'static,
    {
        loop {
            let attempt = self.attempt.get_or_insert_with(|| {
                let (shared, path) = (Arc::clone(&self.shared), Arc::clone(&self.path));
                let not_before = self.failed.as_ref().map(|failed| failed.not_before);
                Box::new(Mutex::new(Box::pin(async move {
                    if let Some(not_before) = not_before {
                        shared.sleep(not_before).await.map_err(|_| Closed)?;
                    }
                    if let Err(invalid) = check(&path) {
                        return Ok(Err(invalid));
                    }
                    let incarnation = shared.active().await?;
                    // On the heap: the wait for a session may be long, and would otherwise be as large as this.
                    Ok(Box::pin(set(incarnation, path)).await)
                })))
            });
            let attempt = attempt.get_mut().unwrap_or_else(PoisonError::into_inner);
            let outcome = ready!(attempt.as_mut().poll(cx));
            self.attempt = None;
            match outcome? {
                Ok(taken) => {
                    self.failed = None;
                    return Poll::Ready(Ok(taken));
                }
                Err(error) => {
                    if self.failed.is_none() && !error.is_session_over() {
                        warn!(parent: &self.shared.span, path = %self.path, %error, "cannot set a watch");
                    }
                    let mut backoff = self.failed.take().map_or(BACKOFF, |failed| failed.backoff);
                    let not_before = BootTime::now() + backoff.next();
                    self.failed = Some(Box::new(RetryDue { backoff, not_before }));
                    if error.is_refused() {
                        return Poll::Ready(Err(WatchError::Refused(error)));
                    }
                }
            }
        }
    }

    pub(crate) fn abandon(&mut self) {
        self.attempt = None;
    }
}

/// Reads what is there and watches it, or watches for it to be created. The latter first if it is probably `absent`.
async fn read<T: Watched>(
    incarnation: Incarnation,
    path: Arc<str>,
    mut absent: bool,
) -> Result<(Option<T>, ArmedOnce), OpError> {
    let (absolute, mut attempts) = incarnation.begin(&path)?;
    let exists = Request::Exists { path: absolute.as_str().into(), watch: true };
    loop {
        if !std::mem::take(&mut absent) {
            match attempts.read_and_watch(&T::request(&absolute), Inner::prepare_watch).await? {
                (Ok(reply), armed) => return Ok((Some(T::take(&attempts, reply)?), armed)),
                (Err(ErrorCode::NO_NODE), _) => {}
                (Err(code), _) => return Err(attempts.refused(code)),
            }
        }
        match attempts.read_and_watch(&exists, Inner::prepare_watch).await? {
            // Created meanwhile.
            (Ok(_), _) => {}
            (Err(ErrorCode::NO_NODE), armed) => return Ok((None, armed)),
            (Err(code), _) => return Err(attempts.refused(code)),
        }
    }
}
