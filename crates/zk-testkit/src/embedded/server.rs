//! The embedded server, as its users see it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::DuplexStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::cluster::{Cluster, SessionInfo};
use super::shell::{self, PortChange, Shared};
use crate::Error;
use crate::error::Context as _;

/// How many bytes may be on their way in memory, in each direction.
const IN_MEMORY: usize = 64 << 10;

/// The embedded server: a ZooKeeper server inside this process, for tests and experiments. It keeps nothing;
/// use Apache ZooKeeper in production. It serves ZooKeeper's protocol on a loopback port, behaves as Apache
/// ZooKeeper 3.8 does (or [3.9](crate::TestServerBuilder::release)), and has fault injection
/// ([`faults`](Self::faults)). All methods take `&self` and act at once. Methods that take the index of a
/// server panic if there is no such server, as a slice does.
///
/// It works on the tokio runtime that it was started on, in that runtime's time. To let
/// sessions expire use [`advance_clock`](crate::TestServerFaults::advance_clock), not tokio's paused clock, which does
/// not work with a client library that has timers (the crate's documentation explains why). Without a runtime
/// it works [on a thread of its own](crate::TestServerBuilder::start_on_thread). It ends when it is dropped, with all
/// its connections.
///
/// # The three-server shape
/// With [`servers(3)`](crate::TestServerBuilder::servers) there are three ports and one log. Server 0 leads at first; the
/// others write the log after it. Each answers reads from its own view, and forwards writes. A follower that is
/// [isolated](crate::TestServerFaults::isolate) answers reads and pings until the sync limit has passed, while the others
/// expire its sessions. If the leader is isolated or [stopped](Self::stop), the last of the others becomes the leader,
/// with all that was committed: every client is disconnected, and the timeout of every session starts again. A server
/// without a majority serves no client, or [answers reads](crate::TestServerBuilder::read_only_mode).
#[derive(Debug)]
pub struct TestServer {
    pub(super) shared: Arc<Shared>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) seed: u64,
    pub(super) port_changes: Vec<mpsc::UnboundedSender<PortChange>>,
    pub(super) tasks: Vec<JoinHandle<()>>,
    /// Its thread, if it has one of its own, ends when this is dropped.
    pub(super) thread: Option<oneshot::Sender<()>>,
}

impl TestServer {
    /// The connect string for clients: `127.0.0.1:p1,127.0.0.1:p2,...`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// The addresses for clients, in the order of the servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Connects to the server at that address, in memory, also if it has [sockets](crate::TestServerBuilder::start). The
    /// connection ends with the stream. It is served on the tokio runtime that this is called on.
    ///
    /// # Errors
    /// There is no such server, or it is [stopped](Self::stop).
    pub fn open(&self, address: SocketAddr) -> io::Result<DuplexStream> {
        let server = self.addresses.iter().position(|known| *known == address);
        let server = server.filter(|server| self.is_running(*server));
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (client, served) = tokio::io::duplex(IN_MEMORY);
        let peer = SocketAddr::new(address.ip(), 0);
        tokio::spawn(shell::serve_in_memory(Arc::clone(&self.shared), server, served, peer));
        Ok(client)
    }

    // Queries.

    /// The seed of all random choices: the [seed](crate::TestServerBuilder::seed) that was set, or the one that was
    /// drawn.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The index of the server that leads; `None` while none leads a majority.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.shared.with(|cluster| cluster.leader())
    }

    /// The number of connections to all servers.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.with(|cluster| cluster.connections())
    }

    /// The sessions of the ensemble, by their ids; not those of servers in
    /// [read-only mode](crate::TestServerBuilder::read_only_mode).
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.with(|cluster| cluster.sessions())
    }

    /// The last transaction that a server has carried out.
    #[must_use]
    pub fn zxid(&self, server: usize) -> i64 {
        self.at(server, |cluster| cluster.zxid(server))
    }

    /// The data of a znode on one server, regardless of access lists; `None` without a znode.
    #[must_use]
    pub fn data(&self, server: usize, path: &str) -> Option<Vec<u8>> {
        self.at(server, |cluster| cluster.data(server, path))
    }

    /// The names of a znode's children on one server, sorted, regardless of access lists; `None` without a znode.
    #[must_use]
    pub fn children(&self, server: usize, path: &str) -> Option<Vec<String>> {
        self.at(server, |cluster| cluster.children(server, path))
    }

    // Servers.

    /// Ends a server and keeps its data: its connections are reset, and new ones refused, as
    /// when its process is killed. Without the leader the others elect another one at once; without a majority
    /// none of them serves.
    ///
    /// # Errors
    /// [`Error::NotRunning`]; [`Error::Io`] if its port can't be kept.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the server running and refusing connections; call it again.
    pub async fn stop(&self, server: usize) -> Result<(), Error> {
        if !self.is_running(server) {
            return Err(Error::NotRunning { server });
        }
        self.refuse(server, true).await?;
        self.shared.with(|cluster| cluster.stop(server));
        Ok(())
    }

    /// Starts a server that was [stopped](Self::stop), on the same port. It has its former data, or that of its
    /// leader; clients can resume their sessions.
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`]; [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the server running and refusing connections;
    /// [stop](Self::stop) it and start it again.
    pub async fn start_server(&self, server: usize) -> Result<(), Error> {
        if self.is_running(server) {
            return Err(Error::AlreadyRunning { server, pid: std::process::id() });
        }
        self.shared.with(|cluster| cluster.start(server));
        self.refuse(server, false).await
    }

    fn is_running(&self, server: usize) -> bool {
        self.at(server, |cluster| cluster.is_running(server))
    }

    async fn refuse(&self, server: usize, refuse: bool) -> Result<(), Error> {
        // Without sockets nothing has to be refused.
        let Some(port) = self.port_changes.get(server) else { return Ok(()) };
        let (done, turned) = oneshot::channel();
        let _ = port.send(PortChange { refuse, done });
        // Without an answer the runtime has ended, and the listener with it.
        let turned = turned.await.unwrap_or(Ok(()));
        turned.context(|| format!("cannot keep or open {}", self.addresses[server]))
    }

    /// Acts on one server.
    pub(super) fn at<T>(&self, server: usize, act: impl FnOnce(&mut Cluster) -> T) -> T {
        assert!(server < self.addresses.len(), "there is no server {server} of {}", self.addresses.len());
        self.shared.with(act)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The connections that were opened in memory have tasks of their own.
        self.shared.with(|cluster| (0..self.addresses.len()).for_each(|server| cluster.stop(server)));
        for task in &self.tasks {
            task.abort();
        }
        drop(self.thread.take());
    }
}
