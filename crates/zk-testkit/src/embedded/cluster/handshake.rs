//! Bytes to frames, and a connection's first frame.

use bytes::{Bytes, BytesMut};
use zk_proto::{
    ConnectRequest, ConnectResponse, ErrorCode, Id, OpCode, Reply, ReplyHeader, Request, RequestHeader,
    cut_frame,
};

use super::connection::{Ending, Outgoing, Queued, Stage};
use super::replica::{Ask, Forward, Origin};
use super::{Cluster, millis, sessions, words};
use crate::embedded::tree::{self, Owner};

/// How much may wait for a connection that does not hear at the moment.
const MOST_WAITING: usize = 16 << 20;

impl Cluster {
    /// Takes frame by frame out of what has come, as far as it may be looked at.
    pub(super) fn read_input(&mut self, connection: u64) {
        loop {
            let Some(held) = self.connections.get_mut(&connection) else { return };
            if !held.hears() {
                if held.stage == Stage::Over {
                    held.input = BytesMut::new();
                } else if held.input.len() > MOST_WAITING {
                    // A network, too, gives up in the end; bytes in the middle are never lost alone.
                    self.reset(connection);
                }
                return;
            }
            if held.stage == Stage::Hello
                && let Some(word) = held.input.first_chunk().copied()
                && words::is_word(word)
            {
                self.answer_word(connection, word);
                return;
            }
            let frame = match cut_frame(&mut held.input, self.settings.max_frame) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(_) => {
                    self.end(connection, Ending::Orderly);
                    return;
                }
            };
            if held.input.is_empty() {
                held.input = BytesMut::new();
            }
            held.received += 1;
            let at = held.at;
            self.replicas[at].received += 1;
            if !self.replicas[at].serving {
                self.end(connection, Ending::Orderly);
                return;
            }
            self.frame(connection, &frame);
        }
    }

    fn frame(&mut self, connection: u64, frame: &Bytes) {
        let Some(held) = self.connections.get(&connection) else { return };
        match held.stage {
            Stage::Hello => self.hello(connection, frame),
            Stage::Open { session, timeout_ms } => {
                let Ok(header) = RequestHeader::decode(frame) else {
                    self.end(connection, Ending::Orderly);
                    return;
                };
                let body = frame.slice(RequestHeader::LEN..);
                match header.op {
                    OpCode::AUTH => self.authenticate(connection, header.xid, &body),
                    OpCode::SASL => self.refuse_identity(connection, header.xid),
                    _ => {
                        let at = held.at;
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

    /// A session was heard of. A server that leads knows at once whether there is
    /// such a session; the others tell the leader later.
    fn touch(&mut self, at: usize, session: i64, timeout_ms: u64) -> bool {
        let shown = self.shown();
        if at == self.leader {
            return self.sessions.touch(session, timeout_ms, millis(shown));
        }
        let replica = &mut self.replicas[at];
        replica.touched.insert(session, timeout_ms);
        replica.tell_at.get_or_insert(shown + self.settings.tick / 2);
        true
    }

    fn hello(&mut self, connection: u64, frame: &[u8]) {
        let Ok(request) = ConnectRequest::decode(frame) else {
            self.end(connection, Ending::Orderly);
            return;
        };
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        let elsewhere = self.destined.get(&request.session_id).is_some_and(|server| *server != at);
        // It has seen what this server has not; with another it will be luckier.
        if elsewhere || request.last_zxid > self.replicas[at].tree.zxid() {
            self.end(connection, Ending::Orderly);
            return;
        }
        let (min, max) = (millis(self.settings.min_timeout), millis(self.settings.max_timeout));
        let timeout_ms = u64::try_from(request.timeout_ms).unwrap_or(0).clamp(min, max);
        let with_read_only = request.read_only.is_some();
        let origin = Origin { connection, xid: 0 };
        if request.session_id == 0 {
            let session = self.new_session_id(at);
            self.join(connection, Stage::Joining { session, timeout_ms, with_read_only });
            let what = Ask::Open { timeout_ms };
            self.replicas[at].outbox.push_back(Forward { origin, session, what });
            return;
        }
        let session = request.session_id;
        for old in self.connections_of(session, Some(at)) {
            if self.connections.get(&old).is_some_and(|old| !old.requests_held) {
                self.end(old, Ending::Orderly);
            }
        }
        self.join(connection, Stage::Joining { session, timeout_ms, with_read_only });
        if request.password == sessions::password(session, self.settings.seed) {
            let what = Ask::Reattach { timeout_ms };
            self.replicas[at].outbox.push_back(Forward { origin, session, what });
        } else {
            self.joined(connection, false);
        }
    }

    fn join(&mut self, connection: u64, stage: Stage) {
        if let Some(held) = self.connections.get_mut(&connection) {
            held.stage = stage;
        }
    }

    /// The leader has said whether there is such a session.
    pub(super) fn joined(&mut self, connection: u64, is_good: bool) {
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let Stage::Joining { session, timeout_ms, with_read_only } = held.stage else { return };
        if !is_good {
            let refusal = ConnectResponse::refusal(with_read_only);
            self.say(connection, Outgoing::frame(|out| refusal.encode(out)));
            self.end(connection, Ending::Orderly);
            return;
        }
        held.stage = Stage::Open { session, timeout_ms };
        self.destined.remove(&session);
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session_id: session,
            password: sessions::password(session, self.settings.seed),
            read_only: with_read_only.then_some(false),
        };
        self.say(connection, Outgoing::frame(|out| response.encode(out)));
        self.ready.push_back(connection);
    }

    /// Apache ZooKeeper puts the server's number into the highest byte, and the time
    /// below it; here the seed stands for the time.
    fn new_session_id(&mut self, at: usize) -> i64 {
        let base = fastrand::Rng::with_seed(self.settings.seed).u64(..) & 0x00ff_ffff_ff00_0000;
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
            self.end(connection, Ending::Orderly);
            return;
        };
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let id = match (&*scheme, credentials) {
            ("digest", Some(proof)) => tree::digest_id(&proof),
            ("ip", _) => Id::new("ip", held.peer.to_string()),
            _ => return self.refuse_identity(connection, xid),
        };
        held.identify(id);
        self.say_reply(connection, ReplyHeader { xid, zxid: 0, error: ErrorCode::OK }, &Reply::Empty);
    }

    fn refuse_identity(&mut self, connection: u64, xid: i32) {
        let header = ReplyHeader { xid, zxid: 0, error: ErrorCode::AUTH_FAILED };
        self.say_reply(connection, header, &Reply::Empty);
        self.end(connection, Ending::Orderly);
    }
}
