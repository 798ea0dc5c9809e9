//! A watch on the server, from before it is armed until its user has no more use for it.

use std::sync::Arc;
use std::task::{Context, Poll};

use zk_proto::WatchId;

use crate::session::changes::{ChangeKind, Queue, Waiter};
use crate::session::incarnation::Inner;

/// A watch on the server, given up when this is dropped.
pub(crate) struct Armed {
    pub(crate) id: WatchId,
    /// Where its events arrive.
    news: Arc<Queue>,
    pub(crate) inner: Arc<Inner>,
}

impl Armed {
    /// About to be armed, to fire once.
    pub(crate) fn once(inner: &Arc<Inner>) -> Self {
        Self::new(inner, false)
    }

    /// The same for one that stays.
    pub(crate) fn lasting(inner: &Arc<Inner>) -> Self {
        Self::new(inner, true)
    }

    fn new(inner: &Arc<Inner>, is_lasting: bool) -> Self {
        let (id, news) = (inner.next_watch(), Arc::<Queue>::default());
        inner.waiters.insert(id, Waiter { queue: Arc::clone(&news), is_lasting });
        if inner.has_ended() {
            // The end has cleared the table, perhaps before the insertion.
            inner.waiters.remove(id);
        }
        Self { id, news, inner: Arc::clone(inner) }
    }

    /// What happened, and where; `None` when its session is over. What has arrived before the end counts.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<(ChangeKind, String)>> {
        match self.news.poll_take(cx) {
            Poll::Ready(event) => Poll::Ready(Some(event)),
            // The end of the session is published first, and wakes then: it may have come before there was a waker.
            Poll::Pending if self.inner.has_ended() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.inner.reliance.end(self.id);
        // The server has nothing to forget of a watch that has fired.
        if self.inner.waiters.remove(self.id) {
            self.inner.driver.forget(self.id);
        }
    }
}
