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
//! follower and the leader can be slow, held or cut. Everything that happens,
//! happens in [`Cluster::run`], until there is nothing left to be done now.

mod clock;
mod connection;
mod faults;
mod handshake;
mod leading;
mod prepare;
mod reads;
mod replica;
mod serving;
mod sessions;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clock::Clock;
pub(crate) use connection::Ending;
use connection::{Connection, Outgoing, Queued, Stage};
pub(crate) use faults::Switch;
use replica::{Delivery, Replica};
use sessions::Sessions;

use super::tree::Tree;
use crate::proxy::Rules;

/// What a cluster is made with; checked by the builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) servers: usize,
    pub(crate) tick: Duration,
    /// In ticks.
    pub(crate) sync_limit: u32,
    pub(crate) min_timeout: Duration,
    pub(crate) max_timeout: Duration,
    pub(crate) max_frame: usize,
    pub(crate) ttl_enabled: bool,
    /// How often what ends by itself is looked for.
    pub(crate) container_check: Duration,
    pub(crate) seed: u64,
    /// The date at the beginning, in milliseconds since 1970.
    pub(crate) started_ms: i64,
    /// For `conf` and `srvr`.
    pub(crate) ports: Vec<u16>,
}

/// What is to be done to a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Send(Bytes),
    Close(Ending),
}

/// Sessions, as they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionView {
    pub(crate) id: i64,
    pub(crate) timeout: Duration,
    pub(crate) server: usize,
    pub(crate) connected: bool,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    settings: Settings,
    now: Duration,
    clock: Clock,
    random: fastrand::Rng,
    /// The server that leads. It stays the same.
    leader: usize,
    replicas: Vec<Replica>,
    sessions: Sessions,
    opened_sessions: u64,
    connections: BTreeMap<u64, Connection>,
    opened_connections: u64,
    /// Connections that may have something to be done.
    ready: VecDeque<u64>,
    outputs: Vec<(u64, Output)>,
    /// When connections have something to be let out.
    delayed: BTreeSet<(Duration, u64)>,
    next_container_check: Duration,
    /// By the servers' clock, since when there is no majority.
    alone_since: Option<Duration>,
    rules: Rules,
    /// Whether new connections are black holes as well.
    black_hole: bool,
    /// Every reply comes so much later.
    delay: Duration,
    reorder: Option<Duration>,
    shuffled: Vec<(u64, Queued)>,
    shuffle_at: Option<Duration>,
    /// Which server takes a session back, where that is settled.
    destined: BTreeMap<i64, usize>,
    /// How many bytes of log there is room for.
    space: Option<u64>,
}

impl Cluster {
    pub(crate) fn new(settings: Settings) -> Self {
        let replicas = (0..settings.servers).map(|_| Replica::new(Tree::new())).collect();
        Self {
            now: Duration::ZERO,
            clock: Clock::default(),
            random: fastrand::Rng::with_seed(settings.seed),
            leader: 0,
            replicas,
            sessions: Sessions::new(millis(settings.tick)),
            opened_sessions: 0,
            connections: BTreeMap::new(),
            opened_connections: 0,
            ready: VecDeque::new(),
            outputs: Vec::new(),
            delayed: BTreeSet::new(),
            next_container_check: settings.container_check,
            alone_since: None,
            rules: Rules::default(),
            black_hole: false,
            delay: Duration::ZERO,
            reorder: None,
            shuffled: Vec::new(),
            shuffle_at: None,
            destined: BTreeMap::new(),
            space: None,
            settings,
        }
    }

    // What happens to it. `now` is the time since the beginning.

    /// A client has connected to a server.
    pub(crate) fn open(&mut self, now: Duration, server: usize, peer: IpAddr) -> u64 {
        self.now = now;
        self.opened_connections += 1;
        let mut connection = Connection::new(server, peer);
        connection.black_hole = self.black_hole;
        self.connections.insert(self.opened_connections, connection);
        self.opened_connections
    }

    /// Bytes have come from a client.
    pub(crate) fn receive(&mut self, now: Duration, connection: u64, bytes: &[u8]) {
        self.now = now;
        if let Some(held) = self.connections.get_mut(&connection) {
            held.input.extend_from_slice(bytes);
            self.read_input(connection);
        }
        self.run();
    }

    /// A client has hung up.
    pub(crate) fn hung_up(&mut self, now: Duration, connection: u64) {
        self.now = now;
        match self.connections.get_mut(&connection) {
            Some(held) if held.requests_held => held.peer_gone = true,
            _ => self.forget(connection),
        }
        self.run();
    }

    /// The time has come that [`next_deadline`](Self::next_deadline) gave.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.now = now;
        self.run();
    }

    /// Until when nothing happens by itself.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        let arriving = self.replicas.iter().enumerate().filter_map(|(index, replica)| {
            let held = index != self.leader && (!replica.link.is_up() || replica.link.held);
            replica.inbox.front().filter(|_| !held).map(|(at, _)| *at)
        });
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

    pub(crate) fn leader(&self) -> usize {
        self.leader
    }

    pub(crate) fn zxid(&self, server: usize) -> i64 {
        self.replicas[server].tree.zxid()
    }

    pub(crate) fn sessions(&self) -> Vec<SessionView> {
        let view = |(id, timeout_ms, server)| SessionView {
            id,
            timeout: Duration::from_millis(timeout_ms),
            server,
            connected: self.connections.values().any(|held| held.session() == Some(id)),
        };
        self.sessions.list().into_iter().map(view).collect()
    }

    pub(crate) fn data(&self, server: usize, path: &str) -> Option<Vec<u8>> {
        let node = self.replicas[server].tree.get(path)?;
        Some(node.data.as_deref().unwrap_or_default().to_vec())
    }

    fn shown(&self) -> Duration {
        self.clock.read(self.now)
    }

    fn next_by_clock(&self) -> Option<Duration> {
        // Without a majority neither can be done, however long ago its time came.
        let can_log = self.has_majority();
        let ends = self.sessions.next_end().filter(|_| can_log);
        let mortals = can_log && self.replicas[self.leader].tree.has_mortals();
        let checks = mortals.then_some(self.next_container_check);
        let limit = self.settings.tick * self.settings.sync_limit;
        let cut = self.replicas.iter().filter(|replica| replica.serving);
        let cut = cut.filter_map(|replica| replica.link.cut_since);
        let told = self.replicas.iter().filter(|replica| replica.link.is_up());
        let told = told.filter_map(|replica| replica.tell_at);
        let single = [ends.map(Duration::from_millis), checks, self.alone_since.map(|since| since + limit)];
        single.into_iter().flatten().chain(cut.map(|since| since + limit)).chain(told).min()
    }

    /// Does all that can be done now.
    fn run(&mut self) {
        self.keep_time();
        self.shuffle();
        self.settle();
        self.let_out();
    }

    fn settle(&mut self) {
        loop {
            if let Some(connection) = self.ready.pop_front() {
                self.read_input(connection);
                self.pump(connection);
            } else if !self.lead() && !self.deliver() {
                break;
            }
        }
    }

    /// Carries out what has come from the leader. False if there was nothing.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.replicas.len() {
            while let Some(delivery) = self.replicas[index].take_delivery(self.now, index == self.leader) {
                any = true;
                match delivery {
                    Delivery::Commit { txn, origin } => self.apply(index, &txn, origin),
                    Delivery::Synced { origin, path } => self.synced(origin, path),
                }
            }
        }
        any
    }

    /// Puts something on its way to a client.
    fn say(&mut self, connection: u64, what: Outgoing) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        if held.mute && matches!(what, Outgoing::Frame(_)) {
            return;
        }
        let due = self.now + self.delay + held.delay;
        // One thing after the other, whatever the delays were.
        let due = held.output.back().map_or(due, |(last, _)| due.max(*last));
        held.output.push_back((due, what));
        self.delayed.insert((due, connection));
    }

    /// Nothing more is done for a connection; what was said to it still goes out.
    fn end(&mut self, connection: u64, ending: Ending) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        if held.stage == Stage::Over {
            return;
        }
        held.stage = Stage::Over;
        held.queue.clear();
        held.input = BytesMut::new();
        let at = held.at;
        self.replicas[at].watches.forget(connection);
        self.say(connection, Outgoing::Close(ending));
    }

    fn let_out(&mut self) {
        while let Some((due, connection)) = self.delayed.first().copied() {
            if due > self.now {
                break;
            }
            self.delayed.pop_first();
            self.let_out_of(connection);
        }
    }

    fn let_out_of(&mut self, connection: u64) {
        let Some(held) = self.connections.get_mut(&connection).filter(|held| !held.black_hole) else {
            return;
        };
        while held.output.front().is_some_and(|(due, _)| *due <= self.now) {
            match held.output.pop_front() {
                Some((_, Outgoing::Frame(frame))) => {
                    held.sent += 1;
                    self.replicas[held.at].sent += 1;
                    self.outputs.push((connection, Output::Send(frame)));
                }
                Some((_, Outgoing::Close(ending))) => {
                    self.outputs.push((connection, Output::Close(ending)));
                    self.forget(connection);
                    return;
                }
                None => return,
            }
        }
    }

    fn forget(&mut self, connection: u64) {
        if let Some(held) = self.connections.remove(&connection) {
            self.replicas[held.at].watches.forget(connection);
            self.shuffled.retain(|(from, _)| *from != connection);
        }
    }

    /// The connections of a session, at one server or at any.
    fn connections_of(&self, session: i64, at: Option<usize>) -> Vec<u64> {
        let of = self.connections.iter().filter(|(_, held)| held.session() == Some(session));
        of.filter(|(_, held)| at.is_none_or(|at| at == held.at)).map(|(id, _)| *id).collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tree::{Change, Owner, for_anyone};
    use zk_proto::permission;

    /// Otherwise whoever keeps the time would turn in circles.
    #[test]
    fn what_cannot_be_done_is_not_due() {
        let hour = Duration::from_secs(3600);
        let mut cluster = Cluster::new(Settings {
            servers: 3,
            tick: Duration::from_millis(500),
            sync_limit: 10,
            min_timeout: Duration::from_secs(1),
            max_timeout: Duration::from_secs(10),
            max_frame: 1000,
            ttl_enabled: true,
            container_check: Duration::from_secs(60),
            seed: 1,
            started_ms: 0,
            ports: vec![1, 2, 3],
        });
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
            cluster.switch(Duration::ZERO, Switch::Isolate(server), true);
        }
        // They give up, and then wait for the others for however long it takes.
        for now in [hour / 2, hour] {
            cluster.tick(now);
            assert!(cluster.next_deadline().is_none_or(|at| at > now));
        }
        assert_eq!(cluster.sessions().len(), 1);
        cluster.switch(hour, Switch::Isolate(1), false);
        assert!(cluster.next_deadline().is_some_and(|at| at > hour), "it has its timeout anew");
    }
}
