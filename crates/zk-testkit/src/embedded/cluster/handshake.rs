//! Bytes to frames, and a connection's first frame.

use bytes::{Bytes, BytesMut};

use super::connection::{Ending, Outgoing, Queued, Stage};
use super::replica::{Ask, Forward, Origin};
use super::{Cluster, millis, sessions, words};
use crate::embedded::code::Code;
use crate::embedded::tree::{Id, Owner};
use crate::embedded::wire::{Answer, ConnectRequest, ConnectResponse, Reader, op, reply_frame};

/// The length in front of a frame, and a four-letter word.
const PREFIX: usize = 4;
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
            let Some(prefix) = held.input.first_chunk::<PREFIX>().copied() else { return };
            if held.stage == Stage::Hello && words::is_word(prefix) {
                self.answer_word(connection, prefix);
                return;
            }
            let length = usize::try_from(i32::from_be_bytes(prefix)).ok();
            let Some(length) = length.filter(|length| *length <= self.settings.max_frame) else {
                self.end(connection, Ending::Orderly);
                return;
            };
            if held.input.len() < PREFIX + length {
                return;
            }
            let frame = held.input.split_to(PREFIX + length).freeze().slice(PREFIX..);
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
                let mut reader = Reader::new(frame);
                let (Ok(xid), Ok(code)) = (reader.int(), reader.int()) else {
                    self.end(connection, Ending::Orderly);
                    return;
                };
                match code {
                    op::AUTH => self.authenticate(connection, xid, &mut reader),
                    op::SASL => self.refuse_identity(connection, xid),
                    _ => {
                        let at = held.at;
                        let queued = Queued { xid, op: code, body: frame.slice(8..), who: held.who() };
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
        let Ok(request) = ConnectRequest::read(&mut Reader::new(frame)) else {
            self.end(connection, Ending::Orderly);
            return;
        };
        let Some(held) = self.connections.get_mut(&connection) else { return };
        let at = held.at;
        let elsewhere = self.destined.get(&request.session).is_some_and(|server| *server != at);
        // It has seen what this server has not; with another it will be luckier.
        if elsewhere || request.last_zxid_seen > self.replicas[at].tree.zxid() {
            self.end(connection, Ending::Orderly);
            return;
        }
        let (min, max) = (millis(self.settings.min_timeout), millis(self.settings.max_timeout));
        let timeout_ms = u64::try_from(request.timeout_ms).unwrap_or(0).clamp(min, max);
        let with_read_only = request.read_only.is_some();
        let origin = Origin { connection, xid: 0 };
        if request.session == 0 {
            let session = self.new_session_id(at);
            self.join(connection, Stage::Joining { session, timeout_ms, with_read_only });
            let what = Ask::Open { timeout_ms };
            self.replicas[at].outbox.push_back(Forward { origin, session, what });
            return;
        }
        let session = request.session;
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
            let refusal = ConnectResponse::refusal(with_read_only).frame();
            self.say(connection, Outgoing::Frame(refusal));
            self.end(connection, Ending::Orderly);
            return;
        }
        held.stage = Stage::Open { session, timeout_ms };
        self.destined.remove(&session);
        let response = ConnectResponse {
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session,
            password: sessions::password(session, self.settings.seed),
            with_read_only,
        };
        self.say(connection, Outgoing::Frame(response.frame()));
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
    fn authenticate(&mut self, connection: u64, xid: i32, reader: &mut Reader<'_>) {
        let read = (|| {
            let _kind = reader.int()?;
            Ok::<_, crate::embedded::wire::Malformed>((reader.string()?, reader.buffer()?))
        })();
        let Some(held) = self.connections.get_mut(&connection) else { return };
        match read {
            Err(_) => self.end(connection, Ending::Orderly),
            Ok((scheme, Some(proof))) if scheme == "digest" => {
                held.identify(Id::digest(&proof));
                self.say(connection, Outgoing::Frame(reply_frame(xid, 0, Code::OK, &Answer::Nothing)));
            }
            Ok((scheme, _)) if scheme == "ip" => {
                let address = held.peer.to_string();
                held.identify(Id::new("ip", address));
                self.say(connection, Outgoing::Frame(reply_frame(xid, 0, Code::OK, &Answer::Nothing)));
            }
            Ok(_) => self.refuse_identity(connection, xid),
        }
    }

    fn refuse_identity(&mut self, connection: u64, xid: i32) {
        let reply = reply_frame(xid, 0, Code::AUTH_FAILED, &Answer::Nothing);
        self.say(connection, Outgoing::Frame(reply));
        self.end(connection, Ending::Orderly);
    }
}
