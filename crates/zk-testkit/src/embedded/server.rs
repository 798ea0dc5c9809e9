//! The test server, as its users see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::builder::TestServerBuilder;
use super::cluster::{Cluster, SessionInfo};
use super::shell::{Shared, Turn};
use crate::error::Context as _;
use crate::proxy::Way;
use crate::{Error, Loss, Which};

/// A ZooKeeper in this process. For tests and for trying things out: it keeps
/// nothing, and production is Apache ZooKeeper.
///
/// It speaks ZooKeeper's protocol on a loopback port, behaves as Apache ZooKeeper 3.8
/// does (or [3.9](TestServerBuilder::release)), and does wrong what it is told to. All methods take `&self` and act at once;
/// methods that take a server's index panic if there is none, as a slice does.
///
/// It works on the tokio runtime that it was started on, in that runtime's time. To let
/// sessions expire use [`advance_time`](Self::advance_time), not tokio's paused clock, which a
/// client library with timers does not get along with (the crate's documentation says why).
/// Without a runtime it works [on a thread of its own](TestServerBuilder::start_on_thread). It ends when it is
/// dropped, with all its connections.
///
/// # The three-server shape
/// With [`servers(3)`](TestServerBuilder::servers) there are three ports and one log.
/// Server 0 leads at first; the others carry the log out after it. Each answers
/// reads from its own view, and passes writes on. A follower that is
/// [isolated](Self::isolate) goes on answering reads and pings until the sync limit
/// has passed, while the others expire its sessions. Where the leader is isolated or
/// [stopped](Self::stop) the others choose the last of them, with all that was committed:
/// every client is disconnected, and every session is given its timeout anew. A server without a
/// majority serves nobody, or [answers reads](TestServerBuilder::read_only_mode).
#[derive(Debug)]
pub struct TestServer {
    pub(super) shared: Arc<Shared>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) seed: u64,
    pub(super) turns: Vec<mpsc::UnboundedSender<Turn>>,
    pub(super) tasks: Vec<JoinHandle<()>>,
    /// Its thread, if it has one of its own, ends when this is dropped.
    pub(super) thread: Option<oneshot::Sender<()>>,
}

impl TestServer {
    /// Starts one server with the defaults of [`TestServerBuilder`].
    ///
    /// # Errors
    /// [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Everything that can be chosen.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::new()
    }

    /// What a client is given: `127.0.0.1:p1,127.0.0.1:p2,...`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// Where clients connect, in the order of the servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    // What it is asked.

    /// What chance is drawn from: the [seed](TestServerBuilder::seed) that was set, or the one
    /// that was drawn.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The index of the server that leads; `None` while none leads a majority.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.shared.with(|cluster| cluster.leader())
    }

    /// How many connections there are, to all servers.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.with(|cluster| cluster.connections())
    }

    /// The sessions of the ensemble, by their ids; not those of servers in
    /// [read-only mode](TestServerBuilder::read_only_mode).
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.with(|cluster| cluster.sessions())
    }

    /// The last transaction that a server has carried out.
    #[must_use]
    pub fn zxid(&self, server: usize) -> i64 {
        self.at(server, |cluster| cluster.zxid(server))
    }

    /// What a server has at a path, past all access lists; `None` without a znode.
    #[must_use]
    pub fn data(&self, server: usize, path: &str) -> Option<Vec<u8>> {
        self.at(server, |cluster| cluster.data(server, path))
    }

    // Sessions and connections.

    /// Ends a session as if its timeout had passed: its ephemerals are deleted, its
    /// connection is closed, and its client hears of it when it comes back. Servers
    /// without a majority end nothing; once they have one again, every session is given
    /// its timeout anew.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn expire_session(&self, session: i64) -> Result<(), Error> {
        let expired = self.shared.with(|cluster| cluster.expire_session(session));
        if expired { Ok(()) } else { Err(Error::NoSession { session }) }
    }

    /// Resets the connection of a session. False if it has none.
    pub fn drop_connection(&self, session: i64) -> bool {
        self.shared.with(|cluster| cluster.drop_connections(Some(session))) > 0
    }

    /// Resets all connections, and says how many there were.
    pub fn drop_connections(&self) -> usize {
        self.shared.with(|cluster| cluster.drop_connections(None))
    }

    /// Drops the connection of a session, and lets only one server take the session
    /// back: its client is moved there as soon as it tries, if it knows that address.
    pub fn move_session(&self, session: i64, to: usize) {
        self.at(to, |cluster| cluster.move_session(session, to));
    }

    /// Stops answering, or goes on: nothing passes between clients and servers, in
    /// either direction, on connections that there are and that come. Nothing is
    /// closed or lost; bytes just don't arrive until it ends.
    pub fn black_hole(&self, on: bool) {
        self.shared.with(|cluster| cluster.black_hole(None, on));
    }

    /// As [`black_hole`](Self::black_hole), for the connection of one session.
    pub fn black_hole_session(&self, session: i64, on: bool) {
        self.shared.with(|cluster| cluster.black_hole(Some(session), on));
    }

    /// Keeps back what comes on the connection that a session has at the moment. Let
    /// through again, it arrives even if the client has closed that connection
    /// meanwhile, or has come back on another: so a write of an earlier connection can
    /// come after those of a later one, or after its client has given it up.
    pub fn hold_requests(&self, session: i64, on: bool) {
        self.shared.with(|cluster| cluster.hold_requests(session, on));
    }

    // Single requests.

    /// Loses the reply to a request: it is carried out, and its connection is reset in
    /// place of the reply.
    pub fn lose_reply(&self, which: Which) -> Loss {
        self.doom(which, Way::ToClient)
    }

    /// Loses a request: it is not carried out, and its connection is reset.
    pub fn lose_request(&self, which: Which) -> Loss {
        self.doom(which, Way::ToServer)
    }

    /// Carries a request out and never answers it, nor anything after it on its
    /// connection, which stays open.
    pub fn never_answer(&self, which: Which) -> Loss {
        self.doom(which, Way::Never)
    }

    /// Delays the reply to a request, and all that follows it on its connection.
    pub fn delay_reply(&self, which: Which, by: Duration) -> Loss {
        self.doom(which, Way::Late(by))
    }

    /// From now on, every reply and every event comes so much later.
    pub fn delay_replies(&self, by: Duration) {
        self.shared.with(|cluster| cluster.delay = by);
    }

    /// Collects requests for as long as `window`, from the first one on, and carries
    /// them out in an order drawn from the [seed](TestServerBuilder::seed), which this
    /// prints; those of one connection stay in theirs. `None`: as they come.
    pub fn reorder_requests(&self, window: Option<Duration>) {
        if window.is_some() {
            eprintln!("TestServerBuilder::seed({}) replays the order of requests", self.seed);
        }
        self.shared.with(|cluster| cluster.set_reorder(window));
    }

    // Servers.

    /// Ends a server and keeps its data: its connections are reset, and new ones refused, as
    /// when its process is killed. Without the leader the others choose another at once;
    /// without a majority none of them serves.
    ///
    /// # Errors
    /// [`Error::NotRunning`]; [`Error::Io`] if its port can't be kept.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the server running with its port shut; call it again.
    pub async fn stop(&self, server: usize) -> Result<(), Error> {
        if !self.is_running(server) {
            return Err(Error::NotRunning { server });
        }
        self.turn(server, true).await?;
        self.shared.with(|cluster| cluster.stop(server));
        Ok(())
    }

    /// Starts a server that was [stopped](Self::stop), on the same port. It has what it had, or
    /// what its leader has; clients can come back to their sessions.
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`]; [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the server running with its port shut;
    /// [stop](Self::stop) it and start it again.
    pub async fn start_server(&self, server: usize) -> Result<(), Error> {
        if self.is_running(server) {
            return Err(Error::AlreadyRunning { server, pid: std::process::id() });
        }
        self.shared.with(|cluster| cluster.start(server));
        self.turn(server, false).await
    }

    fn is_running(&self, server: usize) -> bool {
        self.at(server, |cluster| cluster.is_running(server))
    }

    async fn turn(&self, server: usize, shut: bool) -> Result<(), Error> {
        let (done, turned) = oneshot::channel();
        let _ = self.turns[server].send(Turn { shut, done });
        // Without an answer there is no runtime any more, and so nobody listens.
        let turned = turned.await.unwrap_or(Ok(()));
        turned.context(|| format!("cannot keep or open {}", self.addresses[server]))
    }

    /// Cuts a server off from the others, and not from its clients: it goes on
    /// answering reads and pings, from ever older data, and takes writes that it can't
    /// pass on, until the sync limit has passed. Then it drops its clients.
    /// The others expire its sessions after their timeouts; if it is the leader, they too
    /// drop their clients when the sync limit has passed, and choose another. A server alone has
    /// nobody to be cut off from.
    pub fn isolate(&self, server: usize) {
        self.at(server, |cluster| cluster.isolate(server));
    }

    /// Ends [`isolate`](Self::isolate): what was under way arrives, and a server that
    /// had given up serves again.
    pub fn rejoin(&self, server: usize) {
        self.at(server, |cluster| cluster.rejoin(server));
    }

    /// Keeps back what is committed from a follower, or lets it through again: its
    /// view stays as it is, while all else works. Writes of its own clients are carried
    /// out, and answered when it hears of them.
    pub fn hold_commits(&self, server: usize, on: bool) {
        self.at(server, |cluster| cluster.hold_commits(server, on));
    }

    /// Lets a follower hear of what is committed so much later.
    pub fn lag(&self, server: usize, by: Duration) {
        self.at(server, |cluster| cluster.set_lag(server, by));
    }

    /// Leaves the servers room for so many more bytes of log. With the write that does
    /// not fit they stop, as Apache ZooKeeper does when its disk is full: every
    /// connection is reset, and none is served. `None` gives them all the room there
    /// is, and they serve again.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.shared.with(|cluster| cluster.set_space(bytes));
    }

    // Time.

    /// Stops the servers' clock, or lets it go on from there: while it stands no
    /// session expires, no znode ends by itself, and an isolated server does not give
    /// up. Delays don't depend on it.
    pub fn freeze_time(&self, on: bool) {
        self.shared.with(|cluster| cluster.stop_clock(on));
    }

    /// Puts the servers' clock forward, frozen or not: whatever has become due happens
    /// at once.
    pub fn advance_time(&self, by: Duration) {
        self.shared.with(|cluster| cluster.put_clock_forward(by));
    }

    fn doom(&self, which: Which, way: Way) -> Loss {
        self.shared.with(|cluster| cluster.rules.add(which, way))
    }

    /// Does something to one server.
    fn at<T>(&self, server: usize, act: impl FnOnce(&mut Cluster) -> T) -> T {
        assert!(server < self.addresses.len(), "there is no server {server} of {}", self.addresses.len());
        self.shared.with(act)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        drop(self.thread.take());
    }
}
