//! Changes that watches report, until they are taken, and what waits for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use zk_proto::WatchId;
pub use zk_proto::WatchKind as ChangeKind;

use crate::lock::lock;
use crate::node::Epoch;

/// The most changes that wait to be taken; further ones are one gap.
const MOST_WAITING: usize = 1024;

/// An item of a lasting watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The session on which it was reported.
    pub epoch: Epoch,
    /// The znode. For [`ChangeKind::Gap`] the one that is watched.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// Changes that one watch has seen and its user has not yet taken.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<(ChangeKind, String)>>,
    waker: AtomicWaker,
}

impl Queue {
    fn put(&self, kind: ChangeKind, absolute: String) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < MOST_WAITING {
            waiting.push_back((kind, absolute));
        } else if !matches!(waiting.back(), Some((ChangeKind::Gap, _))) {
            waiting.push_back((ChangeKind::Gap, absolute));
        }
        drop(waiting);
        self.waker.wake();
    }

    /// The oldest change.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<(ChangeKind, String)> {
        self.waker.register(cx.waker());
        let mut waiting = lock(&self.waiting);
        let change = waiting.pop_front();
        if waiting.is_empty() {
            // The memory of a burst is given back.
            *waiting = VecDeque::new();
        }
        change.map_or(Poll::Pending, Poll::Ready)
    }
}

/// What waits for a watch.
#[derive(Clone)]
pub(crate) struct Waiter {
    pub(crate) queue: Arc<Queue>,
    /// Otherwise it waits for one event.
    pub(crate) is_lasting: bool,
}

/// One table for all watches of a session: there may be thousands.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<WatchId, Waiter>>);

impl Waiters {
    pub(crate) fn insert(&self, id: WatchId, waiter: Waiter) {
        lock(&self.0).insert(id, waiter);
    }

    /// Returns whether it was waited for.
    pub(crate) fn remove(&self, id: WatchId) -> bool {
        lock(&self.0).remove(&id).is_some()
    }

    pub(crate) fn fire(&self, id: WatchId, kind: ChangeKind, absolute: String) {
        let mut table = lock(&self.0);
        let Some(waiter) = table.get(&id).cloned() else { return };
        if !waiter.is_lasting {
            table.remove(&id);
        }
        drop(table);
        waiter.queue.put(kind, absolute);
    }

    /// The session is over: everything wakes up.
    pub(crate) fn end(&self) {
        let mut lost: Vec<_> = lock(&self.0).drain().collect();
        lost.sort_unstable_by_key(|(id, _)| *id);
        lost.iter().for_each(|(_, waiter)| waiter.queue.waker.wake());
    }
}
