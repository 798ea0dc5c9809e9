//! What a server does for its clients: it takes their requests one after the other,
//! answers reads, passes writes on, and tells what has come of them.

use std::sync::Arc;

use super::Cluster;
use super::connection::{Ending, Outgoing, Queued, Stage};
use super::reads::{self, View};
use super::replica::{Ask, Forward, Origin};
use crate::embedded::code::Code;
use crate::embedded::tree::{self, Change, Notice, Outcome, Txn, permission};
use crate::embedded::wire::{Answer, MultiAnswer, Reader, Request, event_frame, op, reply_frame};
use crate::proxy::{Asked, Op, Way};

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
        let Queued { xid, op: code, body, who } = queued;
        let origin = Origin { connection, xid };
        if !op::is_known(code) {
            self.say(
                connection,
                Outgoing::Frame(reply_frame(xid, -1, Code::UNIMPLEMENTED, &Answer::Nothing)),
            );
            self.end(connection, Ending::Orderly);
            return;
        }
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        let Ok(request) = Request::read(code, &mut Reader::new(&body)) else {
            if is_write(code) {
                self.pass_on(at, Forward { origin, session, what: Ask::Garbage });
            } else {
                self.reply(origin, Code::MARSHALLING_ERROR, &Answer::Nothing);
            }
            return;
        };
        if let Some(op) = Op::from_code(code) {
            let asked = Asked { xid, op, path: request.path().map(str::to_owned) };
            held.doom = self.rules.judge(&asked);
            if held.doom.as_ref().is_some_and(|doom| doom.way == Way::ToServer) {
                self.strike(connection);
                return;
            }
        }
        if is_write(code) {
            let what = Ask::Write { request, who, size: body.len() };
            self.pass_on(at, Forward { origin, session, what });
        } else if let Request::Sync { path } = request {
            self.pass_on(at, Forward { origin, session, what: Ask::Sync { path } });
        } else {
            self.read(origin, session, at, &who, &request);
        }
    }

    fn read(&mut self, origin: Origin, session: i64, at: usize, who: &Arc<[tree::Id]>, request: &Request) {
        // A follower knows nothing of sessions but what it hears.
        if at == self.leader
            && let Err(code) = self.sessions.check(session, at)
        {
            self.reply(origin, code, &Answer::Nothing);
            return;
        }
        if *request == Request::Ping {
            self.reply(Origin { xid: -2, ..origin }, Code::OK, &Answer::Nothing);
            return;
        }
        let replica = &mut self.replicas[at];
        let mut view = View { tree: &replica.tree, watches: &mut replica.watches };
        let reader = reads::Reader { watcher: origin.connection, session, who };
        let read = view.read(&reader, request);
        for (event, path) in read.missed {
            self.say(origin.connection, Outgoing::Frame(event_frame(event, &path)));
        }
        match read.answer {
            Ok(answer) => self.reply(origin, Code::OK, &answer),
            Err(code) => self.reply(origin, code, &Answer::Nothing),
        }
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
            self.tell(&notice);
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
                    self.outcome(origin, &outcome);
                }
                for connection in self.connections_of(txn.session, Some(at)) {
                    self.end(connection, Ending::Orderly);
                }
            }
            _ => {
                if let Some(origin) = origin {
                    self.outcome(origin, &outcome);
                }
            }
        }
    }

    pub(super) fn synced(&mut self, origin: Origin, path: String) {
        self.answered(origin, Code::OK, &Answer::Path(path));
    }

    fn tell(&mut self, notice: &Notice) {
        let Some(held) = self.connections.get(&notice.watcher) else { return };
        if tree::check(&notice.acl, permission::READ, &held.who()).is_ok() {
            self.say(notice.watcher, Outgoing::Frame(event_frame(notice.event, &notice.path)));
        }
    }

    fn outcome(&mut self, origin: Origin, outcome: &Outcome) {
        let (code, answer) = match outcome {
            Outcome::Failed(code) => (*code, Answer::Nothing),
            Outcome::Done | Outcome::Deleted => (Code::OK, Answer::Nothing),
            Outcome::Created(path) => (Code::OK, Answer::Path(path.clone())),
            Outcome::CreatedWithStat(path, stat) => (Code::OK, Answer::PathAndStat(path.clone(), *stat)),
            Outcome::Set(stat) => (Code::OK, Answer::Stat(*stat)),
            Outcome::Checked => {
                // 3.8 has no answer to a `check` that is not part of a `multi`: it fails to write one.
                self.go_on(origin.connection);
                return;
            }
            Outcome::Multi(parts) => (Code::OK, Answer::Multi(parts.iter().map(part).collect())),
        };
        self.answered(origin, code, &answer);
    }

    /// The reply to a request that had to wait.
    pub(super) fn answered(&mut self, origin: Origin, code: Code, answer: &Answer) {
        self.reply(origin, code, answer);
        self.go_on(origin.connection);
    }

    fn go_on(&mut self, connection: u64) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.waiting = false;
            self.ready.push_back(connection);
        }
    }

    fn reply(&mut self, origin: Origin, code: Code, answer: &Answer) {
        let Some(held) = self.connections.get(&origin.connection) else { return };
        if code == Code::SESSION_MOVED {
            self.end(origin.connection, Ending::Orderly);
            return;
        }
        let zxid = self.replicas[held.at].tree.zxid();
        let frame = reply_frame(origin.xid, zxid, code, answer);
        if held.doom.as_ref().is_some_and(|doom| doom.xid == origin.xid) {
            self.strike(origin.connection);
        }
        self.say(origin.connection, Outgoing::Frame(frame));
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

fn part(outcome: &Outcome) -> MultiAnswer {
    match outcome {
        Outcome::Created(path) => MultiAnswer::Created(path.clone()),
        Outcome::CreatedWithStat(path, stat) => MultiAnswer::CreatedWithStat(path.clone(), *stat),
        Outcome::Deleted => MultiAnswer::Deleted,
        Outcome::Set(stat) => MultiAnswer::Set(*stat),
        Outcome::Failed(code) => MultiAnswer::Failed(*code),
        Outcome::Checked | Outcome::Done | Outcome::Multi(_) => MultiAnswer::Checked,
    }
}

fn is_write(code: i32) -> bool {
    matches!(
        code,
        op::CREATE
            | op::CREATE2
            | op::CREATE_CONTAINER
            | op::CREATE_TTL
            | op::DELETE
            | op::SET_DATA
            | op::SET_ACL
            | op::CHECK
            | op::MULTI
            | op::RECONFIG
            | op::CLOSE_SESSION
    )
}
