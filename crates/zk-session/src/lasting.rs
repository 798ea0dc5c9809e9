//! Watches that stay: every change of a znode and its children, or of a whole tree, one by one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
pub use zk_proto::WatchKind as ChangeKind;
use zk_proto::{Request, WatchMode};

use crate::error::{Closed, OpError};
use crate::incarnation::{Armed, Incarnation, Inner, lock};
use crate::node::Epoch;
use crate::shared::Shared;
use crate::watching::Tries;

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

/// Changes of a znode and its children, or of a tree. From [`Session::watch_each`](crate::Session::watch_each) and
/// [`Session::watch_tree`](crate::Session::watch_tree).
///
/// A [`DataWatch`](crate::DataWatch) tells the newest value and skips those between; this tells each change, and no
/// values. Servers know it from 3.6 on.
#[derive(Debug)]
pub struct ChangeWatch {
    tries: Tries,
    mode: WatchMode,
    armed: Option<Armed<Arc<Queue>>>,
}

impl ChangeWatch {
    pub(crate) fn new(shared: Arc<Shared>, path: String, mode: WatchMode) -> Self {
        Self { tries: Tries::new(shared, path), mode, armed: None }
    }

    /// The path that is watched.
    pub fn path(&self) -> &str {
        &self.tries.path
    }

    /// The next change: [`ChangeKind::Gap`] at first, and again after each reconnect, in each new session, and where changes
    /// came faster than they were taken.
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
                match armed.next(&self.tries.path).await {
                    Some(change) => return Ok(change),
                    None => self.armed = None,
                }
            }
            let incarnation = self.tries.session().await?;
            let armed = Box::pin(arm(&incarnation, &self.tries.path, self.mode)).await;
            if let Some(armed) = self.tries.take(armed) {
                self.armed = Some(armed);
                let (epoch, path) = (incarnation.epoch(), self.tries.path.clone());
                return Ok(Change { epoch, path, kind: ChangeKind::Gap });
            }
        }
    }
}

async fn arm(incarnation: &Incarnation, path: &str, mode: WatchMode) -> Result<Armed<Arc<Queue>>, OpError> {
    let (absolute, mut attempts) = incarnation.begin(path)?;
    let request = Request::AddWatch { path: absolute.into(), mode: mode.number() };
    match attempts.read_and_watch(&request, Inner::prepare_lasting).await? {
        (Ok(_), armed) => Ok(armed),
        (Err(code), _) => Err(attempts.refused(code)),
    }
}

/// Changes that were told to one watch and not yet taken.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<(ChangeKind, String)>>,
    more: Notify,
}

impl Queue {
    pub(crate) fn put(&self, kind: ChangeKind, absolute: String) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < MOST_WAITING {
            waiting.push_back((kind, absolute));
        } else if !matches!(waiting.back(), Some((ChangeKind::Gap, _))) {
            waiting.push_back((ChangeKind::Gap, absolute));
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// The oldest.
    fn take(&self) -> Option<(ChangeKind, String)> {
        let mut waiting = lock(&self.waiting);
        let change = waiting.pop_front();
        if waiting.is_empty() {
            // A crowd that has passed leaves no memory behind.
            *waiting = VecDeque::new();
        }
        change
    }
}

impl Armed<Arc<Queue>> {
    /// The next change of what is watched at `path`; `None` once its session is over.
    async fn next(&mut self, path: &str) -> Option<Change> {
        let epoch = self.inner.epoch;
        loop {
            if self.inner.over.is_cancelled() {
                return None;
            }
            if let Some((kind, absolute)) = self.news.take() {
                let is_gap = kind == ChangeKind::Gap;
                let path = if is_gap { path.to_owned() } else { self.inner.relative(&absolute) };
                return Some(Change { epoch, path, kind });
            }
            tokio::select! {
                () = self.inner.over.cancelled() => return None,
                () = self.news.more.notified() => {}
            }
        }
    }
}
