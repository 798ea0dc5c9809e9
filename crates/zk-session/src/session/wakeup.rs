//! Wakes tasks that poll the state and the lease of a session, and at times that they choose.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::lock::lock;
use crate::time::BootTime;

/// Wakes one task whenever the state of the session or its lease changes, and [at a time](Self::wake_at) that it chooses.
/// From [`Session::wakeup`](crate::Session::wakeup).
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
        let Some(listener) = listeners.all.get_mut(self.at) else { return };
        match &mut listener.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Wakes the task at this time too, or not any more. It replaces the time before, and is forgotten once the task is woken
    /// for it. After a suspend of the machine the task is woken at most a second late.
    ///
    /// All tasks of a session share one timer, on the runtime of the session. It does not end with the session; if that runtime
    /// ends, it moves to the runtime of a task.
    ///
    /// # Panics
    /// Outside of a tokio runtime, once that of the session has ended.
    pub fn wake_at(&mut self, due: Option<BootTime>) {
        let mut listeners = lock(&self.bell.listeners);
        if let Some(listener) = listeners.all.get_mut(self.at) {
            listener.due = due;
        }
        match (due, listeners.timer) {
            (None, _) => {}
            (Some(due), Some(timer)) if timer <= due => {}
            (Some(due), Some(_)) => {
                listeners.timer = Some(due);
                self.bell.earlier.notify_one();
            }
            (Some(due), None) => {
                listeners.timer = Some(due);
                let has_runtime = !listeners.runtime_ended;
                drop(listeners);
                let timer = Timer(Arc::clone(&self.bell)).run();
                match &self.bell.runtime {
                    Some(runtime) if has_runtime => runtime.spawn(timer),
                    _ => tokio::spawn(timer),
                };
            }
        }
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        let gone = lock(&self.bell.listeners).all.try_remove(self.at);
        // A waker is dropped without the lock.
        drop(gone);
    }
}

/// The tasks to wake.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// That of the session.
    runtime: Option<Handle>,
    listeners: Mutex<Listeners>,
    /// A task is to be woken before the time for which the timer waits.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Listeners {
    all: Slab<Listener>,
    /// For when the timer waits: no task is to be woken before that. `None` while none waits for a time.
    timer: Option<BootTime>,
    /// The timer has ended with its runtime.
    runtime_ended: bool,
}

#[derive(Debug, Default)]
struct Listener {
    waker: Option<Waker>,
    due: Option<BootTime>,
}

impl Bell {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..Self::default() }
    }

    pub(crate) fn listen(self: &Arc<Self>) -> Wakeup {
        let at = lock(&self.listeners).all.insert(Listener::default());
        Wakeup { bell: Arc::clone(self), at }
    }

    pub(crate) fn ring(&self) {
        let listeners = lock(&self.listeners);
        let wakers: Vec<_> =
            listeners.all.iter().filter_map(|(_, listener)| listener.waker.clone()).collect();
        // A task is woken without the lock: it may be polled at once.
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes the tasks whose time has come. Returns how long to sleep before the next one; `None` if no task waits.
    fn wake_due(&self) -> Option<Duration> {
        let mut listeners = lock(&self.listeners);
        let now = BootTime::now();
        let mut wakers = Vec::new();
        let mut next = None::<BootTime>;
        // Thousands of tasks wait for the same time, or for few.
        for (_, listener) in &mut listeners.all {
            match listener.due {
                Some(due) if due <= now => {
                    listener.due = None;
                    wakers.extend(listener.waker.clone());
                }
                Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
                None => {}
            }
        }
        listeners.timer = next;
        drop(listeners);
        wakers.into_iter().for_each(Waker::wake);
        // It may have passed meanwhile.
        next.map(|next| next.next_nap().unwrap_or_default())
    }
}

/// The timer of a session's tasks. It ends when no task waits for a time.
struct Timer(Arc<Bell>);

impl Timer {
    async fn run(self) {
        while let Some(nap) = self.0.wake_due() {
            // Woken early, it looks again.
            let _ = timeout(nap, self.0.earlier.notified()).await;
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut listeners = lock(&self.0.listeners);
        if listeners.timer.take().is_some() {
            listeners.runtime_ended = true;
            drop(listeners);
            // The tasks may run on another one, and ask for a timer there.
            self.0.ring();
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
        assert_eq!(lock(&bell.listeners).all.len(), 1);
    }

    /// Three tasks and their times, in milliseconds from now; two change their mind.
    #[tokio::test]
    async fn each_task_is_woken_once_at_its_time_by_one_timer() {
        let bell = Arc::<Bell>::default();
        let woken = |count: &Arc<Count>| count.0.load(Ordering::SeqCst);
        let counts: Vec<_> = (0..3).map(|_| Arc::<Count>::default()).collect();
        let mut wakeups: Vec<_> = counts.iter().map(|_| bell.listen()).collect();
        let now = BootTime::now();
        let at = |ms| Some(now + Duration::from_millis(ms));
        for ((wakeup, count), ms) in wakeups.iter_mut().zip(&counts).zip([3_600_000, 20, 40]) {
            wakeup.register(&Arc::clone(count).into());
            wakeup.wake_at(at(ms));
        }
        wakeups[2].wake_at(None);
        wakeups[1].wake_at(at(30));
        let until = |all: [usize; 3]| {
            let counts = counts.clone();
            async move {
                while counts.iter().map(woken).collect::<Vec<_>>() != all {
                    tokio::task::yield_now().await;
                }
            }
        };
        let soon = Duration::from_secs(10);
        timeout(soon, until([0, 1, 0])).await.expect("one task at its time");
        assert!(BootTime::now() >= now + Duration::from_millis(30));
        // Earlier than what the timer waits for.
        wakeups[0].wake_at(at(50));
        wakeups[2].wake_at(at(0));
        timeout(soon, until([1, 1, 1])).await.expect("the others at theirs");
        assert!(BootTime::now() >= now + Duration::from_millis(50));
        let is_over = async || {
            while lock(&bell.listeners).timer.is_some() || Arc::strong_count(&bell) > 4 {
                tokio::task::yield_now().await;
            }
        };
        timeout(soon, is_over()).await.expect("no timer without a time");
        wakeups[1].wake_at(at(60));
        timeout(soon, until([1, 2, 1])).await.expect("a timer again");
    }

    /// The task runs on another runtime, which lives.
    #[tokio::test]
    async fn the_timer_moves_when_the_runtime_of_the_session_ends() {
        let home = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let bell = Arc::new(Bell::new(home.handle().clone()));
        let (count, mut wakeup) = (Arc::<Count>::default(), bell.listen());
        let woken = async |times| {
            while count.0.load(Ordering::SeqCst) < times {
                tokio::task::yield_now().await;
            }
        };
        wakeup.register(&Arc::clone(&count).into());
        wakeup.wake_at(Some(BootTime::now() + Duration::from_secs(3600)));
        home.shutdown_background();
        let soon = Duration::from_secs(10);
        timeout(soon, woken(1)).await.expect("it is woken, to ask for a timer");
        wakeup.wake_at(Some(BootTime::now()));
        timeout(soon, woken(2)).await.expect("it has another timer");
    }
}
