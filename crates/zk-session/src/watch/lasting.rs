//! Lasting watches: each change of a znode and its children, or of a whole tree.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use zk_proto::{Request, WatchMode};

use crate::error::{OpError, WatchError};
use crate::session::armed::Armed;
use crate::session::changes::{Change, ChangeKind};
use crate::session::incarnation::Incarnation;
use crate::session::shared::View;
use crate::watch::stream::{Source, Watch};
use crate::watch::tries::Tries;

/// Changes of a znode and its children, or of a tree. From [`Session::watch_each`](crate::Session::watch_each) and
/// [`Session::watch_tree`](crate::Session::watch_tree). It needs servers from 3.6 on, and is refused by others.
///
/// A [`DataWatch`](crate::DataWatch) returns the newest value and skips those between. A `ChangeWatch` returns each change,
/// without values: [`ChangeKind::Gap`] at first, and again after each reconnect, in each new session, and where changes came
/// faster than they were taken.
pub type ChangeWatch = Watch<Lasting>;

impl ChangeWatch {
    pub(crate) fn lasting(view: View, path: Arc<str>, mode: WatchMode) -> Self {
        Self { source: Lasting { tries: Tries::new(view, path), mode, armed: None } }
    }
}

/// The changes that a lasting watch reports.
pub struct Lasting {
    tries: Tries<Armed>,
    mode: WatchMode,
    armed: Option<Armed>,
}

impl Source for Lasting {
    type Item = Change;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Change, WatchError>> {
        // What is left of a session that is over is not taken: there is a gap in any case.
        if let Some(armed) = self.armed.as_ref().filter(|armed| !armed.inner.has_ended())
            && let Some((kind, absolute)) = ready!(armed.poll_next(cx))
        {
            let path = match kind {
                ChangeKind::Gap => self.tries.path.to_string(),
                _ => self.tries.view.scope.relative(&absolute),
            };
            return Poll::Ready(Ok(Change { epoch: armed.inner.epoch, path, kind }));
        }
        self.armed = None;
        let mode = self.mode;
        let set = move |incarnation, path| set(incarnation, path, mode);
        let armed = ready!(self.tries.poll(cx, set))?;
        let (epoch, path) = (armed.inner.epoch, self.tries.path.to_string());
        self.armed = Some(armed);
        Poll::Ready(Ok(Change { epoch, path, kind: ChangeKind::Gap }))
    }

    fn path(&self) -> &str {
        &self.tries.path
    }

    fn abandon(&mut self) {
        self.tries.attempt = None;
    }
}

async fn set(incarnation: Incarnation, path: Arc<str>, mode: WatchMode) -> Result<Armed, OpError> {
    let (absolute, mut attempts) = incarnation.begin(&path)?;
    let request = Request::AddWatch { path: absolute.into(), mode: mode.number() };
    match attempts.read_and_watch(&request, Armed::lasting).await? {
        (Ok(_), armed) => Ok(armed),
        (Err(code), _) => Err(attempts.refused(code)),
    }
}
