//! Watches that stay: every change of a znode and its children, or of a whole tree, one by one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;
use zk_proto::{Request, WatchId, WatchKind, WatchMode};

use crate::attempts::Attempts;
use crate::backoff::Backoff;
use crate::error::{Closed, OpError};
use crate::incarnation::{Incarnation, Inner, lock};
use crate::node::Epoch;
use crate::operations::check;
use crate::shared::Shared;
use crate::time::BootTime;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

/// Changes that wait for who watches; beyond that they are one gap.
const MOST_WAITING: usize = 1024;

/// What a lasting watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The session on which it was told.
    pub epoch: Epoch,
    /// The znode. For [`ChangeKind::Gap`] the one that is watched.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
    /// Its data was replaced.
    DataChanged,
    /// A child was created or deleted. Not told of trees, where the child itself is.
    ChildrenChanged,
    /// Anything may have happened that was not told: read what matters again. The first that is told, and told again
    /// after each reconnect, in each new session, and where changes came faster than they were taken.
    Gap,
}

impl From<WatchKind> for ChangeKind {
    fn from(kind: WatchKind) -> Self {
        match kind {
            WatchKind::Created => Self::Created,
            WatchKind::Deleted => Self::Deleted,
            WatchKind::DataChanged => Self::DataChanged,
            WatchKind::ChildrenChanged => Self::ChildrenChanged,
            WatchKind::Gap => Self::Gap,
        }
    }
}

/// Changes of a znode and its children, or of a tree. From [`Session::watch_each`](crate::Session::watch_each) and
/// [`Session::watch_tree`](crate::Session::watch_tree).
///
/// A [`DataWatch`](crate::DataWatch) tells the newest value and skips those between; this tells each change, and no
/// values. Servers know it from 3.6 on.
pub struct ChangeWatch {
    shared: Arc<Shared>,
    path: String,
    mode: WatchMode,
    armed: Option<Armed>,
    backoff: Backoff,
    not_before: Option<BootTime>,
}

impl ChangeWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String, mode: WatchMode) -> Self {
        Self { shared, path, mode, armed: None, backoff: BACKOFF, not_before: None }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The next change, [`ChangeKind::Gap`] at first.
    ///
    /// If the znode can't be watched, say by a server before 3.6, that is logged and tried again, with pauses of seconds.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: no change is lost.
    pub async fn next(&mut self) -> Result<Change, Closed> {
        loop {
            if let Some(armed) = &mut self.armed {
                match armed.next().await {
                    Some(change) => return Ok(change),
                    None => self.armed = None,
                }
            }
            if let Some(not_before) = self.not_before {
                self.shared.sleep(not_before).await.map_err(|_| Closed)?;
                self.not_before = None;
            }
            let incarnation = self.shared.active().await?;
            match Box::pin(arm(&incarnation, &self.path, self.mode)).await {
                Ok(armed) => {
                    self.backoff = BACKOFF;
                    let (epoch, path) = (incarnation.epoch(), self.path.clone());
                    self.armed = Some(armed);
                    return Ok(Change { epoch, path, kind: ChangeKind::Gap });
                }
                Err(error) => {
                    if self.backoff.attempts() == 0 && !error.is_session_over() {
                        warn!(path = %self.path, %error, "watch: can't be set, trying again");
                    }
                    self.not_before = Some(BootTime::now() + self.backoff.next());
                }
            }
        }
    }
}

impl std::fmt::Debug for ChangeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeWatch")
            .field("path", &self.path)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

async fn arm(incarnation: &Incarnation, path: &str, mode: WatchMode) -> Result<Armed, OpError> {
    check(path)?;
    let inner = &incarnation.inner;
    let request = Request::AddWatch { path: inner.absolute(path).into(), mode: mode.number() };
    let mut attempts = Attempts::new(inner, path);
    loop {
        let queue = Arc::<Queue>::default();
        let armed = Armed {
            id: inner.prepare_lasting(Sink(Arc::clone(&queue))),
            path: path.to_owned(),
            inner: Arc::clone(inner),
            queue,
        };
        match attempts.read_armed(&request, armed.id).await? {
            Some(Ok(_)) => return Ok(armed),
            Some(Err(code)) => return Err(attempts.refused(code)),
            None => {}
        }
    }
}

/// Where the changes of one watch are put.
pub(crate) struct Sink(Arc<Queue>);

/// Changes that were told and not yet taken.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<(WatchKind, String)>,
    /// Changes were left out behind these: a gap comes next, and until it is taken everything is left out. Otherwise what
    /// happened after the gap would be told before it.
    overflown: bool,
}

impl Sink {
    pub(crate) fn put(&self, kind: WatchKind, absolute: String) {
        let mut waiting = lock(&self.0.waiting);
        if waiting.overflown || waiting.changes.len() >= MOST_WAITING {
            waiting.overflown = true;
        } else {
            waiting.changes.push_back((kind, absolute));
        }
        drop(waiting);
        self.0.news.notify_one();
    }
}

impl Waiting {
    /// The oldest, `None` for a gap.
    fn take(&mut self) -> Option<Option<(WatchKind, String)>> {
        match self.changes.pop_front() {
            Some(change) => {
                if self.changes.is_empty() {
                    // A crowd that has passed leaves no memory behind.
                    self.changes = VecDeque::new();
                }
                Some(Some(change))
            }
            None => std::mem::take(&mut self.overflown).then_some(None),
        }
    }
}

struct Armed {
    id: WatchId,
    path: String,
    inner: Arc<Inner>,
    queue: Arc<Queue>,
}

impl Armed {
    /// `None` once its session is over.
    async fn next(&mut self) -> Option<Change> {
        let epoch = self.inner.epoch();
        loop {
            if self.inner.over_token().is_cancelled() {
                return None;
            }
            let taken = lock(&self.queue.waiting).take();
            if let Some(change) = taken {
                let (kind, path) = match change {
                    None | Some((WatchKind::Gap, _)) => (ChangeKind::Gap, self.path.clone()),
                    Some((kind, absolute)) => (kind.into(), self.inner.relative(&absolute)),
                };
                return Some(Change { epoch, path, kind });
            }
            tokio::select! {
                () = self.inner.over_token().cancelled() => return None,
                () = self.queue.news.notified() => {}
            }
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.inner.forget(self.id);
    }
}
