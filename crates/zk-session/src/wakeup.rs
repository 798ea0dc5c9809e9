//! Wakes tasks that poll the state and the lease of a session.

use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::lock::lock;

/// Wakes one task whenever the state of the session or its lease changes. From [`Session::wakeup`](crate::Session::wakeup).
///
/// For a task that polls: ask [`Receiver::has_changed`](tokio::sync::watch::Receiver::has_changed) of
/// [`Session::subscribe`](crate::Session::subscribe) or [`LeaseKeeper::subscribe`](crate::LeaseKeeper::subscribe) after
/// [`register`](Self::register). Waiting for both in an `async` function is simpler, and takes some hundred bytes of each task.
#[derive(Debug)]
pub struct Wakeup {
    bell: Arc<Bell>,
    at: usize,
}

impl Wakeup {
    /// The task to wake at each change from now on. It replaces the one before.
    pub fn register(&mut self, waker: &Waker) {
        let mut listeners = lock(&self.bell.listeners);
        match &mut listeners.slots[self.at] {
            Slot::Wakes(known) if known.will_wake(waker) => {}
            slot => *slot = Slot::Wakes(waker.clone()),
        }
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        let mut listeners = lock(&self.bell.listeners);
        let free = Slot::Free { next: listeners.free };
        let gone = std::mem::replace(&mut listeners.slots[self.at], free);
        listeners.free = Some(self.at);
        // A waker is dropped without the lock.
        drop(listeners);
        drop(gone);
    }
}

/// The tasks to wake.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    slots: Vec<Slot>,
    /// The first free slot.
    free: Option<usize>,
}

#[derive(Debug)]
enum Slot {
    Free { next: Option<usize> },
    Quiet,
    Wakes(Waker),
}

impl Bell {
    pub(crate) fn listen(self: &Arc<Self>) -> Wakeup {
        let mut listeners = lock(&self.listeners);
        let at = match listeners.free {
            Some(at) => {
                if let Slot::Free { next } = listeners.slots[at] {
                    listeners.free = next;
                }
                listeners.slots[at] = Slot::Quiet;
                at
            }
            None => {
                listeners.slots.push(Slot::Quiet);
                listeners.slots.len() - 1
            }
        };
        Wakeup { bell: Arc::clone(self), at }
    }

    pub(crate) fn ring(&self) {
        let listeners = lock(&self.listeners);
        let wakers: Vec<_> = listeners.slots.iter().filter_map(Slot::waker).cloned().collect();
        // A task is woken without the lock: it may be polled at once.
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Slot {
    fn waker(&self) -> Option<&Waker> {
        match self {
            Self::Wakes(waker) => Some(waker),
            Self::Free { .. } | Self::Quiet => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn each_registered_task_is_woken_at_each_change_until_it_is_dropped() {
        let bell = Arc::<Bell>::default();
        let counts: Vec<_> = (0..3).map(|_| Arc::<Count>::default()).collect();
        let mut wakeups: Vec<_> = counts.iter().map(|_| bell.listen()).collect();
        bell.ring();
        for (wakeup, count) in wakeups.iter_mut().zip(&counts) {
            wakeup.register(&Arc::clone(count).into());
            wakeup.register(&Arc::clone(count).into());
        }
        bell.ring();
        drop(wakeups.remove(1));
        bell.ring();
        let mut late = bell.listen();
        assert_eq!(late.at, 1, "the free place is used again");
        late.register(&Arc::clone(&counts[1]).into());
        drop(wakeups);
        bell.ring();
        assert_eq!(counts.iter().map(|count| count.0.load(Ordering::SeqCst)).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(lock(&bell.listeners).slots.len(), 3);
    }
}
