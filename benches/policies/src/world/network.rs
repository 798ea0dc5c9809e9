//! The network between a worker and the ensemble: sessions, operations, watches, cuts.

use std::time::Duration;

use election_core::internals::{
    Epoch, Event, OpId, Outcome, Time, Watched, ZkOp,
    record::{self, Record as _, RequestState},
};

use super::{Due, ENDLESS, HEARTBEAT, LATENCY, Link, TICK, TIMEOUT, ToProcess, World};
use crate::{Millis, SECOND, zookeeper::parent_of};

/// A task of a worker's client, or an event for it.
#[derive(Clone, Debug)]
pub(super) enum ToClient {
    Connect,
    Arrives(i64, OpId, ZkOp),
    Reply(i64, OpId, Outcome),
    /// There was no connection for an operation.
    NoSession(OpId),
    ReadWatch(Epoch, Watched),
    /// The heartbeat after a cut is not answered.
    Detect(i64),
    /// The session must be over by the client's own clock.
    Deadline(i64),
    Reconnect,
}

impl World {
    fn client_later(&mut self, host: usize, delay: Millis, what: ToClient) {
        self.later(host, delay, ToProcess::Client(what));
    }

    pub(super) fn client(&mut self, host: usize, what: ToClient) {
        match what {
            ToClient::Connect => self.connect(host),
            ToClient::Arrives(session, op, request) => self.arrives(host, session, op, &request),
            ToClient::Reply(session, op, outcome) => {
                let target = &mut self.hosts[host];
                if target.session == session && !target.is_cut() && target.ops.remove(&op) {
                    self.feed(host, Event::Done { op, outcome });
                }
            }
            ToClient::NoSession(op) => {
                if self.hosts[host].ops.remove(&op) {
                    let outcome = Outcome::NotApplied("there is no such session".to_owned());
                    self.feed(host, Event::Done { op, outcome });
                }
            }
            ToClient::ReadWatch(epoch, watched) => self.read_watch(host, epoch, &watched),
            ToClient::Detect(session) => {
                let target = &mut self.hosts[host];
                if target.session == session && target.link == Link::Connected && target.is_cut() {
                    target.link = Link::Paused;
                    let epoch = target.epoch;
                    self.feed(host, Event::SessionPaused(epoch));
                    self.operations_unknown(host);
                    self.deadline(host, session);
                }
            }
            ToClient::Deadline(session) => self.deadline(host, session),
            ToClient::Reconnect => self.reconnect(host),
        }
    }

    // ---- sessions ----

    /// The client knows as well as the ensemble when the last heartbeat of the session arrived, and ends the session
    /// then.
    fn deadline(&mut self, host: usize, session: i64) {
        let target = &self.hosts[host];
        if target.session != session || target.link != Link::Paused || !target.is_cut() {
            return;
        }
        match self.zk.expires_at(session).filter(|at| *at > self.now) {
            Some(at) => self.client_later(host, at - self.now, ToClient::Deadline(session)),
            None => self.over(host),
        }
    }

    pub(super) fn connect(&mut self, host: usize) {
        let target = &self.hosts[host];
        let Some(engine) = target.engine.as_ref().filter(|_| target.link == Link::None) else { return };
        if target.is_cut() {
            // The end of the cut connects it.
            return;
        }
        if !engine.is_clear() {
            return self.client_later(host, 50, ToClient::Connect);
        }
        let session = self.zk.open(self.now, TIMEOUT);
        let target = &mut self.hosts[host];
        target.link = Link::Connected;
        target.session = session;
        target.since = self.now;
        target.epoch += 1;
        target.watched.clear();
        let epoch = target.epoch;
        let granted = Duration::from_millis(TIMEOUT);
        self.feed(host, Event::SessionStarted { epoch, session_id: session, granted });
        self.grant_lease(host);
    }

    fn grant_lease(&mut self, host: usize) {
        let epoch = self.hosts[host].epoch;
        self.feed(host, Event::Lease { epoch, valid_until: Time::from_millis(2 * ENDLESS) });
    }

    /// The ensemble hears nothing of the session of a host from now on.
    pub(super) fn silence(&mut self, host: usize) {
        let target = &self.hosts[host];
        if target.link == Link::None || target.is_cut() {
            return;
        }
        let (session, heard) = (target.session, target.heard(self.now));
        self.zk.touch(session, heard);
        self.expire_later(session);
    }

    pub(super) fn cut(&mut self, host: usize) {
        self.silence(host);
        let target = &mut self.hosts[host];
        target.cuts += 1;
        if target.cuts > 1 || target.link != Link::Connected {
            return;
        }
        let (epoch, session, proved) = (target.epoch, target.session, target.proved(self.now));
        let valid_until = Time::from_millis(proved + TIMEOUT - TIMEOUT / 100);
        let detected = target.heard(self.now) + HEARTBEAT + TIMEOUT / 3;
        self.feed(host, Event::Lease { epoch, valid_until });
        self.client_later(host, detected - self.now, ToClient::Detect(session));
    }

    pub(super) fn mend(&mut self, host: usize) {
        let target = &mut self.hosts[host];
        target.cuts = target.cuts.saturating_sub(1);
        if target.cuts == 0 {
            self.client_later(host, 200, ToClient::Reconnect);
        }
    }

    fn reconnect(&mut self, host: usize) {
        let target = &self.hosts[host];
        let (link, session, epoch) = (target.link, target.session, target.epoch);
        if target.is_cut() {
            return;
        }
        match link {
            Link::None => self.connect(host),
            _ if !self.zk.lives(session) => self.over(host),
            _ => {
                self.zk.touch(session, self.now);
                self.hosts[host].since = self.now;
                self.hosts[host].link = Link::Connected;
                if link == Link::Paused {
                    self.feed(host, Event::SessionResumed(epoch));
                } else {
                    self.operations_unknown(host);
                }
                self.grant_lease(host);
                let watched: Vec<_> = self.hosts[host].watched.keys().cloned().collect();
                for watched in watched {
                    self.client_later(host, LATENCY, ToClient::ReadWatch(epoch, watched));
                }
            }
        }
    }

    /// The session is over, and its client knows that.
    fn over(&mut self, host: usize) {
        let target = &mut self.hosts[host];
        target.link = Link::None;
        let epoch = target.epoch;
        self.operations_unknown(host);
        self.feed(host, Event::SessionOver(epoch));
        self.client_later(host, 50, ToClient::Connect);
    }

    fn operations_unknown(&mut self, host: usize) {
        for op in std::mem::take(&mut self.hosts[host].ops) {
            self.feed(
                host,
                Event::Done { op, outcome: Outcome::Unknown("the connection was lost".to_owned()) },
            );
        }
    }

    pub(super) fn expire_later(&mut self, session: i64) {
        if let Some(at) = self.zk.expires_at(session) {
            self.at(at.next_multiple_of(TICK), Due::Expires(session));
        }
    }

    pub(super) fn expires(&mut self, session: i64) {
        if self.outage {
            return self.at(self.now + SECOND, Due::Expires(session));
        }
        let is_heard =
            |host: &super::Host| host.session == session && host.link != Link::None && !host.is_cut();
        if self.hosts.iter().any(is_heard) {
            return;
        }
        match self.zk.expires_at(session) {
            Some(at) if at <= self.now => {
                // The end of a passive member's session is not logged.
                let leads =
                    self.zk.get(&self.paths.leader_znode(0)).is_some_and(|node| node.owner == session);
                let owner = self.hosts.iter().position(|host| host.session == session);
                if let Some(host) = owner.filter(|_| leads) {
                    self.say_of(host, || "its session has expired".to_owned());
                }
                self.close(session);
            }
            Some(_) => self.expire_later(session),
            None => {}
        }
    }

    pub(super) fn close(&mut self, session: i64) {
        let gone = self.zk.end(session, self.now);
        self.changed(&gone);
    }

    // ---- operations and watches ----

    pub(super) fn perform(&mut self, host: usize, op: OpId, epoch: Epoch, request: ZkOp) {
        let target = &mut self.hosts[host];
        if target.epoch != epoch || target.link != Link::Connected {
            target.ops.insert(op);
            return self.client_later(host, LATENCY, ToClient::NoSession(op));
        }
        target.ops.insert(op);
        let session = target.session;
        self.client_later(host, LATENCY, ToClient::Arrives(session, op, request));
    }

    fn arrives(&mut self, host: usize, session: i64, op: OpId, request: &ZkOp) {
        let target = &self.hosts[host];
        if target.is_cut() || target.session != session || !target.ops.contains(&op) {
            // The outcome of pending operations is unknown when the client notices the cut.
            return;
        }
        if !self.zk.lives(session) {
            return self.over(host);
        }
        let applied = self.zk.apply(self.now, session, self.zk.zxid(), request);
        self.client_later(host, LATENCY, ToClient::Reply(session, op, applied.outcome));
        self.changed(&applied.changed);
    }

    pub(super) fn watch(&mut self, host: usize, epoch: Epoch, set: Vec<Watched>) {
        let target = &mut self.hosts[host];
        if target.epoch != epoch {
            return;
        }
        target.watched.retain(|watched, _| set.contains(watched));
        let new: Vec<_> = set.into_iter().filter(|watched| !target.watched.contains_key(watched)).collect();
        for watched in new {
            self.hosts[host].watched.insert(watched.clone(), None);
            self.client_later(host, 2 * LATENCY, ToClient::ReadWatch(epoch, watched));
        }
    }

    pub(super) fn changed(&mut self, paths: &[String]) {
        self.say_answers(paths);
        for host in 0..self.hosts.len() {
            let hit = |watched: &&Watched| match watched {
                Watched::Node(path) => paths.iter().any(|changed| **changed == **path),
                Watched::Tree(parent) => paths.iter().any(|path| parent_of(path) == &**parent),
            };
            let fired: Vec<_> = self.hosts[host].watched.keys().filter(hit).cloned().collect();
            let epoch = self.hosts[host].epoch;
            for watched in fired {
                self.client_later(host, 2 * LATENCY, ToClient::ReadWatch(epoch, watched));
            }
        }
    }

    /// The result of an operator's request that was not carried out.
    fn say_answers(&mut self, paths: &[String]) {
        let parent = self.paths.requests();
        for path in paths.iter().filter(|path| parent_of(path) == parent) {
            let request =
                self.zk.get(path).and_then(|node| record::AdminRequest::decode(path, &node.data).ok());
            if let Some(RequestState::Failed { reason, .. }) = request.map(|request| request.state) {
                self.say("operator", || format!("the request is not carried out: {reason}"));
            }
        }
    }

    fn read_watch(&mut self, host: usize, epoch: Epoch, watched: &Watched) {
        let target = &mut self.hosts[host];
        if target.epoch != epoch || target.link != Link::Connected || target.is_cut() {
            return;
        }
        let Some(told) = target.watched.get_mut(watched) else { return };
        let view = self.zk.zxid();
        let (value, event) = match watched {
            Watched::Node(path) => {
                let node = self.zk.get_at(path, view).cloned();
                let value = node.iter().map(|n| (String::new(), (n.czxid, n.mzxid))).collect();
                (value, Event::Seen { epoch, path: path.to_string(), node })
            }
            Watched::Tree(parent) => {
                let nodes = self.zk.tree_at(parent, view);
                let value = nodes.iter().map(|(name, n)| (name.clone(), (n.czxid, n.mzxid))).collect();
                (value, Event::SeenTree { epoch, parent: parent.to_string(), nodes })
            }
        };
        if told.as_ref() != Some(&value) {
            *told = Some(value);
            self.feed(host, event);
        }
    }
}

impl super::Host {
    /// The time of the session's last heartbeat at the ensemble.
    fn heard(&self, now: Millis) -> Millis {
        self.since + (now.saturating_sub(self.since)) / HEARTBEAT * HEARTBEAT
    }

    /// The start of its lease: the heartbeat before, which the last one has proved to have reached the leader of the
    /// ensemble.
    fn proved(&self, now: Millis) -> Millis {
        self.heard(now).saturating_sub(HEARTBEAT).max(self.since)
    }
}
