//! A watch on the server, from before it is armed until its user has no more use for it.

use std::sync::Arc;
use std::task::{Context, Poll};

use zk_proto::{WatchId, WatchKind};

use crate::session::changes::Queue;
use crate::session::incarnation::Inner;
use crate::session::waiters::Waiter;

/// A watch on the server, given up when this is dropped.
pub(crate) struct Armed<T> {
    pub(crate) id: WatchId,
    /// Where the events of a lasting watch arrive.
    pub(crate) news: T,
    pub(crate) inner: Arc<Inner>,
}

/// A watch that fires once.
pub(crate) type ArmedOnce = Armed<()>;

impl<T> Armed<T> {
    fn new(inner: &Arc<Inner>, waiter: Waiter, news: T) -> Self {
        let id = inner.next_watch();
        inner.waiters.insert(id, waiter);
        if inner.has_ended() {
            // The end has cleared the table, perhaps before the insertion.
            inner.waiters.remove(id);
        }
        Self { id, news, inner: Arc::clone(inner) }
    }
}

impl ArmedOnce {
    /// About to be armed.
    pub(crate) fn once(inner: &Arc<Inner>) -> Self {
        Self::new(inner, Waiter::Once(None), ())
    }

    /// Ready when the watch has fired, with what happened, or when its session is over.
    pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchKind>> {
        self.inner.waiters.poll_fired(self.id, cx)
    }
}

impl Armed<Arc<Queue>> {
    /// The same for one that stays.
    pub(crate) fn lasting(inner: &Arc<Inner>) -> Self {
        let news = Arc::<Queue>::default();
        Self::new(inner, Waiter::Lasting(Arc::clone(&news)), news)
    }
}

impl<T> Drop for Armed<T> {
    fn drop(&mut self) {
        self.inner.reliance.end(self.id);
        // The server has nothing to forget of a watch that has fired.
        if let Some(Waiter::Once(_) | Waiter::Lasting(_)) = self.inner.waiters.remove(self.id) {
            self.inner.driver.forget(self.id);
        }
    }
}
