//! Where a session's client lives, and how it ends.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{self, Runtime};

/// The thread on which the client and everything around it live.
///
/// Nothing of the runtime outlives its end, no handle either: that alone would keep its poll descriptors open.
pub(super) struct Home(Mutex<Option<Runtime>>);

impl Home {
    pub(super) fn build() -> io::Result<Home> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .thread_name("zookeeper-async")
            .enable_all()
            .build()?;
        Ok(Home(Mutex::new(Some(runtime))))
    }

    /// Starts a task, unless all is over.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*lock(&self.0) {
            runtime.spawn(task);
        }
    }

    /// Ends every task at its next pause, and so closes every socket. Never waits.
    pub(super) fn end(&self) {
        let runtime = lock(&self.0).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

/// Ends what has come about of a session when connecting to it fails or is cancelled.
pub(super) struct Unfinished(pub(super) Option<Arc<Home>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(home) = &self.0 {
            home.end();
        }
    }
}

/// Ends what lives in a [`Home`] when the driver is dropped.
pub(super) struct Resident(pub(super) Arc<Home>);

impl Drop for Resident {
    fn drop(&mut self) {
        self.0.end();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can leave them half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
