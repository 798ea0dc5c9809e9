//! Changes that lasting watches report, until they are taken.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

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
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    waiting: VecDeque<(ChangeKind, String)>,
    waker: Option<Waker>,
}

impl Queue {
    pub(crate) fn put(&self, kind: ChangeKind, absolute: String) {
        let mut held = lock(&self.held);
        if held.waiting.len() < MOST_WAITING {
            held.waiting.push_back((kind, absolute));
        } else if !matches!(held.waiting.back(), Some((ChangeKind::Gap, _))) {
            held.waiting.push_back((ChangeKind::Gap, absolute));
        }
        drop(held);
        self.wake();
    }

    /// There is a change to take, or the session is over.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.held).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The oldest change.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<(ChangeKind, String)> {
        let mut held = lock(&self.held);
        let change = held.waiting.pop_front();
        if held.waiting.is_empty() {
            // The memory of a burst is given back.
            held.waiting = VecDeque::new();
        }
        match change {
            Some(change) => Poll::Ready(change),
            None => {
                held.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
