//! The faults of the embedded server.

use std::time::Duration;

use super::cluster::Refusal;
use super::server::TestServer;
use crate::proxy::FaultKind;
use crate::{Error, Loss, Which};

/// Fault injection for a [`TestServer`]. From [`TestServer::faults`].
///
/// Each method acts at once. Methods that take the index of a server panic if there is no such server, as a
/// slice does. Faults of single requests return a [`Loss`], which reports when the fault has happened.
#[derive(Clone, Copy, Debug)]
pub struct TestServerFaults<'a> {
    server: &'a TestServer,
}

impl TestServer {
    /// Fault injection: sessions that expire, connections that break, requests and replies that are lost,
    /// servers that are cut off, and the servers' clock.
    #[must_use]
    pub fn faults(&self) -> TestServerFaults<'_> {
        TestServerFaults { server: self }
    }
}

impl TestServerFaults<'_> {
    // Sessions and connections.

    /// Ends a session as if its timeout had passed. Its ephemerals are deleted and its connection is closed. Its client
    /// learns of it when it reconnects. Servers without a majority end no session; once they have a majority again, the
    /// timeout of every session starts again.
    ///
    /// # Errors
    /// [`Error::NoSession`].
    pub fn expire(self, session: i64) -> Result<(), Error> {
        let expired = self.server.shared.with(|cluster| cluster.expire_session(session));
        if expired { Ok(()) } else { Err(Error::NoSession { session }) }
    }

    /// Resets the connection of a session. Returns false if it has none.
    pub fn disconnect(self, session: i64) -> bool {
        self.server.shared.with(|cluster| cluster.drop_connections(Some(session))) > 0
    }

    /// Resets all connections, and returns their number.
    pub fn disconnect_all(self) -> usize {
        self.server.shared.with(|cluster| cluster.drop_connections(None))
    }

    /// Resets the connection of a session, and lets only server `to` accept the session again: the client moves
    /// there with its next attempt, if it knows that address.
    pub fn move_session(self, session: i64, to: usize) {
        self.server.at(to, |cluster| cluster.move_session(session, to));
    }

    /// Holds back all bytes between clients and servers, in both directions, on existing and new connections;
    /// `false` lets them through again. No connection is closed and no byte is lost.
    pub fn black_hole(self, on: bool) {
        self.server.shared.with(|cluster| cluster.black_hole(None, on));
    }

    /// Holds back all bytes in both directions on the connection of one session; `false` lets them through
    /// again. The connection is not closed and no byte is lost.
    pub fn black_hole_session(self, session: i64, on: bool) {
        self.server.shared.with(|cluster| cluster.black_hole(Some(session), on));
    }

    /// Holds back the requests on the connection that a session has now; `false` lets them through again. They
    /// arrive even if the client has closed that connection meanwhile, or has reconnected. So a write of an
    /// earlier connection can arrive after those of a later one, or after its client has given it up.
    pub fn hold_requests(self, session: i64, on: bool) {
        self.server.shared.with(|cluster| cluster.hold_requests(session, on));
    }

    // Single requests.

    /// Loses the reply to a request: the server carries the request out, and resets the connection instead of
    /// replying.
    pub fn lose_reply(self, which: Which) -> Loss {
        self.add(which, FaultKind::ToClient)
    }

    /// Loses a request: the server does not carry it out, and resets the connection.
    pub fn lose_request(self, which: Which) -> Loss {
        self.add(which, FaultKind::ToServer)
    }

    /// Carries a request out and never answers it, nor any later request on its connection, which stays open.
    pub fn never_answer(self, which: Which) -> Loss {
        self.add(which, FaultKind::Never)
    }

    /// Delays the reply to a request, and all later replies and events on its connection.
    pub fn delay_reply(self, which: Which, by: Duration) -> Loss {
        self.add(which, FaultKind::Late(by))
    }

    /// Delays every reply and every event from now on. Resets are not delayed.
    pub fn delay_replies(self, by: Duration) {
        self.server.shared.with(|cluster| cluster.delay = by);
    }

    /// Collects requests for the time of `window`, from the first one on, and carries them out in an order
    /// drawn from the [seed](crate::TestServerBuilder::seed), which this prints. Requests of one connection
    /// keep their order. `None` carries requests out as they arrive.
    pub fn reorder_requests(self, window: Option<Duration>) {
        if window.is_some() {
            eprintln!("TestServerBuilder::seed({}) replays the order of requests", self.server.seed);
        }
        self.server.shared.with(|cluster| cluster.set_reorder(window));
    }

    // Servers.

    /// Cuts a server off from the other servers, but not from its clients. Until the sync limit has passed it
    /// answers reads and pings, from older and older data, and accepts writes that it can't pass on. Then it
    /// disconnects its clients. The other servers expire its sessions after their timeouts. If the isolated
    /// server is the leader, the others also disconnect their clients once the sync limit has passed, and elect
    /// another leader. Has no effect on a single server.
    pub fn isolate(self, server: usize) {
        self.server.at(server, |cluster| cluster.isolate(server));
    }

    /// Ends [`isolate`](Self::isolate): what was under way arrives, and a server that had given up serves
    /// again.
    pub fn rejoin(self, server: usize) {
        self.server.at(server, |cluster| cluster.rejoin(server));
    }

    /// Has a server refuse its clients from now on, as one with another configuration does; `None` ends it. What it has
    /// accepted before stays.
    pub fn refuse_clients(self, server: usize, refusal: Option<Refusal>) {
        self.server.at(server, |cluster| cluster.refuse_clients(server, refusal));
    }

    /// Holds back commits from a follower; `false` lets them through again. The follower's view does not change
    /// while all else works. Writes of its own clients are carried out, and answered when it receives the
    /// commit.
    pub fn hold_commits(self, server: usize, on: bool) {
        self.server.at(server, |cluster| cluster.hold_commits(server, on));
    }

    /// Delays each commit on its way to a follower.
    pub fn delay_commits(self, server: usize, by: Duration) {
        self.server.at(server, |cluster| cluster.set_lag(server, by));
    }

    /// Makes a follower disagree with the others: it does not carry out the deletion of that znode by any session, and
    /// keeps it for ever, as servers of Apache ZooKeeper are known to do (ZOOKEEPER-4837). It answers reads by its own
    /// znodes; what goes through the log is decided by the leader's. `false` lets later deletions through.
    pub fn keep_znode(self, server: usize, path: &str, on: bool) {
        self.server.at(server, |cluster| cluster.keep_znode(server, path, on));
    }

    /// Makes a follower disagree with the others: it loses a znode, without children, that the others have. No watch
    /// reports that.
    pub fn lose_znode(self, server: usize, path: &str) {
        self.server.at(server, |cluster| cluster.lose_znode(server, path));
    }

    /// Ends a disagreement as an operator does: the server is started again without its data, and copies that of the
    /// leader. Its connections are reset.
    pub fn copy_data(self, server: usize) {
        self.server.at(server, |cluster| cluster.copy_data(server));
    }

    /// Limits the room for the servers' logs to that many more bytes. At the write that does not fit the
    /// servers stop, as Apache ZooKeeper does when its disk is full: they reset every connection and serve no
    /// client. `None` removes the limit, and they serve again.
    pub fn limit_log_space(self, bytes: Option<u64>) {
        self.server.shared.with(|cluster| cluster.set_space(bytes));
    }

    // Time.

    /// Stops the servers' clock; `false` lets it continue from there. While it is stopped no session expires,
    /// no container or TTL znode is removed, and an isolated server does not give up. Delays don't depend on
    /// it.
    pub fn freeze_clock(self, on: bool) {
        self.server.shared.with(|cluster| cluster.stop_clock(on));
    }

    /// Advances the servers' clock, frozen or not. All that has become due happens at once.
    pub fn advance_clock(self, by: Duration) {
        self.server.shared.with(|cluster| cluster.put_clock_forward(by));
    }

    fn add(self, which: Which, kind: FaultKind) -> Loss {
        self.server.shared.with(|cluster| cluster.rules.add(which, kind))
    }
}
