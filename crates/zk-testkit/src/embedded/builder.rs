//! How the embedded server starts.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cluster::{Cluster, Start};
use super::server::TestServer;
use super::settings::TestServerBuilder;
use super::shell::{self, Shared};
use crate::Error;
use crate::builder::{LEAST, MOST, MOST_TICKS, check_common, check_range};
use crate::error::Context as _;
use crate::listener::Listener;

/// The date at which servers in memory begin: 2020, and a second.
const IN_MEMORY_MS: i64 = 1_577_836_801_000;
/// With room for a connect request, and the length of a frame.
const LEAST_REQUEST: usize = 128;
const MOST_REQUEST: usize = 1 << 30;
/// The time for an earlier server to release a fixed port: its tasks end after it was dropped.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);
/// The pause between two attempts to take a fixed port.
const LISTEN_AGAIN: Duration = Duration::from_millis(20);

impl TestServer {
    /// Starts one server with the defaults of [`TestServerBuilder`].
    ///
    /// # Errors
    /// [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// A builder with all settings.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }
}

impl TestServerBuilder {
    /// Starts it, on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// [`Error::Settings`], [`Error::Ports`] if a port that was asked for is taken for a second,
    /// [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start(self) -> Result<TestServer, Error> {
        self.check()?;
        let mut listeners = Vec::new();
        for server in 0..self.servers {
            listeners.push(self.listen(server).await?);
        }
        let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_ms = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let start = Start { ms: started_ms, seed, secret: fastrand::u64(..) };
        let shared = Arc::new(Shared::new(Cluster::new(self, addresses.clone(), start)));
        let mut tasks = vec![tokio::spawn(shell::run_timers(Arc::clone(&shared)))];
        let mut port_changes = Vec::new();
        for (server, listener) in listeners.into_iter().enumerate() {
            let (port_change, receiver) = mpsc::unbounded_channel();
            let accept = shell::accept(Arc::clone(&shared), server, listener, receiver);
            tasks.push(tokio::spawn(accept));
            port_changes.push(port_change);
        }
        Ok(TestServer { shared, addresses, seed, port_changes, tasks, thread: None })
    }

    /// Starts it without sockets: a client connects by [`TestServer::open`]. Its time is that of the tokio runtime that this is
    /// called on, which a test can pause, and all else comes of the [seed](field@Self::seed), session ids and passwords
    /// included: the same calls at the same times have the same answers. The addresses are those of an ensemble elsewhere,
    /// from port 2181 on unless a [`base_port`](field@Self::base_port) is set.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub fn start_in_memory(self) -> Result<TestServer, Error> {
        self.check()?;
        let base = self.base_port.unwrap_or(2181);
        let address = |offset| SocketAddr::new(self.ip, base.saturating_add(offset));
        let addresses: Vec<_> = (0..).map(address).take(self.servers).collect();
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let start = Start { ms: IN_MEMORY_MS, seed, secret: fastrand::Rng::with_seed(seed).u64(..) };
        let shared = Arc::new(Shared::new(Cluster::new(self, addresses.clone(), start)));
        let tasks = vec![tokio::spawn(shell::run_timers(Arc::clone(&shared)))];
        Ok(TestServer { shared, addresses, seed, port_changes: Vec::new(), tasks, thread: None })
    }

    /// Starts it on a thread of its own, for tests and programs that have no tokio
    /// runtime, or that block theirs. The thread ends with the server. There is no
    /// virtual time for it.
    ///
    /// ```
    /// # fn main() -> Result<(), zk_testkit::Error> {
    /// let server = zk_testkit::TestServer::builder().start_on_thread()?;
    /// std::net::TcpStream::connect(server.addresses()[0]).expect("it listens");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`Error::Io`] if there can be no thread.
    pub fn start_on_thread(self) -> Result<TestServer, Error> {
        let (tell, started) = std::sync::mpsc::sync_channel(1);
        let (end, ended) = tokio::sync::oneshot::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = match runtime.context(|| "cannot make a tokio runtime".to_owned()) {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                // Without a receiver the server is dropped here, and `ended` resolves.
                let _ = tell.send(self.start().await.map(|mut server| {
                    server.thread = Some(end);
                    server
                }));
                let _ = ended.await;
            });
        };
        let thread = std::thread::Builder::new().name("zookeeper".to_owned()).spawn(serve);
        thread.context(|| "cannot start a thread".to_owned())?;
        started.recv().unwrap_or_else(|_| Err(Error::Settings("the server's thread has ended".to_owned())))
    }

    fn check(&self) -> Result<(), Error> {
        if !self.ip.is_loopback() {
            return Err(Error::Settings(format!(
                "the embedded server listens on loopback only, not on {}: use Apache ZooKeeper in production",
                self.ip
            )));
        }
        check_common(self.servers, self.tick_time, self.session_timeouts, self.base_port, 1)?;
        check_range("sync_limit", self.sync_limit, 1..=MOST_TICKS)?;
        check_range("handshake_timeout", self.handshake_timeout, LEAST..=MOST)?;
        check_range("container_check", self.container_check, LEAST..=MOST)?;
        check_range("max_request", self.max_request, LEAST_REQUEST..=MOST_REQUEST)
    }

    async fn listen(&self, server: usize) -> Result<Listener, Error> {
        let offset = u16::try_from(server).unwrap_or(u16::MAX);
        let address = SocketAddr::new(self.ip, self.base_port.map_or(0, |base| base.saturating_add(offset)));
        let deadline = Instant::now() + RELEASED_WITHIN;
        loop {
            let error = match Listener::open(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::AddrInUse || self.base_port.is_none() {
                return Err(Error::Io { context: format!("cannot listen on {address}"), error });
            }
            if Instant::now() >= deadline {
                return Err(Error::Ports(format!(
                    "{address} is in use: end the process that listens there, or use another base port"
                )));
            }
            tokio::time::sleep(LISTEN_AGAIN).await;
        }
    }
}
