//! What the server that leads does: it puts requests into the log, in one order for
//! all, and ends sessions and znodes whose time is over.

use std::sync::Arc;

use zk_proto::OpCode;

use super::connection::{Ending, Stage};
use super::prepare::{self, Asking};
use super::replica::{Ask, Delivery, Forward, Origin, ReplicaLink};
use super::sessions::Sessions;
use super::{Cluster, millis};
use crate::embedded::settings::TestServerBuilder;
use crate::embedded::tree::{Change, Txn};

/// The log space of a transaction beyond its request.
const TXN_OVERHEAD: usize = 64;

impl Cluster {
    /// How many servers serve and reach the leader, itself included.
    pub(super) fn servers_up(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.link.is_up() && replica.serving).count()
    }

    pub(super) fn has_majority(&self) -> bool {
        let leader = &self.replicas[self.leader];
        leader.serving && leader.link.is_up() && self.servers_up() > self.replicas.len() / 2
    }

    /// Those that run and reach each other, if they are a majority.
    fn majority(&self) -> Option<Vec<usize>> {
        let up: Vec<usize> =
            (0..self.replicas.len()).filter(|index| self.replicas[*index].link.is_up()).collect();
        (up.len() > self.replicas.len() / 2).then_some(up)
    }

    /// Servers have found each other: those that reach the leader serve, with the leader's data.
    /// Without a leader they choose one, unless some still wait for theirs: then once these have given up.
    pub(super) fn regroup(&mut self) {
        let Some(up) = self.majority() else { return };
        if !up.contains(&self.leader) {
            let (Some(chosen), false) = (up.last(), up.iter().any(|index| self.replicas[*index].serving))
            else {
                let shown = self.shown();
                self.alone_since.get_or_insert(shown);
                return;
            };
            // What was committed is with a majority, so with one of those who choose: the log is one.
            let mut tree = self.replicas[self.leader].tree.clone();
            tree.begin_epoch();
            self.leader = *chosen;
            let leader = &mut self.replicas[self.leader];
            leader.tree = tree;
            leader.link = ReplicaLink::default();
        }
        self.alone_since = None;
        // A majority found itself again: it has a leader, who gives every session time to come back.
        if !self.replicas[self.leader].serving {
            self.sessions.start_anew(millis(self.shown()));
        }
        let tree = self.replicas[self.leader].tree.clone();
        for index in up {
            let replica = &mut self.replicas[index];
            if !replica.serving {
                replica.tree = tree.clone();
                replica.serving = true;
                if replica.local.take().is_some() {
                    self.drop_clients(index);
                }
            }
        }
    }

    /// They have noticed the loss of their leader or their majority.
    pub(super) fn disband(&mut self) {
        self.alone_since = None;
        for index in 0..self.replicas.len() {
            if self.replicas[index].link.is_up() {
                self.lose_quorum(index);
            }
        }
        self.regroup();
    }

    /// Does what the servers have passed on. False if there was nothing.
    pub(super) fn lead(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.replicas.len() {
            while self.has_majority() {
                let replica = &mut self.replicas[index];
                if !replica.link.is_up() {
                    break;
                }
                let Some(forward) = replica.outbox.pop_front() else { break };
                any = true;
                self.decide(index, forward);
            }
        }
        any
    }

    fn decide(&mut self, from: usize, forward: Forward) {
        let Forward { origin, session, what } = forward;
        let now_ms = millis(self.shown());
        match what {
            Ask::Open { timeout_ms } => {
                self.sessions.open(session, timeout_ms, from, now_ms);
                self.log(session, Change::OpenSession, Some((from, origin)), 0);
            }
            Ask::Reattach { timeout_ms } => {
                // Overtakes what is committed: a client may come back to a server that lags.
                let is_good = self.sessions.move_to(session, from, timeout_ms, now_ms);
                self.joined(origin.connection, is_good);
            }
            Ask::Sync { path } => {
                self.send(from, Delivery::Synced { origin, path });
            }
            Ask::Write { op, body, who } => {
                let TestServerBuilder { ttl_nodes: ttl_enabled, release, .. } = self.settings;
                let asking = Asking { session, who: &who, ttl_enabled, release };
                let mut change = prepare::change(&self.replicas[self.leader].tree, asking, op, &body);
                if op == OpCode::CLOSE_SESSION {
                    self.sessions.begin_to_close(session);
                } else if let Err(error) = self.sessions.check(session, from) {
                    change = Change::Nothing(error);
                }
                self.log(session, change, Some((from, origin)), body.len());
            }
        }
    }

    /// Commits a transaction: it is on its way to every server, and carried out by
    /// all that it reaches at once.
    pub(super) fn log(&mut self, session: i64, change: Change, from: Option<(usize, Origin)>, size: usize) {
        if !self.take_space(size + TXN_OVERHEAD) {
            return;
        }
        let zxid = self.replicas[self.leader].tree.zxid() + 1;
        let txn = Arc::new(Txn { zxid, time: self.date(), session, change });
        for index in 0..self.replicas.len() {
            let origin = from.filter(|(server, _)| *server == index).map(|(_, origin)| origin);
            if self.replicas[index].serving {
                self.send(index, Delivery::Commit { txn: Arc::clone(&txn), origin });
            }
        }
        // It counts for what comes next: the next one is decided on the leader's view.
        self.deliver();
    }

    fn send(&mut self, server: usize, delivery: Delivery) {
        let replica = &mut self.replicas[server];
        replica.inbox.push_back((self.now.saturating_add(replica.link.lag), delivery));
    }

    /// In milliseconds since 1970.
    fn date(&self) -> i64 {
        let elapsed = i64::try_from(self.shown().as_millis()).unwrap_or(i64::MAX);
        self.start.ms.saturating_add(elapsed)
    }

    /// A log that can't be written ends a server, as it does with Apache ZooKeeper.
    fn take_space(&mut self, size: usize) -> bool {
        let Some(left) = self.space else { return true };
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if let Some(left) = left.checked_sub(size) {
            self.space = Some(left);
            return true;
        }
        for index in 0..self.replicas.len() {
            self.stop_serving(index);
        }
        false
    }

    /// All that is done because its time has come.
    pub(super) fn run_timers(&mut self) {
        self.report_touches(false);
        self.close_unidentified();
        self.give_up_when_cut();
        self.expire_local();
        if !self.has_majority() {
            return;
        }
        for session in self.sessions.over(millis(self.shown())) {
            self.expire(session);
        }
        self.remove_expired_znodes();
    }

    /// Followers report their active sessions to the leader, twice a tick.
    pub(super) fn report_touches(&mut self, at_once: bool) {
        let shown = self.shown();
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            let due = replica.report_at.is_some_and(|at| at_once || at <= shown);
            if !due || !replica.link.is_up() || !replica.serving {
                continue;
            }
            replica.report_at = None;
            for (session, timeout_ms) in std::mem::take(&mut replica.touched) {
                self.sessions.touch(session, timeout_ms, millis(shown));
            }
        }
    }

    /// Closes what has been connected for long and never was a client.
    fn close_unidentified(&mut self) {
        let shown = self.shown();
        while let Some((by, connection)) = self.handshake_by.front().copied() {
            let held = self.connections.get(&connection).filter(|held| held.stage == Stage::Handshake);
            if held.is_some() && by > shown {
                return;
            }
            self.handshake_by.pop_front();
            match held {
                // Its bytes may be on their way.
                Some(held) if held.black_hole => {
                    self.handshake_by.push_back((shown + self.settings.handshake_timeout, connection));
                }
                Some(_) => self.end(connection, Ending::Orderly),
                None => {}
            }
        }
    }

    /// A server without contact to the others for too long serves no client.
    fn give_up_when_cut(&mut self) {
        let shown = self.shown();
        let limit = self.settings.tick_time * self.settings.sync_limit;
        for index in 0..self.replicas.len() {
            if self.replicas[index].link.cut_since.is_some_and(|since| since + limit <= shown) {
                self.lose_quorum(index);
            }
        }
        if self.alone_since.is_some_and(|since| since + limit <= shown) {
            self.disband();
        }
    }

    fn lose_quorum(&mut self, server: usize) {
        if self.replicas[server].serving {
            self.stop_serving(server);
            self.serve_reads(server);
        }
    }

    /// It runs, and has no quorum.
    pub(super) fn serve_reads(&mut self, server: usize) {
        if self.settings.read_only_mode && self.replicas.len() > 1 {
            self.replicas[server].local = Some(Sessions::new(millis(self.settings.tick_time)));
        }
    }

    pub(super) fn stop_serving(&mut self, server: usize) {
        self.replicas[server].stop();
        self.drop_clients(server);
    }

    fn drop_clients(&mut self, server: usize) {
        for connection in self.connections_at(server) {
            self.end(connection, Ending::Reset);
        }
    }

    /// Ends a session and all that it owns.
    fn expire(&mut self, session: i64) {
        if self.sessions.begin_to_close(session) {
            let paths = self.replicas[self.leader].tree.ephemerals(session);
            self.log(session, Change::CloseSession(paths), None, 0);
        }
    }

    fn expire_local(&mut self) {
        let now_ms = millis(self.shown());
        for index in 0..self.replicas.len() {
            let Some(local) = &self.replicas[index].local else { continue };
            for session in local.over(now_ms) {
                self.end_local(index, session);
            }
        }
    }

    /// Ends a session that only that server has.
    pub(super) fn end_local(&mut self, server: usize, session: i64) {
        if let Some(local) = &mut self.replicas[server].local {
            local.remove(session);
        }
        for connection in self.connections_of(session, Some(server)) {
            self.end(connection, Ending::Orderly);
        }
    }

    fn remove_expired_znodes(&mut self) {
        let (shown, tree) = (self.shown(), &self.replicas[self.leader].tree);
        let is_due = self.next_container_check <= shown;
        let over = if is_due { tree.ended(self.date()) } else { Vec::new() };
        if is_due || !tree.has_expiring_znodes() {
            self.next_container_check = shown + self.settings.container_check;
        }
        for path in over {
            self.log(0, Change::Delete(path), None, 0);
        }
    }
}
