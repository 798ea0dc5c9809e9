//! A client that hides nothing: it sends what it is told to, with or without sense, and
//! gives back what comes, frame by frame.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use zk_proto::{
    AclEntry, ConnectRequest, ConnectResponse, Create, ErrorCode, OpCode, PASSWORD_LEN, Reply, ReplyHeader,
    Request, RequestHeader, WatchEvent, permission, xid,
};

/// For an answer. Long, as a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(5);
/// The length in front of a frame.
pub(crate) const PREFIX: usize = 4;
/// The length of the answer to a handshake.
const CONNECT_RESPONSE_LEN: usize = 37;

pub(crate) const OK: ErrorCode = ErrorCode::OK;
/// Everyone may do everything.
pub(crate) const OPEN: AclEntry<'static> = AclEntry::new(permission::ALL, "world", "anyone");
/// Of a client that has no session yet.
pub(crate) const NO_PASSWORD: &[u8] = &[0; PASSWORD_LEN];

pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout_ms: i32,
    /// The server answers reads alone.
    pub(crate) read_only: bool,
    xid: i32,
}

/// A frame from a server, without its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: ReplyHeader,
    bytes: Bytes,
}

impl Frame {
    /// What follows the header.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[ReplyHeader::LEN..]
    }

    /// As the reply to a successful request of that kind.
    pub(crate) fn reply(&self, op: OpCode) -> Reply {
        let reply = Reply::decode(op, &self.bytes).unwrap();
        self.is_all_of(|out| reply.encode(self.header, out));
        reply
    }

    pub(crate) fn event(&self) -> WatchEvent {
        let event = WatchEvent::decode(&self.bytes).unwrap();
        self.is_all_of(|out| event.encode(out));
        event
    }

    /// No byte has been overlooked, and each is what the codec writes.
    fn is_all_of(&self, encode: impl FnOnce(&mut BytesMut)) {
        let mut frame = BytesMut::new();
        encode(&mut frame);
        assert_eq!(self.bytes, frame[PREFIX..]);
    }
}

impl Client {
    /// A new session, or an old one by its id and password. A session of 0 in the
    /// client that comes back: the server knows it no more.
    pub(crate) fn connect(
        address: SocketAddr,
        timeout_ms: i32,
        session: i64,
        password: &[u8],
        seen: i64,
    ) -> io::Result<Self> {
        Self::open(address, &hello(timeout_ms, session, password, seen, Some(false)))
    }

    /// As [`connect`](Self::connect), also with a server that answers reads alone.
    pub(crate) fn to_read(address: SocketAddr, session: i64, password: &[u8]) -> io::Result<Self> {
        Self::open(address, &hello(10_000, session, password, 0, Some(true)))
    }

    fn open(address: SocketAddr, hello: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(hello)?;
        let mut client =
            Self { stream, session: 0, password: Vec::new(), timeout_ms: 0, read_only: false, xid: 0 };
        let answer = client.receive()?;
        assert_eq!(answer.len(), CONNECT_RESPONSE_LEN, "{answer:?}");
        let response = ConnectResponse::decode(&answer).unwrap();
        client.timeout_ms = response.timeout_ms;
        client.session = response.session_id;
        client.password = response.password;
        client.read_only = response.read_only == Some(true);
        Ok(client)
    }

    /// A new session of ten seconds.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let client = Self::connect(address, 10_000, 0, NO_PASSWORD, 0)?;
        assert_ne!(client.session, 0);
        Ok(client)
    }

    /// The error of a reply; events before it are dropped.
    pub(crate) fn do_it(&mut self, request: &Request<'_>) -> io::Result<ErrorCode> {
        Ok(self.reply(request)?.header.error)
    }

    /// The reply; events before it are dropped.
    pub(crate) fn reply(&mut self, request: &Request<'_>) -> io::Result<Frame> {
        let xid = self.ask(request)?;
        Ok(self.frames_to(xid)?.pop().expect("the reply"))
    }

    pub(crate) fn create(&mut self, path: &str, flags: i32) -> io::Result<ErrorCode> {
        self.do_it(&create(path, flags))
    }

    pub(crate) fn exists(&mut self, path: &str) -> io::Result<bool> {
        Ok(self.do_it(&Request::Exists { path: path.into(), watch: false })? == OK)
    }

    pub(crate) fn set(&mut self, path: &str, data: &str) -> io::Result<ErrorCode> {
        self.do_it(&set(path, data.as_bytes()))
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Option<Bytes>> {
        let frame = self.reply(&Request::GetData { path: path.into(), watch: false })?;
        Ok(match (frame.header.error == OK).then(|| frame.reply(OpCode::GET_DATA)) {
            Some(Reply::Data(data, _)) => data,
            _ => None,
        })
    }

    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.do_it(&Request::Ping).map(|_| ())
    }

    /// Adds the events that have come.
    pub(crate) fn ping_for_events(&mut self, events: &mut Vec<Frame>) -> io::Result<()> {
        let xid = self.ask(&Request::Ping)?;
        events.extend(self.frames_to(xid)?.into_iter().filter(|frame| frame.header.xid == xid::EVENT));
        Ok(())
    }

    /// Comes back to the session, at any server.
    pub(crate) fn back_at(&self, address: SocketAddr, seen: i64) -> io::Result<Self> {
        Self::connect(address, self.timeout_ms, self.session, &self.password, seen)
    }

    /// How long an answer may take.
    pub(crate) fn patience(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// Whether a frame comes within a moment.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.patience(Duration::from_millis(150));
        let read = self.stream.peek(&mut [0]);
        self.patience(PATIENCE);
        read.is_err_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    /// Sends a request and doesn't wait.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> io::Result<i32> {
        let xid = match request.op() {
            OpCode::PING => xid::PING,
            OpCode::AUTH => xid::AUTH,
            OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => xid::SET_WATCHES,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        let mut frame = BytesMut::new();
        request.encode(xid, &mut frame);
        self.stream.write_all(&frame)?;
        Ok(xid)
    }

    /// All frames up to the reply to that request.
    pub(crate) fn frames_to(&mut self, xid: i32) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame()?;
            let last = frame.header.xid == xid;
            frames.push(frame);
            if last {
                return Ok(frames);
            }
        }
    }

    pub(crate) fn frame(&mut self) -> io::Result<Frame> {
        let bytes = self.receive()?;
        Ok(Frame { header: ReplyHeader::decode(&bytes).unwrap(), bytes })
    }

    /// The server closes the connection, and says nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// The bare connection.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn receive(&mut self) -> io::Result<Bytes> {
        let mut length = [0; PREFIX];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }
}

/// What a server says to a four-letter word.
pub(crate) fn word(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// How many frames a server has received.
pub(crate) fn received(address: SocketAddr) -> io::Result<usize> {
    let answer = word(address, "mntr")?;
    let line = answer.lines().find_map(|line| line.strip_prefix("zk_packets_received\t"));
    line.and_then(|count| count.parse().ok()).ok_or_else(|| io::Error::other(answer))
}

/// The first frame of a client, its length in front.
pub(crate) fn hello(
    timeout_ms: i32,
    session_id: i64,
    password: &[u8],
    last_zxid: i64,
    read_only: Option<bool>,
) -> Bytes {
    let mut frame = BytesMut::new();
    let password = password.to_vec();
    ConnectRequest { last_zxid, timeout_ms, session_id, password, read_only }.encode(&mut frame);
    frame.freeze()
}

/// A `create` that everyone may do everything with.
pub(crate) fn create(path: &str, flags: i32) -> Request<'_> {
    let data = Some(b"data".into());
    Request::Create(Create {
        op: OpCode::CREATE,
        path: path.into(),
        data,
        acl: vec![OPEN],
        flags,
        ttl_ms: -1,
    })
}

pub(crate) fn set<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::SetData { path: path.into(), data: Some(data.into()), version: -1 }
}

/// What follows the header of a request.
pub(crate) fn body_of(request: &Request<'_>) -> Vec<u8> {
    let mut frame = BytesMut::new();
    request.encode(0, &mut frame);
    frame[PREFIX + RequestHeader::LEN..].to_vec()
}
