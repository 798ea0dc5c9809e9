//! Requests with their answers, and watch events, from the frames of a proxy.

use std::collections::{BTreeMap, HashMap};

use zk_proto::{
    ConnectResponse, Create, ErrorCode, EventKind, OpCode, ReplyHeader, Request, RequestHeader, WatchEvent,
    xid,
};
use zk_testkit::{PassedFrame, Sender};

use crate::moment::Moment;

/// The parent of the path whose deletion is the heartbeat of a lease.
const HEARTBEAT: &str = "/zk-session-barrier";
/// What a client asks of to learn whether a server answers.
const PROBED: &str = "/";

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// The operation, such as `create` or `get`.
    pub name: &'static str,
    /// The path; empty if it has none.
    pub path: String,
    /// What else matters: the version, the mode, whether it sets a watch.
    pub detail: String,
    /// Of a group.
    pub parts: Vec<What>,
    /// Whether it goes through a quorum.
    pub is_write: bool,
}

impl What {
    /// Whether the session sends it by itself, by the time and not because of a change: a heartbeat or a probe.
    #[must_use]
    pub fn is_upkeep(&self) -> bool {
        self.name == "heartbeat" || (self.name == "exists" && self.path == PROBED)
    }

    fn of(request: &Request<'_>) -> Self {
        let version = |version: i32| if version < 0 { String::new() } else { format!("v{version}") };
        let watch = |watch: bool| if watch { "watch".to_owned() } else { String::new() };
        let mut parts = Vec::new();
        let (name, detail, is_write) = match request {
            Request::Create(Create { flags, .. }) => ("create", mode(*flags).to_owned(), true),
            Request::Delete { path, .. } if path.starts_with(HEARTBEAT) => ("heartbeat", String::new(), true),
            Request::Delete { version: v, .. } => ("delete", version(*v), true),
            Request::SetData { version: v, .. } => ("set", version(*v), true),
            Request::Check { version: v, .. } => ("check", version(*v), true),
            Request::SetAcl { version: v, .. } => ("set-acl", version(*v), true),
            Request::Exists { watch: w, .. } => ("exists", watch(*w), false),
            Request::GetData { watch: w, .. } => ("get", watch(*w), false),
            Request::GetChildren { watch: w, .. } => ("list", watch(*w), false),
            Request::GetAcl { .. } => ("get-acl", String::new(), false),
            Request::Sync { .. } => ("sync", String::new(), false),
            Request::AddWatch { mode, .. } => {
                ("add-watch", if *mode == 0 { "persistent" } else { "recursive" }.to_owned(), false)
            }
            Request::RemoveWatches { .. } => ("remove-watches", String::new(), false),
            Request::CheckWatches { .. } => ("check-watches", String::new(), false),
            Request::SetWatches { .. } => ("set-watches", String::new(), false),
            Request::Multi(ops) => {
                parts = ops.iter().map(Self::of).collect();
                ("multi", String::new(), true)
            }
            Request::MultiRead(ops) => {
                parts = ops.iter().map(Self::of).collect();
                ("multi-read", String::new(), false)
            }
            Request::CloseSession => ("close", String::new(), true),
            Request::Reconfig { .. } => ("reconfig", String::new(), true),
            Request::Ping => ("ping", String::new(), false),
            other => ("other", format!("op {}", other.op().0), false),
        };
        Self { name, path: request.path().unwrap_or_default().to_owned(), detail, parts, is_write }
    }
}

/// ZooKeeper's flags of a create.
fn mode(flags: i32) -> &'static str {
    match flags {
        0 => "",
        1 => "ephemeral",
        2 => "sequential",
        3 => "ephemeral sequential",
        4 => "container",
        _ => "ttl",
    }
}

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The id of the session that has sent it.
    pub session: i64,
    /// When the proxy had read it.
    pub sent: Moment,
    /// What it asks for.
    pub what: What,
    /// When the proxy had read the answer, and its error; `None` if there was no answer yet.
    pub answered: Option<(Moment, ErrorCode)>,
    /// The length of the request, in bytes.
    pub sent_bytes: usize,
    /// The length of the answer, in bytes.
    pub answered_bytes: usize,
}

/// A watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The id of the session that was notified.
    pub session: i64,
    /// When the proxy had read it.
    pub at: Moment,
    /// What happened.
    pub kind: EventKind,
    /// To which znode.
    pub path: String,
    /// Its length in bytes.
    pub bytes: usize,
}

/// Anything but pings and handshakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request.
    Exchange(Exchange),
    /// A watch event.
    Event(Event),
}

impl Message {
    /// When the proxy had read it: of an exchange, the request.
    #[must_use]
    pub fn at(&self) -> Moment {
        match self {
            Self::Exchange(exchange) => exchange.sent,
            Self::Event(event) => event.at,
        }
    }

    /// The id of its session.
    #[must_use]
    pub fn session(&self) -> i64 {
        match self {
            Self::Exchange(exchange) => exchange.session,
            Self::Event(event) => event.session,
        }
    }
}

/// Puts frames together. The proxies are told apart by a number.
#[derive(Debug, Default)]
pub struct Decoder {
    connections: HashMap<(usize, usize), Connection>,
    done: Vec<Message>,
}

/// A connection after its handshake, or before: then it has no session.
#[derive(Debug, Default)]
struct Connection {
    has_asked: bool,
    session: Option<i64>,
    /// By their numbers.
    pending: BTreeMap<i32, Exchange>,
}

impl Decoder {
    /// Takes the next frame of a proxy. Frames that can't be read are ignored, as are those of connections whose handshake
    /// was not recorded.
    pub fn feed(&mut self, proxy: usize, frame: &PassedFrame) {
        self.passed(proxy, frame.connection, frame.sender, Moment::of(frame.at), &frame.bytes);
    }

    fn passed(&mut self, proxy: usize, connection: usize, sender: Sender, at: Moment, bytes: &[u8]) {
        let connection = self.connections.entry((proxy, connection)).or_default();
        match (sender, connection.session) {
            (Sender::Client, None) => connection.has_asked = true,
            (Sender::Server, None) if connection.has_asked => {
                connection.session = ConnectResponse::decode(bytes).ok().map(|response| response.session_id);
            }
            (Sender::Client, Some(session)) => connection.request(session, at, bytes),
            (Sender::Server, Some(session)) => self.done.extend(connection.reply(session, at, bytes)),
            (Sender::Server, None) => {}
        }
    }

    /// The events and the answered requests since the last call.
    pub fn take(&mut self) -> Vec<Message> {
        let mut done = std::mem::take(&mut self.done);
        done.sort_by_key(Message::at);
        done
    }

    /// The sessions that have had a connection.
    #[must_use]
    pub fn sessions(&self) -> std::collections::BTreeSet<i64> {
        self.connections.values().filter_map(|connection| connection.session).collect()
    }

    /// The requests that have no answer yet.
    #[must_use]
    pub fn pending(&self) -> Vec<Message> {
        let pending = self.connections.values().flat_map(|connection| connection.pending.values());
        pending.cloned().map(Message::Exchange).collect()
    }
}

impl Connection {
    fn request(&mut self, session: i64, sent: Moment, bytes: &[u8]) {
        let Ok(header) = RequestHeader::decode(bytes) else { return };
        if header.xid == xid::PING {
            return;
        }
        let body = bytes.get(RequestHeader::LEN..).unwrap_or_default();
        let Ok(request) = Request::decode(header.op, body) else { return };
        let what = What::of(&request);
        let exchange =
            Exchange { session, sent, what, answered: None, sent_bytes: bytes.len(), answered_bytes: 0 };
        self.pending.insert(header.xid, exchange);
    }

    fn reply(&mut self, session: i64, at: Moment, bytes: &[u8]) -> Option<Message> {
        let header = ReplyHeader::decode(bytes).ok()?;
        if header.xid == xid::EVENT {
            let WatchEvent { kind, path, .. } = WatchEvent::decode(bytes).ok()?;
            return Some(Message::Event(Event { session, at, kind, path, bytes: bytes.len() }));
        }
        let mut exchange = self.pending.remove(&header.xid)?;
        exchange.answered = Some((at, self::error(header, exchange.what.name, bytes)));
        exchange.answered_bytes = bytes.len();
        Some(Message::Exchange(exchange))
    }
}

/// The error of an answer. A refused group has a successful header, and the error in the part that was refused.
fn error(header: ReplyHeader, name: &str, bytes: &[u8]) -> ErrorCode {
    use zk_proto::Reply;
    if name != "multi" || header.error != ErrorCode::OK {
        return header.error;
    }
    let frame = bytes.to_vec().into();
    let Ok(Reply::Multi(parts)) = Reply::decode(OpCode::MULTI, &frame) else { return header.error };
    let errors = parts.into_iter().filter_map(|(_, result)| result.err());
    let mut meaningful =
        errors.filter(|error| *error != ErrorCode::OK && *error != ErrorCode::RUNTIME_INCONSISTENCY);
    meaningful.next().unwrap_or(header.error)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use zk_proto::{CreateMode, Reply};

    use super::*;

    fn ok(xid: i32) -> ReplyHeader {
        ReplyHeader { xid, zxid: 1, error: ErrorCode::OK }
    }

    /// A frame without its length.
    fn cut(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        write(&mut out);
        out[4..].to_vec()
    }

    #[derive(Default)]
    struct Talk(Decoder, i64);

    impl Talk {
        fn connect(session_id: i64) -> Self {
            let mut talk = Self::default();
            talk.pass(Sender::Client, b"\0\0\0\0");
            let response = ConnectResponse { session_id, ..ConnectResponse::refusal(true) };
            talk.pass(Sender::Server, &cut(|out| response.encode(out)));
            talk
        }

        fn pass(&mut self, sender: Sender, bytes: &[u8]) {
            self.1 += 1;
            self.0.passed(0, 0, sender, Moment(self.1), bytes);
        }

        fn ask(&mut self, xid: i32, request: &Request<'_>) {
            self.pass(Sender::Client, &cut(|out| request.encode(xid, out)));
        }

        fn answer(&mut self, header: ReplyHeader, reply: &Reply) {
            self.pass(Sender::Server, &cut(|out| reply.encode(header, out)));
        }
    }

    fn delete(path: &str) -> Request<'_> {
        Request::Delete { path: path.into(), version: 3 }
    }

    #[test]
    fn answers_find_their_requests_and_events_stand_alone() {
        let mut talk = Talk::connect(0x17);
        talk.ask(1, &Request::GetData { path: "/a".into(), watch: true });
        talk.ask(xid::PING, &Request::Ping);
        talk.ask(2, &delete("/b"));
        talk.answer(ok(xid::PING), &Reply::Empty);
        talk.answer(ReplyHeader { error: ErrorCode::NO_NODE, ..ok(1) }, &Reply::Empty);
        let event = WatchEvent { kind: EventKind::DELETED, state: 3, path: "/a".to_owned(), zxid: 1 };
        talk.pass(Sender::Server, &cut(|out| event.encode(out)));
        let messages = talk.0.take();
        let [Message::Exchange(get), Message::Event(event)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((get.what.name, get.what.path.as_str(), get.what.detail.as_str()), ("get", "/a", "watch"));
        assert_eq!(
            (get.session, get.sent, get.answered),
            (0x17, Moment(3), Some((Moment(7), ErrorCode::NO_NODE)))
        );
        assert_eq!((event.at, event.path.as_str()), (Moment(8), "/a"));
        let pending = talk.0.pending();
        let [Message::Exchange(delete)] = &pending[..] else { panic!("{pending:?}") };
        assert_eq!((delete.what.name, delete.what.detail.as_str(), delete.answered), ("delete", "v3", None));
        talk.answer(ok(2), &Reply::Empty);
        assert_eq!(talk.0.take().len(), 1);
        assert!(talk.0.pending().is_empty());
    }

    #[test]
    fn a_group_has_parts_and_the_error_of_the_part_that_was_refused() {
        let mut talk = Talk::connect(1);
        let create = Create::new("/l", &b"x"[..], &[], CreateMode::Ephemeral);
        talk.ask(1, &Request::Multi(vec![delete("/a"), Request::Create(create)]));
        let parts = vec![(OpCode::ERROR, Err(ErrorCode::OK)), (OpCode::ERROR, Err(ErrorCode::NODE_EXISTS))];
        talk.answer(ok(1), &Reply::Multi(parts));
        let messages = talk.0.take();
        let [Message::Exchange(multi)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(multi.answered.unwrap().1, ErrorCode::NODE_EXISTS);
        assert_eq!(multi.what.parts[1].detail, "ephemeral");
        assert!(multi.what.is_write && !multi.what.is_upkeep());
    }

    #[test]
    fn heartbeats_and_probes_are_upkeep() {
        let mut talk = Talk::connect(1);
        talk.ask(1, &Request::Delete { path: "/zk-session-barrier/never-created".into(), version: -1 });
        talk.ask(2, &Request::Exists { path: "/".into(), watch: false });
        talk.ask(3, &Request::Exists { path: "/x".into(), watch: false });
        let is_upkeep = |message| matches!(message, Message::Exchange(exchange) if exchange.what.is_upkeep());
        let upkeep: Vec<bool> = talk.0.pending().into_iter().map(is_upkeep).collect();
        assert_eq!(upkeep, [true, true, false]);
    }

    #[test]
    fn garbage_is_ignored() {
        let mut talk = Talk::connect(1);
        for garbage in [&b""[..], b"\0", b"\0\0\0\x01\0\0\0\x02\0\0\0\x09/"] {
            talk.pass(Sender::Client, garbage);
            talk.pass(Sender::Server, garbage);
        }
        assert!(talk.0.take().is_empty() && talk.0.pending().is_empty());
    }
}
