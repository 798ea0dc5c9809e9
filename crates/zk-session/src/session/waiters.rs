//! What waits for the watches of one session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use zk_proto::{WatchId, WatchKind};

use crate::lock::lock;
use crate::session::changes::Queue;

/// What waits for a watch.
pub(crate) enum Waiter {
    /// The watch is armed, or about to be. With the task that waits for it.
    Once(Option<Waker>),
    /// It has fired.
    Fired(WatchKind),
    Lasting(Arc<Queue>),
}

/// One table for all watches of a session: there may be thousands.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<WatchId, Waiter>>);

impl Waiters {
    pub(crate) fn insert(&self, id: WatchId, waiter: Waiter) {
        lock(&self.0).insert(id, waiter);
    }

    pub(crate) fn remove(&self, id: WatchId) -> Option<Waiter> {
        lock(&self.0).remove(&id)
    }

    pub(crate) fn fire(&self, id: WatchId, kind: WatchKind, absolute: String) {
        let mut table = lock(&self.0);
        let Some(waiter) = table.get_mut(&id) else { return };
        match waiter {
            Waiter::Lasting(queue) => queue.put(kind, absolute),
            Waiter::Once(waker) => {
                let waker = waker.take();
                *waiter = Waiter::Fired(kind);
                drop(table);
                waker.into_iter().for_each(Waker::wake);
            }
            Waiter::Fired(_) => {}
        }
    }

    /// Ready when that watch has fired, with what happened, or when the session is over.
    pub(crate) fn poll_fired(&self, id: WatchId, cx: &mut Context<'_>) -> Poll<Option<WatchKind>> {
        match lock(&self.0).get_mut(&id) {
            Some(Waiter::Once(Some(known))) => known.clone_from(cx.waker()),
            Some(Waiter::Once(none)) => *none = Some(cx.waker().clone()),
            Some(Waiter::Fired(kind)) => return Poll::Ready(Some(*kind)),
            Some(Waiter::Lasting(_)) | None => return Poll::Ready(None),
        }
        Poll::Pending
    }

    /// The session is over: everything wakes up. What has fired before the end counts.
    pub(crate) fn end(&self) {
        let is_lost = |_: &WatchId, waiter: &mut Waiter| !matches!(waiter, Waiter::Fired(_));
        let mut lost: Vec<_> = lock(&self.0).extract_if(is_lost).collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        for (_, waiter) in lost {
            match waiter {
                Waiter::Lasting(queue) => queue.wake(),
                Waiter::Once(waker) => waker.into_iter().for_each(Waker::wake),
                Waiter::Fired(_) => {}
            }
        }
    }
}
