//! The servers, as a state machine without I/O: bytes, times and faults go in, bytes
//! and ends of connections come out.
//!
//! ```text
//!   receive ──> frames ──> queue of the connection ──┬── read: answered from the server's view
//!                                                    └── write: outbox ──> leader: log ──┐
//!   outputs <── replies, events <── server's view <── inbox of each server <────────────┘
//! ```
//!
//! One server leads and decides on its own view (`prepare`); every server, it
//! included, carries out the log in its order (`Tree::apply`). A link between a
//! server and the others can be slow, held or cut. Everything that happens,
//! happens in [`Cluster::run`], until there is nothing left to be done now.

mod clock;
mod connection;
mod faults;
mod four_letter_words;
mod handshake;
mod leading;
mod prepare;
mod reads;
mod replica;
mod serving;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use clock::Clock;
use connection::{Connection, Queued, Stage};
pub(crate) use connection::{Ending, Output};
use replica::{Delivery, Replica};
use sessions::Sessions;
use zk_proto::Reply;

use super::settings::TestServerBuilder;
use super::tree::Tree;
use crate::proxy::Rules;

/// How a server refuses clients that another one serves: [`TestServerFaults::refuse_clients`](crate::TestServerFaults).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Credentials (`addauth`) are refused, and the connection is closed.
    Credentials,
    /// The first request is refused, because it requires SASL, and the connection is closed.
    RequiresSasl,
    /// A session to be resumed has expired.
    Expired,
    /// A client that resumes a session gets another one, as from ClickHouse Keeper.
    AnotherSession,
    /// As ClickHouse Keeper does: the same, and the password of each session is zero.
    Keeper,
    /// It is read-only.
    ReadOnly,
    /// It grants no session timeout that is longer than this (`maxSessionTimeout`).
    GrantsAtMost(Duration),
    /// Every request, and credentials, are answered by that error code.
    Error(i32),
}

/// What one start of the servers has for itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start {
    /// The date, in milliseconds since 1970.
    pub(crate) ms: i64,
    /// What faults draw from.
    pub(crate) seed: u64,
    /// What makes session ids and passwords.
    pub(crate) secret: u64,
}

/// A session of a [`TestServer`](crate::TestServer).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id, as its client has it.
    pub id: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// The index of the server that its client came to last.
    pub server: usize,
    /// Whether its client is connected.
    pub connected: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) settings: TestServerBuilder,
    addresses: Vec<SocketAddr>,
    start: Start,
    now: Duration,
    clock: Clock,
    random: fastrand::Rng,
    /// The server that leads, or that led last. It has all that was committed.
    leader: usize,
    replicas: Vec<Replica>,
    sessions: Sessions,
    opened_sessions: u64,
    connections: BTreeMap<u64, Connection>,
    opened_connections: u64,
    /// Until when connections have to send their first frame, in their order. Most have done so.
    handshake_by: VecDeque<(Duration, u64)>,
    /// Connections that may have something to be done.
    ready: VecDeque<u64>,
    outputs: Vec<(u64, Output)>,
    /// When connections have something to be let out.
    delayed: BTreeSet<(Duration, u64)>,
    next_container_check: Duration,
    /// By the servers' clock, since when there is no majority.
    alone_since: Option<Duration>,
    /// Faults that wait for a request.
    pub(crate) rules: Rules,
    /// Whether new connections are black holes as well.
    black_hole: bool,
    /// Every reply comes so much later.
    pub(crate) delay: Duration,
    reorder: Option<Duration>,
    shuffled: Vec<(u64, Queued)>,
    shuffle_at: Option<Duration>,
    /// Which server takes a session back, where that is settled.
    destined: BTreeMap<i64, usize>,
    /// How many bytes of log there is room for.
    space: Option<u64>,
    /// What `stmk` has set, for `gtmk`.
    trace_mask: i64,
}

/// Apache ZooKeeper's default.
const TRACE_MASK: i64 = 306;
/// How many bytes may be on their way to a client before nothing more is taken from it.
const MOST_UNSENT: usize = 4 << 20;

impl Cluster {
    pub(crate) fn new(settings: TestServerBuilder, addresses: Vec<SocketAddr>, start: Start) -> Self {
        let tree = Tree::new(config(&addresses));
        let replicas = (0..settings.servers).map(|_| Replica::new(tree.clone(), settings.release)).collect();
        Self {
            addresses,
            start,
            random: fastrand::Rng::with_seed(start.seed),
            replicas,
            sessions: Sessions::new(millis(settings.tick_time)),
            trace_mask: TRACE_MASK,
            next_container_check: settings.container_check,
            settings,
            ..Self::default()
        }
    }

    /// Does something to the servers, and then all that can be done. `now` is the time since the beginning.
    pub(crate) fn act<T>(&mut self, now: Duration, act: impl FnOnce(&mut Self) -> T) -> T {
        self.now = now;
        let result = act(self);
        self.run();
        result
    }

    // What happens to it, within `act`.

    /// A client has connected to a server.
    pub(crate) fn open(&mut self, server: usize, peer: SocketAddr) -> u64 {
        self.opened_connections += 1;
        let id = self.opened_connections;
        let like_it =
            self.connections.values().filter(|held| held.at == server && held.peer.ip() == peer.ip());
        let is_one_too_many =
            self.settings.max_connections.checked_sub(1).is_some_and(|most| like_it.count() > most);
        let mut connection = Connection::new(server, peer);
        connection.black_hole = self.black_hole;
        self.connections.insert(id, connection);
        self.handshake_by.push_back((self.shown() + self.settings.handshake_timeout, id));
        if is_one_too_many || !self.is_running(server) {
            self.reset(id);
        }
        id
    }

    /// Bytes have come from a client.
    pub(crate) fn receive(&mut self, connection: u64, bytes: &[u8]) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.input.extend_from_slice(bytes);
            self.read_input(connection);
        }
    }

    /// Whether more is to be read from a client: not from one that does not read its replies.
    pub(crate) fn has_room(&self, connection: u64) -> bool {
        self.connections.get(&connection).is_none_or(|held| held.unsent < MOST_UNSENT)
    }

    /// So many bytes have gone out to a client.
    pub(crate) fn written(&mut self, connection: u64, count: usize) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.unsent = held.unsent.saturating_sub(count);
            self.ready.push_back(connection);
        }
    }

    /// A client has hung up.
    pub(crate) fn disconnected(&mut self, connection: u64) {
        match self.connections.get_mut(&connection) {
            // What it has sent is still to arrive.
            Some(held) if (held.requests_held || held.black_hole) && held.stage != Stage::Over => {
                held.peer_gone = true;
                held.unsent = 0;
            }
            _ => self.forget(connection),
        }
    }

    /// Until when nothing happens by itself.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        let arriving = self.replicas.iter().filter_map(Replica::next_delivery);
        let by_clock = self.next_by_clock().and_then(|shows| self.clock.when(shows));
        [delayed, self.shuffle_at, by_clock].into_iter().flatten().chain(arriving).min()
    }

    /// What is to be done to connections, in order.
    pub(crate) fn take_outputs(&mut self) -> Vec<(u64, Output)> {
        std::mem::take(&mut self.outputs)
    }

    // What it is asked.

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.has_majority().then_some(self.leader)
    }

    pub(crate) fn is_running(&self, server: usize) -> bool {
        !self.replicas[server].link.stopped
    }

    pub(crate) fn zxid(&self, server: usize) -> i64 {
        self.replicas[server].tree.zxid()
    }

    pub(crate) fn sessions(&self) -> Vec<SessionInfo> {
        let info = |(id, timeout_ms, server)| SessionInfo {
            id,
            timeout: Duration::from_millis(timeout_ms),
            server,
            connected: self.connections.values().any(|held| held.session() == Some(id)),
        };
        self.sessions.list().into_iter().map(info).collect()
    }

    pub(crate) fn data(&self, server: usize, path: &str) -> Option<Vec<u8>> {
        let node = self.replicas[server].tree.get(path)?;
        Some(node.data.as_deref().unwrap_or_default().to_vec())
    }

    pub(crate) fn children(&self, server: usize, path: &str) -> Option<Vec<String>> {
        let mut names: Vec<String> = self.replicas[server].tree.get(path)?.children.iter().cloned().collect();
        names.sort_unstable();
        Some(names)
    }

    fn shown(&self) -> Duration {
        self.clock.read(self.now)
    }

    fn next_by_clock(&self) -> Option<Duration> {
        // Without a majority neither can be done, however long ago its time came.
        let can_log = self.has_majority();
        let ends = self.sessions.next_end().filter(|_| can_log).map(Duration::from_millis);
        let expiring = can_log && self.replicas[self.leader].tree.has_expiring_znodes();
        let checks = expiring.then_some(self.next_container_check);
        let handshake = self.handshake_by.front().map(|(by, _)| *by);
        let limit = self.settings.tick_time * self.settings.sync_limit;
        let of_replicas = self.replicas.iter().flat_map(|replica| {
            let cut = replica.link.cut_since.filter(|_| replica.serving).map(|since| since + limit);
            let told = replica.report_at.filter(|_| replica.link.is_up());
            let local_ends = replica.local.as_ref().and_then(Sessions::next_end);
            [cut, told, local_ends.map(Duration::from_millis)]
        });
        let alone = self.alone_since.map(|since| since + limit);
        [ends, checks, handshake, alone].into_iter().chain(of_replicas).flatten().min()
    }

    /// Does all that can be done now.
    fn run(&mut self) {
        self.run_timers();
        self.shuffle();
        self.settle();
        self.flush_due();
    }

    fn settle(&mut self) {
        loop {
            if let Some(connection) = self.ready.pop_front() {
                self.read_input(connection);
                self.pump(connection);
                self.forget_if_done(connection);
            } else if !self.lead() && !self.deliver() {
                break;
            }
        }
    }

    /// Carries out what has come from the leader. False if there was nothing.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.replicas.len() {
            while let Some(delivery) = self.replicas[index].take_delivery(self.now) {
                any = true;
                match delivery {
                    Delivery::Commit { txn, origin } => self.apply(index, &txn, origin),
                    Delivery::Synced { origin, path } => self.answered(origin, Ok(Reply::Path(path))),
                }
            }
        }
        any
    }

    /// Puts something on its way to a client.
    fn send_to_client(&mut self, connection: u64, what: Output) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        if (held.unanswered || held.peer_gone) && matches!(what, Output::Send(_)) {
            return;
        }
        if let Output::Send(bytes) = &what {
            held.unsent += bytes.len();
        }
        // A reset is no reply.
        let is_reset = matches!(what, Output::Close(Ending::Reset));
        let delay = if is_reset { Duration::ZERO } else { self.delay.saturating_add(held.delay) };
        let due = self.now.saturating_add(delay);
        // One thing after the other, whatever the delays were.
        let due = held.output.back().map_or(due, |(last, _)| due.max(*last));
        held.output.push_back((due, what));
        self.delayed.insert((due, connection));
    }

    /// Nothing more is done for a connection; its pending output is still written.
    fn end(&mut self, connection: u64, ending: Ending) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        if held.stage == Stage::Over {
            return;
        }
        if held.peer_gone {
            return self.forget(connection);
        }
        held.stage = Stage::Over;
        held.queue.clear();
        held.input = BytesMut::new();
        let at = held.at;
        self.replicas[at].watches.forget(connection);
        self.send_to_client(connection, Output::Close(ending));
    }

    fn flush_due(&mut self) {
        while let Some((due, connection)) = self.delayed.first().copied() {
            if due > self.now {
                break;
            }
            self.delayed.pop_first();
            self.flush_connection(connection);
        }
    }

    fn flush_connection(&mut self, connection: u64) {
        let Some(held) = self.connections.get_mut(&connection).filter(|held| !held.black_hole) else {
            return;
        };
        while held.output.front().is_some_and(|(due, _)| *due <= self.now) {
            let Some((_, output)) = held.output.pop_front() else { return };
            let is_last = matches!(output, Output::Close(_));
            self.outputs.push((connection, output));
            if is_last {
                return self.forget(connection);
            }
            held.sent += 1;
            self.replicas[held.at].sent += 1;
        }
    }

    /// A client that has hung up is there until all that it had sent is done.
    fn forget_if_done(&mut self, connection: u64) {
        let Some(held) = self.connections.get(&connection).filter(|held| held.peer_gone) else { return };
        if held.reads() && !held.waiting && held.queue.is_empty() && held.collected == 0 {
            self.forget(connection);
        }
    }

    fn forget(&mut self, connection: u64) {
        if let Some(held) = self.connections.remove(&connection) {
            self.replicas[held.at].watches.forget(connection);
            self.shuffled.retain(|(from, _)| *from != connection);
        }
    }

    fn connections_at(&self, server: usize) -> Vec<u64> {
        self.connections.iter().filter(|(_, held)| held.at == server).map(|(id, _)| *id).collect()
    }

    /// The connections of a session, at one server or at any.
    fn connections_of(&self, session: i64, at: Option<usize>) -> Vec<u64> {
        let of = self.connections.iter().filter(|(_, held)| held.session() == Some(session));
        of.filter(|(_, held)| at.is_none_or(|at| at == held.at)).map(|(id, _)| *id).collect()
    }
}

/// Apache ZooKeeper's description of its ensemble. Between these servers there are no ports, so the clients' ports are
/// where others would.
fn config(addresses: &[SocketAddr]) -> String {
    if addresses.len() == 1 {
        return String::new();
    }
    let line = |(number, address): (usize, &SocketAddr)| {
        format!("server.{number}={address}:{port}:participant;{address}\n", port = address.port())
    };
    (1..).zip(addresses).map(line).collect::<String>() + "version=0"
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tree::{Change, Owner, for_anyone};
    use zk_proto::permission;

    /// Otherwise the timer task would loop.
    #[test]
    fn what_cannot_be_done_is_not_due() {
        let hour = Duration::from_secs(3600);
        let settings = TestServerBuilder { servers: 3, ..TestServerBuilder::default() };
        let start = Start { ms: 0, seed: 1, secret: 1 };
        let mut cluster = Cluster::new(settings, vec![([127, 0, 0, 1], 1).into(); 3], start);
        let change = Change::Create {
            path: "/box".to_owned(),
            data: None,
            acl: for_anyone(permission::ALL),
            owner: Owner::Container,
            created_children: 1,
            with_stat: false,
        };
        cluster.log(0, change, None, 0);
        cluster.sessions.open(7, 1000, 0, 0);
        assert!(cluster.next_deadline().is_some());
        for server in [1, 2] {
            cluster.act(Duration::ZERO, |cluster| cluster.isolate(server));
        }
        // They give up, and then wait for the others for however long it takes.
        for now in [hour / 2, hour] {
            cluster.act(now, |_| ());
            assert!(cluster.next_deadline().is_none_or(|at| at > now));
        }
        assert_eq!(cluster.sessions().len(), 1);
        cluster.act(hour, |cluster| cluster.rejoin(1));
        assert!(cluster.next_deadline().is_some_and(|at| at > hour), "it has its timeout anew");
    }
}
