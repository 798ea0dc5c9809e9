//! What a server does for its clients: it takes their requests one after the other,
//! answers reads, passes writes on, and reports their results.

use zk_proto::{ErrorCode, Id, OpCode, Reply, ReplyHeader, Request, WatchEvent, permission, xid};

use super::connection::{Ending, Output, Queued, Stage};
use super::reads::Reader;
use super::replica::{Ask, Forward, Origin};
use super::{Cluster, MOST_UNSENT};
use crate::embedded::settings::Release;
use crate::embedded::tree::{self, Change, Notice, Txn};
use crate::proxy::{Asked, FaultKind};

/// The zxid of an event without a transaction, or without its number.
const NO_ZXID: i64 = -1;

impl Cluster {
    pub(super) fn enqueue(&mut self, connection: u64, queued: Queued) {
        if let Some(window) = self.reorder {
            self.shuffle_at.get_or_insert(self.now.saturating_add(window));
            self.shuffled.push((connection, queued));
            if let Some(held) = self.connections.get_mut(&connection) {
                held.collected += 1;
            }
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
            if held.waiting || held.black_hole || held.unsent >= MOST_UNSENT {
                return;
            }
            let Some(queued) = held.queue.pop_front() else { return };
            self.begin(connection, session, queued);
        }
    }

    fn begin(&mut self, connection: u64, session: i64, queued: Queued) {
        let Queued { header, body, who } = queued;
        let origin = Origin { connection, xid: header.xid };
        let request = Request::decode(header.op, &body);
        // As Apache ZooKeeper does with a kind that it does not know. To 3.9 a `check` is one, outside of a
        // group.
        let is_newer = self.settings.release >= Release::V3_9;
        if matches!(request, Ok(Request::Other { .. })) || (header.op == OpCode::CHECK && is_newer) {
            let header = ReplyHeader { xid: header.xid, zxid: -1, error: ErrorCode::UNIMPLEMENTED };
            self.say_reply(connection, header, &Reply::Empty);
            return self.end(connection, Ending::Orderly);
        }
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        if let Ok(request) = &request
            && let Some(asked) = Asked::new(header, Some(request))
        {
            held.fault = self.rules.take_match(&asked);
            if held.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::ToServer) {
                return self.strike(connection);
            }
        }
        if self.replicas[at].local.is_some() {
            if header.op == OpCode::CLOSE_SESSION {
                self.reply(origin, Ok(Reply::Empty));
                return self.end_local(at, session);
            }
            if is_write(header.op) || header.op == OpCode::SYNC {
                return self.reply(origin, Err(ErrorCode::NOT_READ_ONLY));
            }
        }
        // A request that can't be read still has a position in the log. But 3.9 reads it before it assigns one, and 3.8
        // does so for a `reconfig`.
        let reads_first = header.op == OpCode::RECONFIG || is_newer;
        let is_logged = is_write(header.op) && (request.is_ok() || !reads_first);
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
        // A follower knows only the sessions that it has received.
        let known = (at == self.leader).then_some(&self.sessions);
        if let Some(sessions) = self.replicas[at].local.as_ref().or(known)
            && let Err(error) = sessions.check(session, at)
        {
            return self.reply(origin, Err(error));
        }
        if *request == Request::Ping {
            return self.reply(Origin { xid: xid::PING, ..origin }, Ok(Reply::Empty));
        }
        let replica = &mut self.replicas[at];
        let reader = Reader { watcher: origin.connection, session, who, release: self.settings.release };
        let reply = replica.read(&reader, request);
        self.notify_watchers(at, NO_ZXID);
        self.reply(origin, reply);
    }

    fn pass_on(&mut self, at: usize, forward: Forward) {
        if let Some(held) = self.connections.get_mut(&forward.origin.connection) {
            held.waiting = true;
        }
        self.replicas[at].outbox.push_back(forward);
    }

    /// Carries a transaction of the log out at one server, sends its clients the events of
    /// their watches, and then the reply to the client that asked for it.
    pub(super) fn apply(&mut self, at: usize, txn: &Txn, origin: Option<Origin>) {
        let replica = &mut self.replicas[at];
        let reply = replica.tree.apply(txn, &mut replica.watches);
        self.notify_watchers(at, if self.settings.release >= Release::V3_9 { txn.zxid } else { NO_ZXID });
        if let Some(origin) = origin {
            match txn.change {
                Change::OpenSession => self.joined(origin.connection, true),
                // 3.8 has no answer to a `check` that is not part of a `multi`: it fails to write one.
                Change::Checked => self.go_on(origin.connection),
                _ => self.answered(origin, reply),
            }
        }
        if let Change::CloseSession(_) = txn.change {
            if at == self.leader {
                self.sessions.remove(txn.session);
            }
            for connection in self.connections_of(txn.session, Some(at)) {
                self.end(connection, Ending::Orderly);
            }
        }
    }

    fn notify_watchers(&mut self, at: usize, zxid: i64) {
        for Notice { watcher, kind, path, acl } in self.replicas[at].watches.take_notices() {
            let Some(held) = self.connections.get(&watcher) else { continue };
            if tree::check(&acl, permission::READ, &held.who()).is_ok() {
                let event = WatchEvent { kind, state: WatchEvent::CONNECTED, path, zxid };
                self.send_to_client(watcher, Output::frame(|out| event.encode(out)));
            }
        }
    }

    /// The reply to a request that had to wait.
    pub(super) fn answered(&mut self, origin: Origin, reply: Result<Reply, ErrorCode>) {
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
        if held.fault.as_ref().is_some_and(|fault| fault.xid == origin.xid) {
            self.strike(origin.connection);
        }
        self.say_reply(origin.connection, header, &reply);
    }

    pub(super) fn say_reply(&mut self, connection: u64, header: ReplyHeader, reply: &Reply) {
        self.send_to_client(connection, Output::frame(|out| reply.encode(header, out)));
    }

    /// A fault that was waiting for this request, or for its reply.
    fn strike(&mut self, connection: u64) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let Some(fault) = held.fault.take() else { return };
        match fault.kind {
            FaultKind::ToServer | FaultKind::ToClient => self.end(connection, Ending::Reset),
            FaultKind::Never => held.unanswered = true,
            FaultKind::Late(delay) => held.delay = delay,
        }
        fault.report();
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
