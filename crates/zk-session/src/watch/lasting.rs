//! Lasting watches: each change of a znode and its children, or of a whole tree.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use zk_proto::{Request, WatchMode};

use crate::error::{Closed, OpError, WatchError};
use crate::session::changes::{Change, ChangeKind, Queue};
use crate::session::incarnation::{Armed, Incarnation, Inner};
use crate::session::shared::Shared;
use crate::watch::value::{Next, PollNext, Tries, item, next_allowed};

/// Changes of a znode and its children, or of a tree. From [`Session::watch_each`](crate::Session::watch_each) and
/// [`Session::watch_tree`](crate::Session::watch_tree).
///
/// A [`DataWatch`](crate::DataWatch) returns the newest value and skips those between. A `ChangeWatch` returns each change,
/// without values. It needs servers from 3.6 on.
///
/// As a [`Stream`] it yields what [`next`](Self::next) returns, and ends when the session is closed. An error does not end
/// it: polled again, it asks again after a pause.
///
/// # Cancel safety
/// No change is lost when the future of `next` or of `StreamExt::next` is dropped. A request that sets the watch and is
/// under way is abandoned with the future of `next`, and repeated by the next call. The stream keeps it. Drop a stream that
/// is no longer polled: its request may occupy one of the session's 512 requests.
pub struct ChangeWatch {
    watch: Lasting,
}

impl ChangeWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: Arc<str>, mode: WatchMode) -> Self {
        Self { watch: Lasting { tries: Tries::new(shared, path), mode, armed: None } }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.watch.tries.path
    }

    /// The next change: [`ChangeKind::Gap`] at first, and again after each reconnect, in each new session, and where
    /// changes came faster than they were taken.
    ///
    /// It waits for as long as nothing changes, and while there is no session or no connection.
    ///
    /// # Errors
    /// [`WatchError::Refused`] at once if the path is invalid, or ZooKeeper refuses the watch, as a server before 3.6 does.
    /// [`WatchError::Closed`] when the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no change is lost.
    pub async fn next(&mut self) -> Result<Change, WatchError> {
        Next(&mut self.watch).await
    }

    /// [`next`](Self::next) for a program that waits until what refuses the watch is corrected: asks again, with pauses of
    /// seconds, until there is a change. The first refusal is logged.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no change is lost.
    pub async fn next_allowed(&mut self) -> Result<Change, Closed> {
        next_allowed(&mut self.watch).await
    }
}

impl Stream for ChangeWatch {
    type Item = Result<Change, OpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.watch.poll_next(cx).map(item)
    }
}

impl fmt::Debug for ChangeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeWatch").field("path", &self.path()).finish_non_exhaustive()
    }
}

struct Lasting {
    tries: Tries<Armed<Arc<Queue>>>,
    mode: WatchMode,
    armed: Option<Armed<Arc<Queue>>>,
}

impl PollNext for Lasting {
    type Item = Change;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Change, WatchError>> {
        if let Some(armed) = &mut self.armed {
            match ready!(armed.poll_next(cx, &self.tries.path)) {
                Some(change) => return Poll::Ready(Ok(change)),
                None => self.armed = None,
            }
        }
        let mode = self.mode;
        let set = move |incarnation, path| set(incarnation, path, mode);
        let armed = ready!(self.tries.poll(cx, set))?;
        let (epoch, path) = (armed.inner.epoch, self.tries.path.to_string());
        self.armed = Some(armed);
        Poll::Ready(Ok(Change { epoch, path, kind: ChangeKind::Gap }))
    }

    fn abandon(&mut self) {
        self.tries.abandon();
    }
}

async fn set(
    incarnation: Incarnation,
    path: Arc<str>,
    mode: WatchMode,
) -> Result<Armed<Arc<Queue>>, OpError> {
    let (absolute, mut attempts) = incarnation.begin(&path)?;
    let request = Request::AddWatch { path: absolute.into(), mode: mode.number() };
    match attempts.read_and_watch(&request, Inner::prepare_lasting).await? {
        (Ok(_), armed) => Ok(armed),
        (Err(code), _) => Err(attempts.refused(code)),
    }
}

impl Armed<Arc<Queue>> {
    /// The next change of what is watched at `path`; `None` once its session is over.
    fn poll_next(&mut self, cx: &mut Context<'_>, path: &str) -> Poll<Option<Change>> {
        let epoch = self.inner.epoch;
        if self.inner.over.is_cancelled() {
            return Poll::Ready(None);
        }
        match self.news.poll_take(cx) {
            Poll::Ready((kind, absolute)) => {
                let is_gap = kind == ChangeKind::Gap;
                let path = if is_gap { path.to_owned() } else { self.inner.relative(&absolute) };
                Poll::Ready(Some(Change { epoch, path, kind }))
            }
            // The end of the session cancels first and wakes then: it may have come before there was a waker.
            Poll::Pending if self.inner.over.is_cancelled() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
