//! The test server, as its users see it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::builder::TestServerBuilder;
use super::cluster::{SessionView, Switch};
use super::shell::Shared;
use crate::proxy::Way;
use crate::{Error, Loss, Which};

/// A ZooKeeper in this process. For tests and for trying things out: it keeps
/// nothing, and production is Apache ZooKeeper.
///
/// It speaks ZooKeeper's protocol on a loopback port, behaves as Apache ZooKeeper 3.8
/// does, and does wrong what it is told to. All methods take `&self` and act at once;
/// methods that take a server's index panic if there is none, as a slice does.
///
/// It works on the tokio runtime that it was started on, in that runtime's time: with
/// tokio's clock paused, sessions expire in virtual time. Without a runtime it works
/// [on a thread of its own](TestServerBuilder::start_on_thread). It ends when it is
/// dropped, with all its connections.
///
/// # The three-server shape
/// With [`servers(3)`](TestServerBuilder::servers) there are three ports and one log.
/// Server 0 leads, for good; the others carry the log out after it. Each answers
/// reads from its own view, and passes writes on. A follower that is
/// [isolated](Self::isolate) goes on answering reads and pings until the sync limit
/// has passed, while the others expire its sessions.
#[derive(Debug)]
pub struct TestServer {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    /// Its thread, if it has one of its own, ends when this is dropped.
    thread: Option<oneshot::Sender<()>>,
}

/// A session of a [`TestServer`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id, as its client knows it.
    pub id: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// The index of the server that its client came to last.
    pub server: usize,
    /// Whether its client is connected.
    pub connected: bool,
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

    pub(super) fn assemble(
        shared: Arc<Shared>,
        addresses: Vec<SocketAddr>,
        tasks: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { shared, addresses, tasks, thread: None }
    }

    /// The same, with a thread that ends with it.
    pub(super) fn on_thread(mut self, end: oneshot::Sender<()>) -> Self {
        self.thread = Some(end);
        self
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

    /// The index of the server that leads.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.shared.with(|cluster, _| cluster.leader())
    }

    /// How many connections there are, to all servers.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.with(|cluster, _| cluster.connections())
    }

    /// The sessions that there are, by their ids.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let info = |view: SessionView| SessionInfo {
            id: view.id,
            timeout: view.timeout,
            server: view.server,
            connected: view.connected,
        };
        self.shared.with(|cluster, _| cluster.sessions()).into_iter().map(info).collect()
    }

    /// The last transaction that a server has carried out.
    #[must_use]
    pub fn zxid(&self, server: usize) -> i64 {
        self.check(server);
        self.shared.with(|cluster, _| cluster.zxid(server))
    }

    /// What a server has at a path, past all access lists; `None` without a znode.
    #[must_use]
    pub fn data(&self, server: usize, path: &str) -> Option<Vec<u8>> {
        self.check(server);
        self.shared.with(|cluster, _| cluster.data(server, path))
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
        let expired = self.shared.with(|cluster, now| cluster.expire_session(now, session));
        if expired { Ok(()) } else { Err(Error::NoSession { session }) }
    }

    /// Resets the connection of a session. False if it has none.
    pub fn drop_connection(&self, session: i64) -> bool {
        self.shared.with(|cluster, now| cluster.drop_connections(now, Some(session))) > 0
    }

    /// Resets all connections, and says how many there were.
    pub fn drop_connections(&self) -> usize {
        self.shared.with(|cluster, now| cluster.drop_connections(now, None))
    }

    /// Drops the connection of a session, and lets only one server take the session
    /// back: its client is moved there as soon as it tries, if it knows that address.
    pub fn move_session(&self, session: i64, to: usize) {
        self.check(to);
        self.shared.with(|cluster, now| cluster.move_session(now, session, to));
    }

    /// Stops answering, or goes on: nothing passes between clients and servers, in
    /// either direction, on connections that there are and that come. Nothing is
    /// closed or lost; bytes just don't arrive until it ends.
    pub fn black_hole(&self, on: bool) {
        self.switch(Switch::BlackHole(None), on);
    }

    /// As [`black_hole`](Self::black_hole), for the connection of one session.
    pub fn black_hole_session(&self, session: i64, on: bool) {
        self.switch(Switch::BlackHole(Some(session)), on);
    }

    /// Keeps back what comes on the connection that a session has at the moment. Let
    /// through again, it arrives even if the client has closed that connection
    /// meanwhile, or has come back on another: so a write of an earlier connection can
    /// come after those of a later one, or after its client has given it up.
    pub fn hold_requests(&self, session: i64, on: bool) {
        self.switch(Switch::HoldRequests(session), on);
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
        self.shared.with(|cluster, now| cluster.set_delay(now, by));
    }

    /// Collects requests for as long as `window`, from the first one on, and carries
    /// them out in an order drawn from the [seed](TestServerBuilder::seed); those of
    /// one connection stay in theirs. `None`: as they come.
    pub fn reorder_requests(&self, window: Option<Duration>) {
        self.shared.with(|cluster, now| cluster.set_reorder(now, window));
    }

    // Servers.

    /// Cuts a follower off from the others, and not from its clients: it goes on
    /// answering reads and pings, from ever older data, and takes writes that it can't
    /// pass on, until the sync limit has passed. Then it drops its clients.
    /// The others expire its sessions after their timeouts.
    ///
    /// # Errors
    /// [`Error::Settings`] for the server that leads.
    pub fn isolate(&self, server: usize) -> Result<(), Error> {
        self.check(server);
        if server == self.leader() {
            return Err(Error::Settings(format!(
                "server {server} leads, and stays the leader: isolate the others"
            )));
        }
        self.switch(Switch::Isolate(server), true);
        Ok(())
    }

    /// Ends [`isolate`](Self::isolate): what was under way arrives, and a server that
    /// had given up serves again.
    pub fn rejoin(&self, server: usize) {
        self.check(server);
        self.switch(Switch::Isolate(server), false);
    }

    /// Keeps back what is committed from a follower, or lets it through again: its
    /// view stays as it is, while all else works. Writes of its own clients are carried
    /// out, and answered when it hears of them.
    pub fn hold_commits(&self, server: usize, on: bool) {
        self.check(server);
        self.switch(Switch::HoldCommits(server), on);
    }

    /// Lets a follower hear of what is committed so much later.
    pub fn lag(&self, server: usize, by: Duration) {
        self.check(server);
        self.shared.with(|cluster, now| cluster.set_lag(now, server, by));
    }

    /// Leaves the servers room for so many more bytes of log. With the write that does
    /// not fit they stop, as Apache ZooKeeper does when its disk is full: every
    /// connection is reset, and none is served. `None` gives them all the room there
    /// is, and they serve again.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.shared.with(|cluster, now| cluster.set_space(now, bytes));
    }

    // Time.

    /// Stops the servers' clock, or lets it go on from there: while it stands no
    /// session expires, no znode ends by itself, and an isolated server does not give
    /// up. Delays don't depend on it.
    pub fn freeze_time(&self, on: bool) {
        self.switch(Switch::FreezeTime, on);
    }

    /// Puts the servers' clock forward, frozen or not: whatever has become due happens
    /// at once.
    pub fn advance_time(&self, by: Duration) {
        self.shared.with(|cluster, now| cluster.put_clock_forward(now, by));
    }

    fn switch(&self, what: Switch, on: bool) {
        self.shared.with(|cluster, now| cluster.switch(now, what, on));
    }

    fn doom(&self, which: Which, way: Way) -> Loss {
        self.shared.with(|cluster, _| cluster.doom(which, way))
    }

    fn check(&self, server: usize) {
        assert!(server < self.addresses.len(), "there is no server {server} of {}", self.addresses.len());
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
