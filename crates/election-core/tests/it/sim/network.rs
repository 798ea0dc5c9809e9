//! Between a worker and the ensemble: connections, operations, heartbeats, watches,
//! sessions and their ends.

use election_core::internals::{Epoch, Event, OpId, Outcome, Time, Watched, ZkOp};

use super::{
    Due, Sim, ToWorker,
    host::{Client, Link},
    keeps,
};
use crate::{
    invariants::{leases_end_first, one_life},
    zookeeper::Millis,
};

/// A message on its way to the server.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) host: usize,
    pub(crate) life: u64,
    pub(crate) session: i64,
    pub(crate) connection: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Ping(Time),
    Heartbeat(Time),
    Perform { op: OpId, request: ZkOp, reply_lost: bool },
}

/// Something that the client in a worker has to do or to learn.
#[derive(Clone, Debug)]
pub(crate) enum ToClient {
    /// Make a session, or see whether one may be made.
    Connect,
    Started(Epoch),
    Reply {
        connection: u64,
        op: OpId,
        outcome: Outcome,
    },
    Acknowledged {
        connection: u64,
        sent: Time,
    },
    Ping {
        session: i64,
        connection: u64,
    },
    Heartbeat {
        session: i64,
        connection: u64,
    },
    ReadWatch {
        epoch: Epoch,
        watched: Watched,
    },
    WatchTells {
        epoch: Epoch,
        watched: Watched,
        watch: u64,
        event: Event,
    },
    /// The connection is noticed to be lost.
    Detect {
        session: i64,
        connection: u64,
    },
    Reconnect {
        session: i64,
        connection: u64,
    },
    /// The session must be over by the client's own clock.
    Deadline {
        session: i64,
        heard: Time,
    },
    /// The server reports that the session is over.
    Refused {
        session: i64,
    },
}

impl Sim {
    pub(super) fn client_of(&mut self, host: usize) -> Option<&mut Client> {
        self.hosts[host].process.as_mut()?.client.as_mut()
    }

    fn connected(&mut self, host: usize, session: i64, connection: u64) -> Option<&mut Client> {
        self.client_of(host)
            .filter(|c| c.session == session && c.connection == connection && c.link == Link::Connected)
    }

    fn latency(&mut self, host: usize) -> Millis {
        self.rng.u64(1..=self.hosts[host].net.latency.max(1))
    }

    pub(super) fn later(&mut self, host: usize, delay: Millis, what: ToClient) {
        self.tell_worker(host, delay, ToWorker::Client(what));
    }

    pub(super) fn client(&mut self, host: usize, what: ToClient) {
        match what {
            ToClient::Connect => self.connect(host),
            ToClient::Started(epoch) => self.started(host, epoch),
            ToClient::Reply { connection, op, outcome } => {
                let cut = self.hosts[host].net.cut;
                if let Some(client) = self.client_of(host)
                    && client.connection == connection
                    && !cut
                    && client.ops.remove(&op)
                {
                    self.feed(host, Event::Done { op, outcome });
                }
            }
            ToClient::Acknowledged { connection, sent } => self.acknowledged(host, connection, sent),
            ToClient::Ping { session, connection } => {
                if self.connected(host, session, connection).is_some() {
                    let sent = self.hosts[host].clock.time(self.now);
                    self.send(host, What::Ping(sent));
                    self.later(host, self.settings.timeout / 4, ToClient::Ping { session, connection });
                }
            }
            ToClient::Heartbeat { session, connection } => {
                if let Some(client) = self.connected(host, session, connection) {
                    client.heartbeat_pending = false;
                    self.heartbeat_if_due(host);
                }
            }
            ToClient::WatchTells { epoch, watched, watch, event } => {
                self.watch_tells(host, epoch, &watched, watch, event);
            }
            ToClient::ReadWatch { epoch, watched } => self.read_watch(host, epoch, &watched),
            ToClient::Detect { session, connection } => {
                if self.connected(host, session, connection).is_some() {
                    self.pause(host);
                }
            }
            ToClient::Reconnect { session, connection } => self.reconnect(host, session, connection),
            ToClient::Deadline { session, heard } => {
                let over = self
                    .client_of(host)
                    .is_some_and(|c| c.session == session && c.link == Link::Paused && c.heard == heard);
                if over {
                    self.over(host);
                }
            }
            ToClient::Refused { session } => {
                if self.client_of(host).is_some_and(|c| c.session == session && c.link != Link::Over) {
                    self.over(host);
                }
            }
        }
    }

    // ---- sessions ----

    fn connect(&mut self, host: usize) {
        let now = self.now;
        let budget = self.settings.stop_budget();
        let keeps = keeps(&self.settings);
        let Some(process) = &mut self.hosts[host].process else {
            return;
        };
        if process.client.as_ref().is_some_and(|c| c.link != Link::Over) {
            return;
        }
        if !process.engine.is_clear() {
            let since = (*process.blocked_since.get_or_insert(now)).max(process.thawed_at);
            self.require(one_life::waits(host, since, now, budget + 100));
            return self.later(host, 20, ToClient::Connect);
        }
        process.blocked_since = None;
        if self.hosts[host].net.cut || self.outage {
            return self.later(host, 150, ToClient::Connect);
        }
        let Some(process) = &mut self.hosts[host].process else {
            return;
        };
        let acts = process.job.token.is_some();
        process.epochs += 1;
        let epoch = process.epochs;
        self.require(one_life::begins(host, true, acts, keeps));
        let session = self.zk.open(now, self.settings.timeout);
        self.summary.sessions += 1;
        let heard = self.hosts[host].clock.time(now);
        self.hosts[host].net.minority = None;
        if let Some(process) = &mut self.hosts[host].process {
            process.client = Some(Client::new(epoch, session, heard));
        }
        self.expire_later(session);
        let delay = self.latency(host);
        self.later(host, delay, ToClient::Started(epoch));
    }

    fn started(&mut self, host: usize, epoch: Epoch) {
        let Some(client) = self.client_of(host).filter(|c| c.epoch == epoch && c.link == Link::Connected)
        else {
            return;
        };
        client.started = true;
        let (session, connection) = (client.session, client.connection);
        let granted = std::time::Duration::from_millis(self.settings.timeout);
        self.feed(host, Event::SessionStarted { epoch, session_id: session, granted });
        self.later(host, 1, ToClient::Ping { session, connection });
        self.heartbeat_if_due(host);
    }

    pub(super) fn expire_later(&mut self, session: i64) {
        if let Some(at) = self.zk.expires_at(session) {
            // ZooKeeper looks once in a tick, and never too early.
            let slack = self.rng.u64(0..=self.settings.tick);
            self.at(at + slack, Due::Expires(session));
        }
    }

    pub(super) fn expires(&mut self, session: i64) {
        if self.outage {
            // No server expires sessions meanwhile. The clocks begin again afterwards.
            return self.after(1000, Due::Expires(session));
        }
        match self.zk.expires_at(session) {
            None => {}
            Some(at) if at <= self.now => {
                self.check_lease(session, at);
                self.trace.line(self.now, || format!("    session {session:#x} expires"));
                self.close(session);
            }
            Some(_) => self.expire_later(session),
        }
    }

    /// The ensemble may expire the session from `at` on.
    fn check_lease(&mut self, session: i64, at: Millis) {
        for host in 0..self.hosts.len() {
            let (clock, timeout) = (self.hosts[host].clock, self.settings.timeout);
            // Before it ran at this rate, the clock had another one.
            let is_known = clock.since <= at;
            let client = self.client_of(host).filter(|client| is_known && client.session == session);
            let Some(client) = client else { continue };
            let ends = clock.reaches(client.valid_until(timeout));
            self.require(leases_end_first::check(host, ends, at));
        }
    }

    pub(super) fn close(&mut self, session: i64) {
        let gone = self.zk.end(session, self.now);
        self.changed(&gone);
        // A connected server notifies its client.
        for host in 0..self.hosts.len() {
            let reachable = !self.hosts[host].net.cut && self.hosts[host].net.minority.is_none();
            if reachable
                && self.client_of(host).is_some_and(|c| c.session == session && c.link == Link::Connected)
            {
                let delay = self.latency(host);
                self.later(host, delay, ToClient::Refused { session });
            }
        }
    }

    /// The connection is lost, and the client has noticed.
    pub(super) fn pause(&mut self, host: usize) {
        let Some(client) = self.client_of(host).filter(|c| c.link == Link::Connected) else {
            return;
        };
        if !client.started {
            // Lost before the client knew of it.
            client.link = Link::Over;
            return self.later(host, 1, ToClient::Connect);
        }
        client.link = Link::Paused;
        client.connection += 1;
        client.heartbeat_pending = false;
        let (epoch, session, connection) = (client.epoch, client.session, client.connection);
        let lost: Vec<_> = std::mem::take(&mut client.ops).into_iter().collect();
        self.feed(host, Event::SessionPaused(epoch));
        for op in lost {
            let delay = self.rng.u64(0..300);
            self.unknown(host, delay, op);
        }
        self.give_up_later(host);
        let delay = self.rng.u64(1..400);
        self.later(host, delay, ToClient::Reconnect { session, connection });
    }

    /// A session without a connection ends by its client's clock.
    pub(super) fn give_up_later(&mut self, host: usize) {
        let paused = self.client_of(host).filter(|client| client.link == Link::Paused);
        let Some((session, heard)) = paused.map(|client| (client.session, client.heard)) else { return };
        if self.settings.own_deadline {
            let deadline = heard + std::time::Duration::from_millis(self.settings.timeout);
            let at = self.hosts[host].clock.reaches(deadline);
            let life = self.hosts[host].life;
            self.at(at, Due::Worker(host, life, ToWorker::Client(ToClient::Deadline { session, heard })));
        }
    }

    fn unknown(&mut self, host: usize, delay: Millis, op: OpId) {
        self.summary.unknown += 1;
        let outcome = Outcome::Unknown("the connection was lost".to_owned());
        self.tell_worker(host, delay, ToWorker::Event(Event::Done { op, outcome }));
    }

    fn reconnect(&mut self, host: usize, session: i64, connection: u64) {
        let unreachable = self.hosts[host].net.cut || self.outage;
        let waiting = self
            .client_of(host)
            .is_some_and(|c| c.session == session && c.connection == connection && c.link == Link::Paused);
        if !waiting {
            return;
        }
        let (lives, newest) = (self.zk.lives(session), self.zk.newest());
        // Before it looks at the session, a server rejects a client that has seen more than the server has.
        let turned_away = lives && self.client_of(host).is_some_and(|c| newest < c.seen);
        if unreachable || turned_away {
            let delay = self.rng.u64(50..400);
            return self.later(host, delay, ToClient::Reconnect { session, connection });
        }
        if !lives {
            return self.over(host);
        }
        self.zk.touch(session, self.now);
        self.hosts[host].net.minority = None;
        self.summary.resumed += 1;
        let heard = self.hosts[host].clock.time(self.now);
        let Some(client) = self.client_of(host) else {
            return;
        };
        client.link = Link::Connected;
        client.connection += 1;
        client.heard = heard;
        client.attach(heard);
        let (epoch, connection) = (client.epoch, client.connection);
        self.feed(host, Event::SessionResumed(epoch));
        self.later(host, 1, ToClient::Ping { session, connection });
        self.arm_watches_again(host);
        self.heartbeat_if_due(host);
    }

    fn over(&mut self, host: usize) {
        let Some(client) = self.client_of(host) else {
            return;
        };
        client.link = Link::Over;
        client.connection += 1;
        if !client.started {
            return self.later(host, 1, ToClient::Connect);
        }
        let epoch = client.epoch;
        let lost: Vec<_> = std::mem::take(&mut client.ops).into_iter().collect();
        for op in lost {
            let delay = self.rng.u64(0..50);
            self.unknown(host, delay, op);
        }
        self.feed(host, Event::SessionOver(epoch));
        self.later(host, 1, ToClient::Connect);
    }

    // ---- operations ----

    pub(super) fn perform(&mut self, host: usize, op: OpId, epoch: Epoch, request: ZkOp) {
        let loss = self.hosts[host].net.loss;
        let timeout = self.settings.timeout;
        let usable = self.client_of(host).is_some_and(|c| c.epoch == epoch && c.link == Link::Connected);
        if !usable {
            let outcome = Outcome::NotApplied("there is no such session".to_owned());
            return self.tell_worker(host, 5, ToWorker::Event(Event::Done { op, outcome }));
        }
        if self.hosts[host].net.refuses && !request.reads() {
            let delay = self.latency(host);
            let outcome = Outcome::NotApplied("refused".to_owned());
            return self.tell_worker(host, delay, ToWorker::Event(Event::Done { op, outcome }));
        }
        let (mut request_lost, mut reply_lost) = (false, false);
        if self.rng.f64() < loss {
            match self.rng.u8(0..3) {
                0 => {
                    let delay = self.rng.u64(0..timeout / 2);
                    let outcome = Outcome::NotApplied("refused".to_owned());
                    return self.tell_worker(host, delay, ToWorker::Event(Event::Done { op, outcome }));
                }
                1 => request_lost = true,
                _ => reply_lost = true,
            }
        }
        if let Some(client) = self.client_of(host) {
            client.ops.insert(op);
        }
        if request_lost || reply_lost {
            let delay = self.rng.u64(1..timeout / 2);
            let connection = self.client_of(host).map_or(0, |c| c.connection);
            let outcome = Outcome::Unknown("no answer in time".to_owned());
            self.summary.unknown += 1;
            self.later(host, delay, ToClient::Reply { connection, op, outcome });
        }
        if request_lost && !request.reads() {
            let session = self.client_of(host).map_or(0, |c| c.session);
            self.stray(session, &request);
        }
        if !request_lost {
            self.send(host, What::Perform { op, request, reply_lost });
        }
    }

    fn send(&mut self, host: usize, what: What) {
        let latency = self.latency(host);
        let (now, life) = (self.now, self.hosts[host].life);
        let Some(client) = self.client_of(host) else {
            return;
        };
        // One ordered connection.
        client.arrives_at = client.arrives_at.max(now + latency);
        let (at, session, connection) = (client.arrives_at, client.session, client.connection);
        self.at(at, Due::Arrives(Message { host, life, session, connection, what }));
    }

    pub(super) fn arrives(&mut self, message: Message) {
        let Message { host, life, session, connection, what } = message;
        let net = &self.hosts[host].net;
        let (cut, minority, lag, late) = (net.cut, net.minority, net.lag, net.late());
        let same_life = self.hosts[host].life == life;
        let moved = same_life
            && !self.client_of(host).is_some_and(|c| c.session == session && c.connection == connection);
        if let What::Perform { request, .. } = &what
            && (moved || minority.is_some())
            && !request.reads()
        {
            // It is stuck in a server, and its client goes to another one.
            return self.stray(session, request);
        }
        if cut || moved || self.outage {
            return;
        }
        if !self.zk.lives(session) && minority.is_none() {
            let delay = self.latency(host);
            if same_life {
                self.later(host, delay, ToClient::Refused { session });
            }
            return;
        }
        if minority.is_none() {
            // The leader hears of it with the next answer to its ping.
            let delay = self.rng.u64(0..=self.settings.tick);
            self.after(delay, Due::Touch { session, at: self.now });
        }
        match what {
            What::Ping(sent) => {
                let heard = self.hosts[host].clock.time(self.now);
                if let Some(client) = self.client_of(host).filter(|c| same_life && c.session == session) {
                    client.heard = heard;
                    if client.connection == connection {
                        client.answered(sent, heard);
                    }
                }
            }
            What::Heartbeat(sent) => {
                if minority.is_none() && same_life {
                    let delay = self.latency(host) + late;
                    let now_at = self.zk.zxid();
                    if let Some(client) = self.client_of(host) {
                        client.seen = client.seen.max(now_at);
                    }
                    self.later(host, delay, ToClient::Acknowledged { connection, sent });
                }
            }
            What::Perform { op, request, reply_lost } => {
                let reads = request.reads();
                let seen = self.client_of(host).filter(|_| same_life).map_or(0, |c| c.seen);
                let view =
                    minority.unwrap_or_else(|| self.zk.zxid_at(self.now.saturating_sub(lag))).max(seen);
                let applied = self.zk.apply(self.now, session, view, &request);
                if !reads {
                    self.written.insert(session, self.now);
                }
                if !applied.changed.is_empty() {
                    let member = self.name(host);
                    self.trace.line(self.now, || format!("    {member} has changed {:?}", applied.changed));
                }
                let newest = if reads { view } else { self.zk.zxid() };
                let latency = self.latency(host) + if reads { 0 } else { late };
                let now = self.now;
                if let Some(client) = self.client_of(host).filter(|_| same_life) {
                    client.seen = client.seen.max(newest);
                    client.replies_at = client.replies_at.max(now + latency);
                    let delay = client.replies_at - now;
                    if !reply_lost {
                        let outcome = applied.outcome;
                        self.later(host, delay, ToClient::Reply { connection, op, outcome });
                    }
                }
                self.changed(&applied.changed);
            }
        }
    }

    /// A write whose connection is lost may reach the ensemble all the same, also after what its client has read over the next
    /// connection. Once a write has come over that one, the ensemble refuses it.
    fn stray(&mut self, session: i64, request: &ZkOp) {
        if self.rng.f64() < self.settings.strays {
            let delay = self.rng.u64(0..self.settings.timeout);
            self.after(delay, Due::Stray { session, request: request.clone(), since: self.now });
        }
    }

    pub(super) fn lands(&mut self, session: i64, request: &ZkOp, since: Millis) {
        let moved = self.written.get(&session).is_some_and(|at| *at > since);
        if moved || self.outage || !self.zk.lives(session) {
            return;
        }
        let applied = self.zk.apply(self.now, session, self.zk.zxid(), request);
        self.summary.strays += u64::from(!applied.changed.is_empty());
        self.trace.line(self.now, || format!("    late, of {session:#x}: has changed {:?}", applied.changed));
        self.changed(&applied.changed);
    }

    // ---- the lease ----

    pub(super) fn heartbeat_if_due(&mut self, host: usize) {
        if !self.hosts[host].process.as_ref().is_some_and(|p| p.keeps_lease) {
            return;
        }
        let sent = self.hosts[host].clock.time(self.now);
        let (timeout, tick) = (self.settings.timeout, self.settings.tick);
        let interval = timeout / 4;
        let Some(client) = self.client_of(host).filter(|c| c.link == Link::Connected && !c.heartbeat_pending)
        else {
            return;
        };
        client.heartbeat_pending = true;
        let (session, connection) = (client.session, client.connection);
        // What gives a lease again where one has run out: two heartbeats, a tick apart.
        let soon = client.valid_until(timeout) <= sent;
        let delay = if soon { interval.min(tick + tick / 4 + 1) } else { interval };
        // By its own clock, as everything that the lease rests on.
        let next = self.hosts[host].clock.reaches(sent + std::time::Duration::from_millis(delay)) + 1;
        let delay = next - self.now;
        self.send(host, What::Heartbeat(sent));
        self.later(host, delay, ToClient::Heartbeat { session, connection });
    }

    fn acknowledged(&mut self, host: usize, connection: u64, sent: Time) {
        let at = self.hosts[host].clock.time(self.now);
        let (timeout, tick, cut) = (self.settings.timeout, self.settings.tick, self.hosts[host].net.cut);
        let Some(client) = self.client_of(host).filter(|c| c.connection == connection && !cut) else {
            return;
        };
        client.heard = client.heard.max(sent);
        let epoch = client.epoch;
        client.acknowledged(sent, at, tick);
        let valid_until = client.valid_until(timeout);
        self.feed(host, Event::Lease { epoch, valid_until });
    }

    /// The engine requests a lease. What is proved already is known at once.
    pub(super) fn tell_lease(&mut self, host: usize) {
        let (timeout, now) = (self.settings.timeout, self.hosts[host].clock.time(self.now));
        let Some(client) = self.client_of(host).filter(|c| c.link != Link::Over) else { return };
        let (epoch, valid_until) = (client.epoch, client.valid_until(timeout));
        if now < valid_until {
            self.tell_worker(host, 1, ToWorker::Event(Event::Lease { epoch, valid_until }));
        }
    }
}
