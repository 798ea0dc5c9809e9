//! What the server that leads does: it puts requests into the log, in one order for
//! all, and ends sessions and znodes whose time is over.

use std::sync::Arc;

use zk_proto::OpCode;

use super::connection::Ending;
use super::prepare::{self, Asking};
use super::replica::{Ask, Delivery, Forward, Origin};
use super::{Cluster, millis};
use crate::embedded::tree::{Change, Txn};

/// What a transaction takes of the log besides its request.
const TXN_OVERHEAD: usize = 64;

impl Cluster {
    pub(super) fn has_majority(&self) -> bool {
        let up =
            self.replicas.iter().enumerate().filter(|(index, replica)| {
                *index == self.leader || (replica.link.is_up() && replica.serving)
            });
        self.replicas[self.leader].serving && up.count() > self.replicas.len() / 2
    }

    /// Does what the servers have passed on. False if there was nothing.
    pub(super) fn lead(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.replicas.len() {
            while self.has_majority() {
                let replica = &mut self.replicas[index];
                if index != self.leader && !replica.link.is_up() {
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
                let synced = Delivery::Synced { origin, path };
                let due = self.now + self.lag(from);
                self.replicas[from].inbox.push_back((due, synced));
            }
            Ask::Write { op, body, who } => {
                let asking = Asking { session, who: &who, ttl_enabled: self.settings.ttl_enabled };
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
        let elapsed = i64::try_from(self.shown().as_millis()).unwrap_or(i64::MAX);
        let txn = Arc::new(Txn {
            zxid: self.replicas[self.leader].tree.zxid() + 1,
            time: self.settings.started_ms.saturating_add(elapsed),
            session,
            change,
        });
        for index in 0..self.replicas.len() {
            let origin = from.filter(|(server, _)| *server == index).map(|(_, origin)| origin);
            let due = self.now + self.lag(index);
            if self.replicas[index].serving {
                self.replicas[index]
                    .inbox
                    .push_back((due, Delivery::Commit { txn: Arc::clone(&txn), origin }));
            }
        }
        // It counts for what comes next: the next one is decided on the leader's view.
        self.deliver();
    }

    fn lag(&self, server: usize) -> std::time::Duration {
        if server == self.leader { std::time::Duration::ZERO } else { self.replicas[server].link.lag }
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
    pub(super) fn keep_time(&mut self) {
        self.hear_of_touches(false);
        self.give_up_when_cut();
        if !self.has_majority() {
            return;
        }
        for session in self.sessions.over(millis(self.shown())) {
            self.expire(session);
        }
        self.end_mortals();
    }

    /// Followers tell which sessions they have heard of, twice a tick.
    pub(super) fn hear_of_touches(&mut self, at_once: bool) {
        let shown = self.shown();
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            let due = replica.tell_at.is_some_and(|at| at_once || at <= shown);
            if !due || !replica.link.is_up() || !replica.serving {
                continue;
            }
            replica.tell_at = None;
            for (session, timeout_ms) in std::mem::take(&mut replica.touched) {
                self.sessions.touch(session, timeout_ms, millis(shown));
            }
        }
    }

    /// Who has not heard of the others for too long serves nobody.
    fn give_up_when_cut(&mut self) {
        let shown = self.shown();
        let limit = self.settings.tick * self.settings.sync_limit;
        for index in 0..self.replicas.len() {
            if self.replicas[index].link.cut_since.is_some_and(|since| since + limit <= shown) {
                self.stop_serving(index);
            }
        }
        if self.alone_since.is_some_and(|since| since + limit <= shown) {
            self.alone_since = None;
            for index in 0..self.replicas.len() {
                if index == self.leader || self.replicas[index].link.is_up() {
                    self.stop_serving(index);
                }
            }
        }
    }

    pub(super) fn stop_serving(&mut self, server: usize) {
        if !self.replicas[server].serving {
            return;
        }
        self.replicas[server].stop();
        let its: Vec<u64> =
            self.connections.iter().filter(|(_, held)| held.at == server).map(|(id, _)| *id).collect();
        for connection in its {
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

    fn end_mortals(&mut self) {
        let shown = self.shown();
        if !self.replicas[self.leader].tree.has_mortals() {
            self.next_container_check = shown + self.settings.container_check;
            return;
        }
        if self.next_container_check > shown {
            return;
        }
        self.next_container_check = shown + self.settings.container_check;
        let elapsed = i64::try_from(shown.as_millis()).unwrap_or(i64::MAX);
        let time = self.settings.started_ms.saturating_add(elapsed);
        for path in self.replicas[self.leader].tree.ended(time) {
            self.log(0, Change::Delete(path), None, 0);
        }
    }
}
