//! The settings of the embedded server, and how it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use super::cluster::{Cluster, Release, Settings, Start};
use super::server::TestServer;
use super::shell::{self, Shared};
use crate::Error;
use crate::builder::{LEAST, MOST, MOST_TICKS, check_common, check_range, setters};
use crate::error::Context as _;
use crate::listener::Listener;

/// Settings of a [`TestServer`].
///
/// The defaults are those of [`EnsembleBuilder`](crate::EnsembleBuilder), the one for real servers:
/// ticks of 500 ms, so sessions from 1 s to 10 s (2 to 20 ticks), a sync limit of 10
/// ticks; and otherwise those of Apache ZooKeeper, with one exception:
/// znodes with a [time to live](Self::ttl_nodes) are enabled.
#[derive(Debug, Clone)]
#[must_use]
pub struct TestServerBuilder {
    ip: IpAddr,
    base_port: Option<u16>,
    settings: Settings,
    seed: Option<u64>,
}

/// With room for a connect request, and the length of a frame.
const LEAST_REQUEST: usize = 128;
const MOST_REQUEST: usize = 1 << 30;

setters! { TestServerBuilder:

    /// The number of servers; 1 is a standalone server. With more, the first leads at first and the others
    /// follow, each on a port of its own. Default 1.
    servers(servers: usize) { settings.servers = servers }

    /// The release of Apache ZooKeeper that it imitates. Default [`Release::V3_8`].
    release(release: Release) { settings.release = release }

    /// The address to listen on, which must be a loopback address. Default 127.0.0.1.
    ip(ip: impl Into<IpAddr>) { ip = ip.into() }

    /// Fixed ports: that one and those after it. Default: free ones.
    base_port(base: u16) { base_port = Some(base) }

    /// `tickTime`. Default 500 ms. Sessions are expired on multiples of it.
    tick_time(tick: Duration) { settings.tick = tick }

    /// `syncLimit`, in ticks: how long a server without contact to the others serves. Default 10.
    sync_limit(ticks: u32) { settings.sync_limit = ticks }

    /// The shortest and the longest session timeout that is granted. Default:
    /// ZooKeeper's own, 2 and 20 ticks.
    session_timeouts(min: Duration, max: Duration) { settings.session_timeouts = Some((min, max)) }

    /// `jute.maxbuffer`, in bytes: the longest request. A longer one ends its
    /// connection. Default 1,048,575.
    max_request(bytes: usize) { settings.max_request = bytes }

    /// `maxClientCnxns`: how many connections from one address a server accepts; it resets further ones.
    /// Default 0, any number; Apache ZooKeeper's is 60.
    max_connections(count: usize) { settings.max_connections = count }

    /// How long a connection may go without the client's first frame, by the servers' clock;
    /// then it is closed. Apache ZooKeeper, where it is `zookeeper.nio.sessionlessCnxnTimeout`,
    /// rounds it up to a multiple. Default 10 s.
    handshake_timeout(limit: Duration) { settings.handshake_timeout = limit }

    /// Whether znodes may have a time to live. Apache ZooKeeper supports it only with
    /// `-Dzookeeper.extendedTypesEnabled=true`. Default true.
    ttl_nodes(enabled: bool) { settings.ttl_nodes = enabled }

    /// The super user, as `name:password` in the scheme `digest`: it has all permissions, whatever the access
    /// lists are. Apache ZooKeeper's `superDigest`. Default: none.
    super_user(credentials: impl Into<String>) { settings.super_user = Some(credentials.into()) }

    /// `readonlymode.enabled`: a server without a quorum serves reads to clients that accept it in their
    /// connect request. Their sessions are known to that server only, and end when it has a quorum again;
    /// writes and `sync` are refused with the error -119. It has no effect with one server, and when servers
    /// stop because their [log space](crate::TestServerFaults::limit_log_space) is used up. Default false.
    read_only_mode(enabled: bool) { settings.read_only_mode = enabled }

    /// How often containers without children and znodes past their time to live are removed. Default 60 s.
    container_check(every: Duration) { settings.container_check = every }

    /// The seed of all random choices: the order of requests that are
    /// [reordered](crate::TestServerFaults::reorder_requests). Default: one that is drawn when the server
    /// starts, and printed when it matters. Session ids and passwords differ from one start to
    /// the next whatever the seed: else a client that outlives its server would take over a
    /// session of the next one on the same port.
    seed(seed: u64) { seed = Some(seed) }
}

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
        TestServerBuilder::new()
    }
}

impl TestServerBuilder {
    fn new() -> Self {
        Self {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            base_port: None,
            settings: Settings::default(),
            seed: None,
        }
    }

    /// Starts it, on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// [`Error::Settings`], [`Error::Ports`] if a port that was asked for is taken,
    /// [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start(self) -> Result<TestServer, Error> {
        self.check()?;
        let listeners =
            (0..self.settings.servers).map(|server| self.listen(server)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_ms = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let start = Start { ms: started_ms, seed, secret: fastrand::u64(..) };
        let shared = Arc::new(Shared::new(Cluster::new(self.settings, addresses.clone(), start)));
        let mut tasks = vec![tokio::spawn(shell::run_timers(Arc::clone(&shared)))];
        let mut port_changes = Vec::new();
        for (server, listener) in listeners.into_iter().enumerate() {
            let (port_change, receiver) = mpsc::unbounded_channel();
            tasks.push(tokio::spawn(shell::accept(Arc::clone(&shared), server, listener, receiver)));
            port_changes.push(port_change);
        }
        Ok(TestServer { shared, addresses, seed, port_changes, tasks, thread: None })
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
        let settings = &self.settings;
        if !self.ip.is_loopback() {
            return Err(Error::Settings(format!(
                "the embedded server listens on loopback only, not on {}: use Apache ZooKeeper in production",
                self.ip
            )));
        }
        check_common(settings.servers, settings.tick, settings.session_timeouts, self.base_port, 1)?;
        check_range("sync_limit", settings.sync_limit, 1..=MOST_TICKS)?;
        check_range("handshake_timeout", settings.handshake_timeout, LEAST..=MOST)?;
        check_range("container_check", settings.container_check, LEAST..=MOST)?;
        check_range("max_request", settings.max_request, LEAST_REQUEST..=MOST_REQUEST)
    }

    fn listen(&self, server: usize) -> Result<Listener, Error> {
        let offset = u16::try_from(server).unwrap_or(u16::MAX);
        let address = SocketAddr::new(self.ip, self.base_port.map_or(0, |base| base.saturating_add(offset)));
        Listener::open(address).map_err(|error| match (error.kind(), self.base_port) {
            (std::io::ErrorKind::AddrInUse, Some(_)) => Error::Ports(format!(
                "{address} is in use: end the process that listens there, or use another base port"
            )),
            _ => Error::Io { context: format!("cannot listen on {address}"), error },
        })
    }
}
