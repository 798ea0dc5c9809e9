//! What can be done to the servers, their clocks, their links and their clients.

use std::time::Duration;

use super::connection::Ending;
use super::{Cluster, millis};
use crate::proxy::{Loss, Way, Which};

/// A fault on which only one thing is known: whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// Nothing passes between the clients of this session, or all clients, and the servers.
    BlackHole(Option<i64>),
    /// What the client of this session sends is kept back.
    HoldRequests(i64),
    /// The follower hears nothing of what is committed.
    HoldCommits(usize),
    /// Nothing passes between this server and the others.
    Isolate(usize),
    /// Time stands still.
    FreezeTime,
}

impl Cluster {
    pub(crate) fn switch(&mut self, now: Duration, what: Switch, on: bool) {
        self.now = now;
        self.keep_time();
        match what {
            Switch::BlackHole(session) => self.set_black_hole(session, on),
            Switch::HoldRequests(session) => {
                for connection in self.connections_of(session, None) {
                    if let Some(held) = self.connections.get_mut(&connection) {
                        held.requests_held = on;
                        self.ready.push_back(connection);
                    }
                }
            }
            Switch::HoldCommits(server) => self.replicas[server].link.held = on,
            Switch::Isolate(server) if on => self.isolate(server),
            Switch::Isolate(server) => self.rejoin(server),
            Switch::FreezeTime => self.clock.stop(self.now, on),
        }
        self.run();
    }

    fn set_black_hole(&mut self, session: Option<i64>, on: bool) {
        if session.is_none() {
            self.black_hole = on;
        }
        for (id, held) in &mut self.connections {
            if session.is_none() || held.session() == session {
                held.black_hole = on;
                self.ready.push_back(*id);
                if let Some((due, _)) = held.output.front() {
                    self.delayed.insert((*due, *id));
                }
            }
        }
    }

    fn isolate(&mut self, server: usize) {
        let shown = self.shown();
        self.replicas[server].link.cut_since.get_or_insert(shown);
        if !self.has_majority() {
            self.alone_since.get_or_insert(shown);
        }
    }

    fn rejoin(&mut self, server: usize) {
        if self.replicas[server].link.cut_since.take().is_none() {
            return;
        }
        let leader_served = self.replicas[self.leader].serving;
        self.alone_since = None;
        // A majority found itself again: it has a leader, who gives every session time to come back.
        if !leader_served {
            self.replicas[self.leader].serving = true;
            self.sessions.start_anew(millis(self.shown()));
        }
        let tree = self.replicas[self.leader].tree.clone();
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            if index != self.leader && replica.link.is_up() && !replica.serving {
                replica.tree = tree.clone();
                replica.serving = true;
            }
        }
        self.hear_of_touches(true);
    }

    /// False if there is no such session.
    pub(crate) fn expire_session(&mut self, now: Duration, session: i64) -> bool {
        self.now = now;
        let expired = self.sessions.end_now(session);
        self.run();
        expired
    }

    /// Resets the connections of a session, or all; gives how many there were.
    pub(crate) fn drop_connections(&mut self, now: Duration, session: Option<i64>) -> usize {
        self.now = now;
        let those = match session {
            Some(session) => self.connections_of(session, None),
            None => self.connections.keys().copied().collect(),
        };
        for connection in &those {
            self.reset(*connection);
        }
        self.run();
        those.len()
    }

    /// At once, whatever was still to be said.
    pub(super) fn reset(&mut self, connection: u64) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.output.clear();
            held.black_hole = false;
            held.delay = Duration::ZERO;
        }
        self.end(connection, Ending::Reset);
    }

    /// Lets a session be taken up by that server only, and cuts its connections to
    /// the others.
    pub(crate) fn move_session(&mut self, now: Duration, session: i64, to: usize) {
        self.now = now;
        self.destined.insert(session, to);
        for connection in self.connections_of(session, None) {
            if self.connections.get(&connection).is_some_and(|held| held.at != to) {
                self.reset(connection);
            } else {
                self.destined.remove(&session);
            }
        }
        self.run();
    }

    pub(crate) fn set_delay(&mut self, now: Duration, delay: Duration) {
        self.now = now;
        self.delay = delay;
        self.run();
    }

    pub(crate) fn set_lag(&mut self, now: Duration, server: usize, lag: Duration) {
        self.now = now;
        self.replicas[server].link.lag = lag;
        self.run();
    }

    pub(crate) fn set_reorder(&mut self, now: Duration, window: Option<Duration>) {
        self.now = now;
        self.reorder = window;
        if window.is_none() {
            self.shuffle_at = self.shuffle_at.map(|_| now);
        }
        self.run();
    }

    pub(crate) fn set_space(&mut self, now: Duration, space: Option<u64>) {
        self.now = now;
        self.space = space;
        if space.is_none() && !self.replicas[self.leader].serving {
            let tree = self.replicas[self.leader].tree.clone();
            for replica in self.replicas.iter_mut().filter(|replica| replica.link.is_up()) {
                replica.tree = tree.clone();
                replica.serving = true;
            }
            self.sessions.start_anew(millis(self.shown()));
        }
        self.run();
    }

    pub(crate) fn put_clock_forward(&mut self, now: Duration, by: Duration) {
        self.now = now;
        self.hear_of_touches(true);
        self.clock.put_forward(now, by);
        self.run();
    }

    pub(crate) fn doom(&mut self, which: Which, way: Way) -> Loss {
        self.rules.add(which, way)
    }

    /// Puts the requests of different connections into an order drawn by lot; those
    /// of one connection stay in theirs.
    pub(super) fn shuffle(&mut self) {
        if self.shuffle_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.shuffle_at = None;
        let mut waiting = std::mem::take(&mut self.shuffled);
        while !waiting.is_empty() {
            let mut senders: Vec<u64> = waiting.iter().map(|(connection, _)| *connection).collect();
            senders.sort_unstable();
            senders.dedup();
            let sender = senders[self.random.usize(..senders.len())];
            let Some(at) = waiting.iter().position(|(connection, _)| *connection == sender) else { return };
            let (connection, queued) = waiting.remove(at);
            if let Some(held) = self.connections.get_mut(&connection) {
                held.queue.push_back(queued);
                self.ready.push_back(connection);
            }
            self.settle();
        }
    }
}
