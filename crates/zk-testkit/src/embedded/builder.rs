//! What a test server can be told, and how it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpSocket};

use super::cluster::{Cluster, Settings};
use super::server::TestServer;
use super::shell::{self, Shared};
use crate::Error;
use crate::builder::setters;
use crate::error::Context as _;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// `jute.maxbuffer`: the longest request.
const MAX_FRAME: usize = 0xf_ffff;

/// Settings of a [`TestServer`].
///
/// The defaults are those of [`Builder`](crate::Builder), the one for real servers:
/// ticks of 500 ms, so sessions from 1 s to 10 s (2 to 20 ticks), a sync limit of 10
/// ticks; and otherwise those of Apache ZooKeeper, with one exception:
/// znodes with a [time to live](Self::ttl_nodes) are enabled.
#[derive(Debug, Clone)]
#[must_use]
pub struct TestServerBuilder {
    servers: usize,
    ip: IpAddr,
    base_port: Option<u16>,
    tick: Duration,
    sync_limit: u32,
    session_timeouts: Option<(Duration, Duration)>,
    max_request: usize,
    ttl_nodes: bool,
    container_check: Duration,
    seed: u64,
}

setters! { TestServerBuilder:

    /// How many servers; 1 stands alone. With more, the first leads and the others
    /// follow, each on a port of its own. Default 1.
    servers(servers: usize) { servers = servers }

    /// The address to listen on, which must be a loopback address. Default 127.0.0.1.
    ip(ip: impl Into<IpAddr>) { ip = ip.into() }

    /// Fixed ports: that one and those after it. Default: free ones.
    base_port(base: u16) { base_port = Some(base) }

    /// `tickTime`. Default 500 ms. Sessions are expired on multiples of it.
    tick_time(tick: Duration) { tick = tick }

    /// `syncLimit`, in ticks: how long a server that hears nothing of the others goes
    /// on serving. Default 10.
    sync_limit(ticks: u32) { sync_limit = ticks }

    /// The shortest and the longest session timeout that is granted. Default:
    /// ZooKeeper's own, 2 and 20 ticks.
    session_timeouts(min: Duration, max: Duration) { session_timeouts = Some((min, max)) }

    /// `jute.maxbuffer`, in bytes: the longest request. A longer one ends its
    /// connection. Default 1,048,575.
    max_request(bytes: usize) { max_request = bytes }

    /// Whether znodes may have a time to live. Apache ZooKeeper does not know them
    /// unless started with `-Dzookeeper.extendedTypesEnabled=true`; this server does
    /// unless told otherwise. Default true.
    ttl_nodes(enabled: bool) { ttl_nodes = enabled }

    /// How often containers without children and znodes whose time to live is over
    /// are looked for and removed. Default 60 s.
    container_check(every: Duration) { container_check = every }

    /// What chance there is, is drawn from this number: session ids, passwords, the
    /// order of requests that are [reordered](TestServer::reorder_requests). Default 1.
    seed(seed: u64) { seed = seed }
}

impl TestServerBuilder {
    pub(super) fn new() -> Self {
        Self {
            servers: 1,
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            base_port: None,
            tick: Duration::from_millis(500),
            sync_limit: 10,
            session_timeouts: None,
            max_request: MAX_FRAME,
            ttl_nodes: true,
            container_check: Duration::from_secs(60),
            seed: 1,
        }
    }

    /// Starts it, on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// [`Error::NotLoopback`], [`Error::Settings`], [`Error::Ports`] if a port that
    /// was asked for is taken, [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn start(self) -> Result<TestServer, Error> {
        self.check()?;
        let listeners: Vec<TcpListener> =
            (0..self.servers).map(|server| self.listen(server)).collect::<Result<_, _>>()?;
        let mut addresses = Vec::new();
        for listener in &listeners {
            addresses.push(listener.local_addr().context(|| "cannot learn the port listened on".to_owned())?);
        }
        let shared = Arc::new(Shared::new(Cluster::new(self.settings(&addresses))));
        let mut tasks = vec![tokio::spawn(shell::keep_time(Arc::clone(&shared)))];
        for (server, listener) in listeners.into_iter().enumerate() {
            tasks.push(tokio::spawn(shell::accept(Arc::clone(&shared), server, listener)));
        }
        Ok(TestServer::assemble(shared, addresses, tasks))
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
                let _ = tell.send(self.start().await.map(|server| server.on_thread(end)));
                let _ = ended.await;
            });
        };
        let thread = std::thread::Builder::new().name("zookeeper".to_owned()).spawn(serve);
        thread.context(|| "cannot start a thread".to_owned())?;
        started.recv().unwrap_or_else(|_| Err(Error::Settings("the server's thread has ended".to_owned())))
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Settings(what));
        if !self.ip.is_loopback() {
            return Err(Error::NotLoopback { address: self.ip });
        }
        if self.servers == 0 || self.servers > 9 {
            return refuse(format!("{} servers; 1 to 9 make sense here", self.servers));
        }
        if self.tick < Duration::from_millis(2) {
            return refuse(format!("tick_time is {:?}; at least 2 ms", self.tick));
        }
        if self.sync_limit == 0 {
            return refuse("sync_limit is 0; at least 1 tick".to_owned());
        }
        if self.container_check.is_zero() {
            return refuse("container_check is 0; take a millisecond".to_owned());
        }
        let (min, max) = self.timeouts();
        if min > max || min.is_zero() {
            return refuse(format!("session timeouts from {min:?} to {max:?}"));
        }
        if let Some(base) = self.base_port
            && (base == 0 || usize::from(base) + self.servers > 65_536)
        {
            return refuse(format!("base_port {base} with {} servers", self.servers));
        }
        Ok(())
    }

    fn timeouts(&self) -> (Duration, Duration) {
        self.session_timeouts.unwrap_or((self.tick * 2, self.tick * 20))
    }

    fn listen(&self, server: usize) -> Result<TcpListener, Error> {
        let offset = u16::try_from(server).unwrap_or(u16::MAX);
        let address = SocketAddr::new(self.ip, self.base_port.map_or(0, |base| base.saturating_add(offset)));
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        listen().map_err(|error| match (error.kind(), self.base_port) {
            (std::io::ErrorKind::AddrInUse, Some(_)) => Error::Ports(format!(
                "{address} is in use: end what listens there, or take another base port"
            )),
            _ => Error::Io { context: format!("cannot listen on {address}"), error },
        })
    }

    fn settings(&self, addresses: &[SocketAddr]) -> Settings {
        let (min_timeout, max_timeout) = self.timeouts();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Settings {
            servers: self.servers,
            tick: self.tick,
            sync_limit: self.sync_limit,
            min_timeout,
            max_timeout,
            max_frame: self.max_request,
            ttl_enabled: self.ttl_nodes,
            container_check: self.container_check,
            seed: self.seed,
            started_ms: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX),
            ports: addresses.iter().map(SocketAddr::port).collect(),
        }
    }
}
