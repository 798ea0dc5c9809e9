//! A ZooKeeper server of a test's own, which it can stop or whose sessions are its workers' alone.

use std::time::Duration;

use tokio::runtime::Runtime;
use zk_testkit::{TestServer, TestServerBuilder};

const TICK: Duration = Duration::from_millis(500);

/// An embedded server, and a directory.
pub(crate) struct OwnServer {
    pub(crate) runtime: Runtime,
    server: Option<TestServer>,
    pub(crate) dir: tempfile::TempDir,
}

impl OwnServer {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl FnOnce(TestServerBuilder) -> TestServerBuilder) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let builder = settings(TestServer::builder().tick_time(TICK));
        let server = builder.start_on_thread().expect("a server");
        Self { runtime, server: Some(server), dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn server(&self) -> &TestServer {
        self.server.as_ref().expect("it runs")
    }

    /// Stops the server.
    pub(crate) fn stop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.server.take());
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop();
    }
}
