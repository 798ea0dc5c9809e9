//! What a server does for its clients: it takes their requests one after the other,
//! answers reads, passes writes on, and tells what has come of them.

use zk_proto::{
    ErrorCode, EventKind, Id, OpCode, PartReply, Reply, ReplyHeader, Request, WatchEvent, permission, xid,
};

use super::Cluster;
use super::connection::{Ending, Outgoing, Queued, Stage};
use super::reads::{self, View};
use super::replica::{Ask, Forward, Origin};
use crate::embedded::tree::{self, Change, Notice, Outcome, Txn};
use crate::proxy::{Asked, Way};

impl Cluster {
    pub(super) fn enqueue(&mut self, connection: u64, queued: Queued) {
        if let Some(window) = self.reorder {
            self.shuffle_at.get_or_insert(self.now + window);
            self.shuffled.push((connection, queued));
        } else if let Some(held) = self.connections.get_mut(&connection) {
            held.queue.push_back(queued);
            self.pump(connection);
        }
    }

    /// Begins requests until one has to wait.
    pub(super) fn pump(&mut self, connection: u64) {
        loop {
            let Some(held) = self.connections.get_mut(&connection) else { return };
            let Stage::Open { session, .. } = held.stage else { return };
            if held.waiting || held.black_hole {
                return;
            }
            let Some(queued) = held.queue.pop_front() else {
                if held.peer_gone && !held.requests_held {
                    self.forget(connection);
                }
                return;
            };
            self.begin(connection, session, queued);
        }
    }

    fn begin(&mut self, connection: u64, session: i64, queued: Queued) {
        let Queued { header, body, who } = queued;
        let origin = Origin { connection, xid: header.xid };
        if !is_known(header.op) {
            let header = ReplyHeader { xid: header.xid, zxid: -1, error: ErrorCode::UNIMPLEMENTED };
            self.say_reply(connection, header, &Reply::Empty);
            self.end(connection, Ending::Orderly);
            return;
        }
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        let request = Request::decode(header.op, &body);
        if let Ok(request) = &request
            && let Some(asked) = Asked::new(header, Some(request))
        {
            held.doom = self.rules.judge(&asked);
            if held.doom.as_ref().is_some_and(|doom| doom.way == Way::ToServer) {
                self.strike(connection);
                return;
            }
        }
        // What can't be read has its place in the log all the same; but 3.8 reads a `reconfig` before it gives it one.
        let is_logged = is_write(header.op) && (request.is_ok() || header.op != OpCode::RECONFIG);
        match request {
            _ if is_logged => {
                let what = Ask::Write { op: header.op, body: body.clone(), who };
                self.pass_on(at, Forward { origin, session, what });
            }
            Err(_) => self.reply(origin, Err(ErrorCode::MARSHALLING_ERROR)),
            Ok(Request::Sync { path }) => {
                let what = Ask::Sync { path: path.into_owned() };
                self.pass_on(at, Forward { origin, session, what });
            }
            Ok(request) => self.read(origin, session, at, &who, &request),
        }
    }

    fn read(&mut self, origin: Origin, session: i64, at: usize, who: &[Id], request: &Request<'_>) {
        // A follower knows nothing of sessions but what it hears.
        if at == self.leader
            && let Err(error) = self.sessions.check(session, at)
        {
            self.reply(origin, Err(error));
            return;
        }
        if *request == Request::Ping {
            self.reply(Origin { xid: xid::PING, ..origin }, Ok(Reply::Empty));
            return;
        }
        let replica = &mut self.replicas[at];
        let mut view = View { tree: &replica.tree, watches: &mut replica.watches };
        let reader = reads::Reader { watcher: origin.connection, session, who };
        let read = view.read(&reader, request);
        for (kind, path) in read.missed {
            self.say_event(origin.connection, kind, path);
        }
        self.reply(origin, read.reply);
    }

    fn pass_on(&mut self, at: usize, forward: Forward) {
        if let Some(held) = self.connections.get_mut(&forward.origin.connection) {
            held.waiting = true;
        }
        self.replicas[at].outbox.push_back(forward);
    }

    /// Carries a transaction of the log out at one server, tells its clients what
    /// they watch, and then the one that asked what has come of it.
    pub(super) fn apply(&mut self, at: usize, txn: &Txn, origin: Option<Origin>) {
        let replica = &mut self.replicas[at];
        let mut notices = Vec::new();
        let outcome = replica.tree.apply(txn, &mut replica.watches, &mut notices);
        for notice in notices {
            self.tell(notice);
        }
        match &txn.change {
            Change::OpenSession => {
                if let Some(origin) = origin {
                    self.joined(origin.connection, true);
                }
            }
            Change::CloseSession(_) => {
                if at == self.leader {
                    self.sessions.remove(txn.session);
                }
                if let Some(origin) = origin {
                    self.outcome(origin, outcome);
                }
                for connection in self.connections_of(txn.session, Some(at)) {
                    self.end(connection, Ending::Orderly);
                }
            }
            _ => {
                if let Some(origin) = origin {
                    self.outcome(origin, outcome);
                }
            }
        }
    }

    pub(super) fn synced(&mut self, origin: Origin, path: String) {
        self.answered(origin, Ok(Reply::Path(path)));
    }

    fn tell(&mut self, notice: Notice) {
        let Some(held) = self.connections.get(&notice.watcher) else { return };
        if tree::check(&notice.acl, permission::READ, &held.who()).is_ok() {
            self.say_event(notice.watcher, notice.kind, notice.path);
        }
    }

    fn outcome(&mut self, origin: Origin, outcome: Outcome) {
        let reply = match outcome {
            Outcome::Failed(error) => Err(error),
            Outcome::Done | Outcome::Deleted => Ok(Reply::Empty),
            Outcome::Created(path) => Ok(Reply::Path(path)),
            Outcome::CreatedWithStat(path, stat) => Ok(Reply::PathAndStat(path, stat)),
            Outcome::Set(stat) => Ok(Reply::Stat(stat)),
            Outcome::Checked => {
                // 3.8 has no answer to a `check` that is not part of a `multi`: it fails to write one.
                self.go_on(origin.connection);
                return;
            }
            Outcome::Multi(parts) => Ok(Reply::Multi(parts.into_iter().map(part).collect())),
        };
        self.answered(origin, reply);
    }

    /// The reply to a request that had to wait.
    fn answered(&mut self, origin: Origin, reply: Result<Reply, ErrorCode>) {
        self.reply(origin, reply);
        self.go_on(origin.connection);
    }

    fn go_on(&mut self, connection: u64) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.waiting = false;
            self.ready.push_back(connection);
        }
    }

    fn reply(&mut self, origin: Origin, reply: Result<Reply, ErrorCode>) {
        let Some(held) = self.connections.get(&origin.connection) else { return };
        let (error, reply) = match reply {
            Err(ErrorCode::SESSION_MOVED) => return self.end(origin.connection, Ending::Orderly),
            Err(error) => (error, Reply::Empty),
            Ok(reply) => (ErrorCode::OK, reply),
        };
        let header = ReplyHeader { xid: origin.xid, zxid: self.replicas[held.at].tree.zxid(), error };
        if held.doom.as_ref().is_some_and(|doom| doom.xid == origin.xid) {
            self.strike(origin.connection);
        }
        self.say_reply(origin.connection, header, &reply);
    }

    pub(super) fn say_reply(&mut self, connection: u64, header: ReplyHeader, reply: &Reply) {
        self.say(connection, Outgoing::frame(|out| reply.encode(header, out)));
    }

    fn say_event(&mut self, connection: u64, kind: EventKind, path: String) {
        let event = WatchEvent { kind, state: WatchEvent::CONNECTED, path, zxid: -1 };
        self.say(connection, Outgoing::frame(|out| event.encode(out)));
    }

    /// A fault that was waiting for this request, or for its reply.
    fn strike(&mut self, connection: u64) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let Some(doom) = held.doom.take() else { return };
        match doom.way {
            Way::ToServer | Way::ToClient => self.end(connection, Ending::Reset),
            Way::Never => held.mute = true,
            Way::Late(delay) => held.delay = delay,
        }
        doom.tell();
    }
}

fn part(outcome: Outcome) -> PartReply {
    match outcome {
        Outcome::Created(path) => (OpCode::CREATE, Ok(Reply::Path(path))),
        Outcome::CreatedWithStat(path, stat) => (OpCode::CREATE2, Ok(Reply::PathAndStat(path, stat))),
        Outcome::Deleted => (OpCode::DELETE, Ok(Reply::Empty)),
        Outcome::Set(stat) => (OpCode::SET_DATA, Ok(Reply::Stat(stat))),
        Outcome::Failed(error) => (OpCode::ERROR, Err(error)),
        Outcome::Checked | Outcome::Done | Outcome::Multi(_) => (OpCode::CHECK, Ok(Reply::Empty)),
    }
}

/// What goes through the log.
fn is_write(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::CREATE
            | OpCode::CREATE2
            | OpCode::CREATE_CONTAINER
            | OpCode::CREATE_TTL
            | OpCode::DELETE
            | OpCode::SET_DATA
            | OpCode::SET_ACL
            | OpCode::CHECK
            | OpCode::MULTI
            | OpCode::RECONFIG
            | OpCode::CLOSE_SESSION
    )
}

/// What Apache ZooKeeper 3.8 knows. The rest is answered 'unimplemented', and the connection is closed.
fn is_known(op: OpCode) -> bool {
    is_write(op)
        || matches!(
            op,
            OpCode::EXISTS
                | OpCode::GET_DATA
                | OpCode::GET_ACL
                | OpCode::GET_CHILDREN
                | OpCode::SYNC
                | OpCode::PING
                | OpCode::GET_CHILDREN2
                | OpCode::CHECK_WATCHES
                | OpCode::REMOVE_WATCHES
                | OpCode::MULTI_READ
                | OpCode::SET_WATCHES
                | OpCode::GET_EPHEMERALS
                | OpCode::GET_ALL_CHILDREN_NUMBER
                | OpCode::SET_WATCHES2
                | OpCode::ADD_WATCH
                | OpCode::WHO_AM_I
        )
}
