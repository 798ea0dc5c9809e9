//! Bytes to frames, and a connection's first frame.

use bytes::{Bytes, BytesMut};
use zk_proto::{
    ConnectRequest, ConnectResponse, ErrorCode, Id, OpCode, PASSWORD_LEN, Reply, ReplyHeader, Request,
    RequestHeader, cut_frame,
};

use super::connection::{Ending, Output, Queued, Stage};
use super::replica::{Ask, Forward, Origin};
use super::{Cluster, Refusal, millis, sessions};
use crate::embedded::tree::{self, Owner};

/// How much may wait for a connection that does not read now.
const MOST_WAITING: usize = 16 << 20;

impl Cluster {
    /// Takes frame by frame out of what has come, as far as it may be looked at.
    pub(super) fn read_input(&mut self, connection: u64) {
        loop {
            let Some(held) = self.connections.get_mut(&connection) else { return };
            if !held.reads() {
                if held.stage == Stage::Over {
                    held.input = BytesMut::new();
                } else if held.input.len() > MOST_WAITING {
                    // A network, too, gives up in the end; bytes in the middle are never lost alone.
                    self.reset(connection);
                }
                return;
            }
            let at = held.at;
            if held.stage == Stage::Handshake
                && let Some(word) = held.input.first_chunk().copied()
                && let argument = held.input[word.len()..].first_chunk().copied()
                && self.answer_word(connection, at, word, argument)
            {
                return;
            }
            let Some(held) = self.connections.get_mut(&connection) else { return };
            let frame = match cut_frame(&mut held.input, self.settings.max_request) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(_) => return self.end(connection, Ending::Orderly),
            };
            if held.input.is_empty() {
                held.input = BytesMut::new();
            }
            held.received += 1;
            self.replicas[at].received += 1;
            if !self.replicas[at].serves_reads() {
                return self.end(connection, Ending::Orderly);
            }
            self.frame(connection, &frame);
        }
    }

    fn frame(&mut self, connection: u64, frame: &Bytes) {
        let Some(held) = self.connections.get(&connection) else { return };
        match held.stage {
            Stage::Handshake => self.connect_request(connection, frame),
            Stage::Open { session, timeout_ms } => {
                let Ok(header) = RequestHeader::decode(frame) else {
                    return self.end(connection, Ending::Orderly);
                };
                let body = frame.slice(RequestHeader::LEN..);
                match header.op {
                    OpCode::AUTH => self.authenticate(connection, header.xid, &body),
                    OpCode::SASL => self.refuse(connection, header.xid, ErrorCode::AUTH_FAILED, true),
                    _ => {
                        let at = held.at;
                        match self.replicas[at].refuses {
                            Some(Refusal::RequiresSasl) => {
                                let error = ErrorCode::SESSION_CLOSED_REQUIRE_SASL;
                                return self.refuse(connection, header.xid, error, true);
                            }
                            Some(Refusal::Error(code)) if header.op != OpCode::PING => {
                                return self.refuse(connection, header.xid, ErrorCode(code), false);
                            }
                            _ => {}
                        }
                        let queued = Queued { header, body, who: held.who() };
                        if self.touch(at, session, timeout_ms) {
                            self.enqueue(connection, queued);
                        }
                    }
                }
            }
            Stage::Joining { .. } | Stage::Over => {}
        }
    }

    /// A session was active. A server that leads knows at once whether the session exists; the others report it
    /// to the leader later.
    fn touch(&mut self, at: usize, session: i64, timeout_ms: u64) -> bool {
        let shown = self.shown();
        if let Some(local) = &mut self.replicas[at].local {
            return local.touch(session, timeout_ms, millis(shown));
        }
        if at == self.leader {
            return self.sessions.touch(session, timeout_ms, millis(shown));
        }
        let replica = &mut self.replicas[at];
        replica.touched.insert(session, timeout_ms);
        replica.report_at.get_or_insert(shown + self.settings.tick_time / 2);
        true
    }

    fn connect_request(&mut self, connection: u64, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else { return self.end(connection, Ending::Orderly) };
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        let elsewhere = self.destined.get(&request.session_id).is_some_and(|server| *server != at);
        // A session that others know, or may need to know, is not for a server without a quorum.
        let is_local = self.replicas[at].local.is_some();
        let too_much = is_local && (request.read_only != Some(true) || self.sessions.has(request.session_id));
        // It has seen what this server has not; with another it will be luckier.
        if too_much || elsewhere || request.last_zxid > self.replicas[at].tree.zxid() {
            return self.end(connection, Ending::Orderly);
        }
        let refuses = self.replicas[at].refuses;
        let (min, mut max) = self.settings.granted();
        if let Some(Refusal::GrantsAtMost(most)) = refuses {
            max = most.clamp(min, max);
        }
        let timeout_ms = u64::try_from(request.timeout_ms).unwrap_or(0).clamp(millis(min), millis(max));
        let with_read_only = request.read_only.is_some();
        let is_new =
            request.session_id == 0 || matches!(refuses, Some(Refusal::AnotherSession | Refusal::Keeper));
        let session = if is_new { self.new_session_id(at) } else { request.session_id };
        if let Some(held) = self.connections.get_mut(&connection) {
            held.stage = Stage::Joining { session, timeout_ms, with_read_only };
        }
        for old in self.connections_of(session, Some(at)) {
            if self.connections.get(&old).is_some_and(|old| !old.requests_held) {
                self.end(old, Ending::Orderly);
            }
        }
        let has_ended = !is_new && refuses == Some(Refusal::Expired);
        if has_ended || !is_new && request.password != sessions::password(session, self.start.secret) {
            self.joined(connection, false);
        } else if let Some(local) = &mut self.replicas[at].local {
            let now_ms = millis(self.clock.read(self.now));
            if is_new {
                local.open(session, timeout_ms, at, now_ms);
            }
            let is_good = local.touch(session, timeout_ms, now_ms);
            self.joined(connection, is_good);
        } else {
            let what = if is_new { Ask::Open { timeout_ms } } else { Ask::Reattach { timeout_ms } };
            let origin = Origin { connection, xid: 0 };
            self.replicas[at].outbox.push_back(Forward { origin, session, what });
        }
    }

    /// The leader has answered whether the session exists.
    pub(super) fn joined(&mut self, connection: u64, is_good: bool) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let Stage::Joining { session, timeout_ms, with_read_only } = held.stage else { return };
        if !is_good {
            let refusal = ConnectResponse::refusal(with_read_only);
            self.send_to_client(connection, Output::frame(|out| refusal.encode(out)));
            return self.end(connection, Ending::Orderly);
        }
        held.stage = Stage::Open { session, timeout_ms };
        let at = &self.replicas[held.at];
        let read_only = at.local.is_some() || at.refuses == Some(Refusal::ReadOnly);
        let password = match at.refuses {
            Some(Refusal::Keeper) => vec![0; PASSWORD_LEN],
            _ => sessions::password(session, self.start.secret),
        };
        self.destined.remove(&session);
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session_id: session,
            password,
            read_only: with_read_only.then_some(read_only),
        };
        self.send_to_client(connection, Output::frame(|out| response.encode(out)));
        self.ready.push_back(connection);
    }

    /// Apache ZooKeeper puts the server's number into the highest byte, and the time
    /// below it; here it is by chance that those of two servers differ, which start at the
    /// same time in tests.
    fn new_session_id(&mut self, at: usize) -> i64 {
        let base = self.start.secret & 0x00ff_ffff_ff00_0000;
        loop {
            self.opened_sessions += 1;
            let number =
                (at as u64 + 1) << 56 | base.wrapping_add(self.opened_sessions) & 0x00ff_ffff_ffff_ffff;
            let session = number.cast_signed();
            if session != 0 && !Owner::is_reserved(session) {
                return session;
            }
        }
    }

    /// Not queued behind other requests: it counts for those that come after it.
    fn authenticate(&mut self, connection: u64, xid: i32, body: &[u8]) {
        let Ok(Request::Auth { scheme: Some(scheme), credentials, .. }) = Request::decode(OpCode::AUTH, body)
        else {
            return self.end(connection, Ending::Orderly);
        };
        let Some(held) = self.connections.get_mut(&connection) else { return };
        match self.replicas[held.at].refuses {
            Some(Refusal::Credentials) => {
                return self.refuse(connection, xid, ErrorCode::AUTH_FAILED, true);
            }
            Some(Refusal::Error(code)) => return self.refuse(connection, xid, ErrorCode(code), false),
            _ => {}
        }
        let id = match (&*scheme, credentials) {
            ("digest", Some(proof)) => {
                if self.settings.super_user.as_ref().is_some_and(|user| *user.as_bytes() == *proof) {
                    held.identify(Id::new(tree::SUPER, ""));
                }
                tree::digest_id(&proof)
            }
            ("ip", _) => Id::new("ip", held.peer.ip().to_string()),
            _ => return self.refuse(connection, xid, ErrorCode::AUTH_FAILED, true),
        };
        held.identify(id);
        self.say_reply(connection, ReplyHeader { xid, zxid: 0, error: ErrorCode::OK }, &Reply::Empty);
    }

    fn refuse(&mut self, connection: u64, xid: i32, error: ErrorCode, ends: bool) {
        self.say_reply(connection, ReplyHeader { xid, zxid: 0, error }, &Reply::Empty);
        if ends {
            self.end(connection, Ending::Orderly);
        }
    }
}
