//! Reads the recorded traffic of other clients and real servers: `tests/recorded/VERSION.PROGRAM.txt`, which the example
//! `record` of zk-testkit writes. Its programs name the steps.

use std::collections::HashMap;
use std::path::Path;

use bytes::Bytes;
use zk_proto::{
    ConnectRequest, ConnectResponse, OpCode, Reply, ReplyHeader, Request, RequestHeader, WatchEvent, xid,
};

pub(crate) struct Recording {
    /// Of the server, such as `3.8.0`.
    pub(crate) version: String,
    pub(crate) program: String,
    pub(crate) steps: Vec<Step>,
}

pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) frames: Vec<Frame>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

pub(crate) struct Frame {
    pub(crate) connection: usize,
    pub(crate) side: Side,
    /// With its length in front.
    pub(crate) bytes: Bytes,
    /// Of the request, or the one that is answered; `None` for handshakes and events.
    pub(crate) op: Option<OpCode>,
    is_handshake: bool,
}

#[derive(Debug)]
pub(crate) enum Message<'a> {
    Connect(ConnectRequest),
    Connected(ConnectResponse),
    Request(i32, Request<'a>),
    /// An error usually has no body.
    Reply(ReplyHeader, Option<Reply>),
    Event(WatchEvent),
}

/// A request and its reply.
pub(crate) struct Exchange<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) xid: i32,
    pub(crate) header: ReplyHeader,
    pub(crate) reply: Option<Reply>,
}

/// All recordings.
pub(crate) fn recordings() -> Vec<Recording> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut recordings: Vec<Recording> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let (version, program) = name.rsplit_once('.').unwrap();
            let steps = steps(&std::fs::read_to_string(&path).unwrap());
            Recording { version: version.to_owned(), program: program.to_owned(), steps }
        })
        .collect();
    recordings.sort_by_key(|recording| (recording.version.clone(), recording.program.clone()));
    recordings
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut greeted = Vec::new();
    let mut asked = HashMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            steps.push(Step { name: name.to_owned(), frames: Vec::new() });
            continue;
        }
        let [connection, side, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let connection = connection.parse().unwrap();
        let side = if side == ">" { Side::Client } else { Side::Server };
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Bytes = (0..hex.len()).step_by(2).map(byte).collect();
        let is_handshake = !greeted.contains(&(connection, side));
        let op = if is_handshake {
            greeted.push((connection, side));
            None
        } else if side == Side::Client {
            let header = RequestHeader::decode(&bytes[4..]).unwrap();
            asked.insert((connection, header.xid), header.op);
            Some(header.op)
        } else {
            let number = ReplyHeader::decode(&bytes[4..]).unwrap().xid;
            (number != xid::EVENT).then(|| asked[&(connection, number)])
        };
        steps.last_mut().unwrap().frames.push(Frame { connection, side, bytes, op, is_handshake });
    }
    steps
}

impl Frame {
    pub(crate) fn message(&self) -> Message<'_> {
        let frame = self.bytes.slice(4..);
        match (self.side, self.op) {
            (Side::Client, None) => Message::Connect(ConnectRequest::decode(&frame).unwrap()),
            (Side::Client, Some(op)) => {
                let xid = RequestHeader::decode(&frame).unwrap().xid;
                let body = &self.bytes[4 + RequestHeader::LEN..];
                Message::Request(xid, Request::decode(op, body).unwrap())
            }
            (Side::Server, None) if self.is_handshake => {
                Message::Connected(ConnectResponse::decode(&frame).unwrap())
            }
            (Side::Server, None) => Message::Event(WatchEvent::decode(&frame).unwrap()),
            (Side::Server, Some(op)) => {
                let header = ReplyHeader::decode(&frame).unwrap();
                let has_body = header.error.0 == 0 || frame.len() > ReplyHeader::LEN;
                Message::Reply(header, has_body.then(|| Reply::decode(op, &frame).unwrap()))
            }
        }
    }
}

impl Recording {
    /// Whether its server is of that version or a later one.
    pub(crate) fn is_from(&self, version: [u32; 2]) -> bool {
        let [major, minor, ..] =
            self.version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>()[..]
        else {
            panic!("no version: {}", self.version)
        };
        [major, minor] >= version
    }

    fn messages(&self, step: &str) -> impl Iterator<Item = (usize, Message<'_>)> {
        let step = self.steps.iter().find(|known| known.name == step);
        let step = step.unwrap_or_else(|| panic!("no such step in {} {}", self.version, self.program));
        step.frames.iter().map(|frame| (frame.connection, frame.message()))
    }

    /// The requests of a step with their replies. Pings, which depend on timing, and the ends of sessions are left out,
    /// except in the steps of that name.
    pub(crate) fn exchanges(&self, step: &str) -> Vec<Exchange<'_>> {
        let mut exchanges = Vec::new();
        let mut replies: Vec<_> = self
            .messages(step)
            .filter_map(|(connection, message)| match message {
                Message::Reply(header, reply) => Some((connection, header, reply)),
                _ => None,
            })
            .collect();
        for (connection, message) in self.messages(step) {
            let Message::Request(xid, request) = message else { continue };
            let elsewhere = match request {
                Request::Ping => step != "ping",
                Request::CloseSession => step != "closeSession",
                _ => false,
            };
            if elsewhere {
                continue;
            }
            let answer = replies.iter().position(|(at, header, _)| (*at, header.xid) == (connection, xid));
            let (_, header, reply) = replies.remove(answer.unwrap_or_else(|| panic!("{step}: {request:?}")));
            exchanges.push(Exchange { request, xid, header, reply });
        }
        exchanges
    }

    /// As [`exchanges`](Self::exchanges); panics unless there are `N`.
    #[track_caller]
    pub(crate) fn exchanged<const N: usize>(&self, step: &str) -> [Exchange<'_>; N] {
        let exchanges = self.exchanges(step);
        let found = exchanges.len();
        exchanges.try_into().unwrap_or_else(|_| panic!("{step} has {found} requests"))
    }

    pub(crate) fn events(&self, step: &str) -> Vec<WatchEvent> {
        let event = |(_, message)| if let Message::Event(event) = message { Some(event) } else { None };
        self.messages(step).filter_map(event).collect()
    }

    /// The first handshake of the step that the server has answered.
    pub(crate) fn handshake(&self, step: &str) -> (ConnectRequest, ConnectResponse) {
        let mut asked = HashMap::new();
        for (connection, message) in self.messages(step) {
            match message {
                Message::Connect(request) => _ = asked.insert(connection, request),
                Message::Connected(response) => return (asked.remove(&connection).unwrap(), response),
                _ => {}
            }
        }
        panic!("{step} has no handshake");
    }
}
