//! The thread and runtime of a session's client, and how it ends.

use std::future::Future;
use std::io;
use std::sync::Mutex;
use std::thread;

use tokio::runtime::{self, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::incarnation::lock;

/// The most sockets here, and some more: by default there would be memory for the events of a thousand.
const SOCKETS: usize = 16;

/// The thread of the client and its tasks.
///
/// Nothing of the runtime outlives its end, no handle either: that alone would keep its poll descriptors open.
pub(super) struct Home(Mutex<Option<Inhabited>>);

struct Inhabited {
    runtime: Handle,
    end: CancellationToken,
}

impl Home {
    pub(super) fn build() -> io::Result<Home> {
        // For a single thread: a message of the client passes through half a dozen tasks, and this runtime hands it from
        // one to the next at half the price of the other.
        let runtime = runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .max_io_events_per_tick(SOCKETS)
            .enable_all()
            .build()?;
        let inhabited = Inhabited { runtime: runtime.handle().clone(), end: CancellationToken::new() };
        let (runtime, end) = (EndsAtOnce(Some(runtime)), inhabited.end.clone());
        thread::Builder::new().name("zookeeper-async".to_owned()).spawn(move || {
            if let Some(runtime) = &runtime.0 {
                runtime.block_on(end.cancelled());
            }
        })?;
        Ok(Home(Mutex::new(Some(inhabited))))
    }

    /// Starts a task, unless all is over.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(inhabited) = &*lock(&self.0) {
            inhabited.runtime.spawn(task);
        }
    }

    /// Ends every task at its next pause, and so closes every socket. Never waits.
    pub(super) fn end(&self) {
        let inhabited = lock(&self.0).take();
        if let Some(Inhabited { runtime, end }) = inhabited {
            drop(runtime);
            end.cancel();
        }
    }
}

/// A runtime that does not wait for anything when it is dropped, be it by a panic, be it because there is no thread for it.
struct EndsAtOnce(Option<Runtime>);

impl Drop for EndsAtOnce {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
