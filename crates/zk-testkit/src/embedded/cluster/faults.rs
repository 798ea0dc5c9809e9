//! Faults of the servers, their clocks, their links and their clients.

use std::time::Duration;

use super::connection::{Ending, Output, Stage};
use super::{Cluster, Refusal};

impl Cluster {
    /// Holds back all bytes between the client of that session, or all clients, and the servers.
    pub(crate) fn black_hole(&mut self, session: Option<i64>, on: bool) {
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

    /// Holds back the requests of the client of that session.
    pub(crate) fn hold_requests(&mut self, session: i64, on: bool) {
        for connection in self.connections_of(session, None) {
            if let Some(held) = self.connections.get_mut(&connection) {
                held.requests_held = on;
                self.ready.push_back(connection);
            }
        }
    }

    /// Holds back commits from a follower.
    pub(crate) fn hold_commits(&mut self, server: usize, on: bool) {
        self.replicas[server].link.held = on && server != self.leader;
    }

    /// Refuses clients at one server.
    pub(crate) fn refuse_clients(&mut self, server: usize, refusal: Option<Refusal>) {
        self.replicas[server].refuses = refusal;
    }

    /// As if its process was killed.
    pub(crate) fn stop(&mut self, server: usize) {
        self.run_timers();
        for connection in self.connections_at(server) {
            self.reset(connection);
        }
        self.replicas[server].link.stopped = true;
        self.stop_serving(server);
        // Clients of a server that ends are disconnected at once.
        if server == self.leader || (self.replicas[self.leader].link.is_up() && !self.has_majority()) {
            self.disband();
        }
    }

    pub(crate) fn start(&mut self, server: usize) {
        self.run_timers();
        self.replicas[server].link.stopped = false;
        self.regroup();
        if !self.replicas[server].serving {
            self.serve_reads(server);
        }
    }

    /// Nothing passes between a server and the others, if there are any.
    pub(crate) fn isolate(&mut self, server: usize) {
        if self.replicas.len() == 1 {
            return;
        }
        // What was due before has still passed.
        self.run_timers();
        let shown = self.shown();
        self.replicas[server].link.cut_since.get_or_insert(shown);
        if !self.has_majority() {
            self.alone_since.get_or_insert(shown);
        }
    }

    pub(crate) fn rejoin(&mut self, server: usize) {
        self.run_timers();
        if self.replicas[server].link.cut_since.take().is_none() {
            return;
        }
        if self.is_running(self.leader) {
            self.regroup();
        } else {
            // A process that has ended resets the connection with the first message that reaches its host.
            self.disband();
        }
        self.report_touches(true);
    }

    /// False if there is no such session.
    pub(crate) fn expire_session(&mut self, session: i64) -> bool {
        let local = self.replicas.iter_mut().filter_map(|replica| replica.local.as_mut());
        [&mut self.sessions].into_iter().chain(local).any(|sessions| sessions.end_now(session))
    }

    /// Resets the connections of a session, or all; gives how many there were.
    pub(crate) fn drop_connections(&mut self, session: Option<i64>) -> usize {
        let those = match session {
            Some(session) => self.connections_of(session, None),
            None => self.connections.keys().copied().collect(),
        };
        for connection in &those {
            self.reset(*connection);
        }
        those.len()
    }

    /// At once, without the pending output.
    pub(super) fn reset(&mut self, connection: u64) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        held.output.clear();
        held.black_hole = false;
        if held.stage == Stage::Over {
            // Its end was among the dropped output.
            return self.send_to_client(connection, Output::Close(Ending::Reset));
        }
        self.end(connection, Ending::Reset);
    }

    /// Lets a session be taken up by that server only, and cuts its connections to
    /// the others.
    pub(crate) fn move_session(&mut self, session: i64, to: usize) {
        self.destined.insert(session, to);
        for connection in self.connections_of(session, None) {
            if self.connections.get(&connection).is_some_and(|held| held.at != to) {
                self.reset(connection);
            } else {
                self.destined.remove(&session);
            }
        }
    }

    pub(crate) fn set_lag(&mut self, server: usize, lag: Duration) {
        self.replicas[server].link.lag = if server == self.leader { Duration::ZERO } else { lag };
    }

    pub(crate) fn keep_znode(&mut self, server: usize, path: &str, on: bool) {
        self.replicas[server].tree.keep(path, on);
    }

    pub(crate) fn lose_znode(&mut self, server: usize, path: &str) {
        self.replicas[server].tree.lose(path);
    }

    /// As after a start without data.
    pub(crate) fn copy_data(&mut self, server: usize) {
        for connection in self.connections_at(server) {
            self.reset(connection);
        }
        let tree = self.replicas[self.leader].tree.clone();
        let replica = &mut self.replicas[server];
        replica.tree = tree;
        // What was under way is in the copy, or is lost with the connection.
        replica.inbox.clear();
        replica.outbox.clear();
    }

    pub(crate) fn set_reorder(&mut self, window: Option<Duration>) {
        self.reorder = window;
        if window.is_none() {
            self.shuffle_at = self.shuffle_at.map(|_| self.now);
        }
    }

    pub(crate) fn set_space(&mut self, space: Option<u64>) {
        self.space = space;
        if space.is_none() && !self.replicas[self.leader].serving {
            self.regroup();
        }
    }

    pub(crate) fn stop_clock(&mut self, stop: bool) {
        self.clock.stop(self.now, stop);
    }

    pub(crate) fn put_clock_forward(&mut self, by: Duration) {
        self.report_touches(true);
        self.clock.put_forward(self.now, by);
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
                held.collected -= 1;
                held.queue.push_back(queued);
                self.ready.push_back(connection);
            }
            self.settle();
        }
    }
}
