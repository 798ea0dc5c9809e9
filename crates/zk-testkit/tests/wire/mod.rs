//! A client that hides nothing: it writes requests field by field and gives back what
//! comes, frame by frame.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// For an answer. Long, as a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
    pub(crate) timeout_ms: i32,
    xid: i32,
}

/// A frame from a server, its header taken off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

pub(crate) const EVENT_XID: i32 = -1;
pub(crate) const PING_XID: i32 = -2;
pub(crate) const AUTH_XID: i32 = -4;
pub(crate) const SET_WATCHES_XID: i32 = -8;

/// Fields of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Body(pub(crate) Vec<u8>);

impl Body {
    pub(crate) fn bool(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn buffer(self, value: Option<&[u8]>) -> Self {
        let Some(value) = value else { return self.int(-1) };
        let mut body = self.int(i32::try_from(value.len()).unwrap());
        body.0.extend(value);
        body
    }

    pub(crate) fn string(self, value: &str) -> Self {
        self.buffer(Some(value.as_bytes()))
    }

    pub(crate) fn strings(self, values: &[String]) -> Self {
        let body = self.int(i32::try_from(values.len()).unwrap());
        values.iter().fold(body, |body, value| body.string(value))
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
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, session: 0, password: Vec::new(), timeout_ms: 0, xid: 0 };
        let hello = Body::default().int(0).long(seen).int(timeout_ms).long(session).buffer(Some(password));
        client.send(&hello.bool(false).0)?;
        let answer = client.receive()?;
        let mut fields = Fields(&answer);
        let _version = fields.int();
        client.timeout_ms = fields.int();
        client.session = fields.long();
        client.password = fields.buffer().unwrap_or_default();
        let _read_only = fields.bool();
        assert!(fields.0.is_empty(), "more than a handshake: {answer:?}");
        Ok(client)
    }

    /// A new session of ten seconds.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let client = Self::connect(address, 10_000, 0, &[0; 16], 0)?;
        assert_ne!(client.session, 0);
        Ok(client)
    }

    /// The error of a reply; events before it are dropped.
    pub(crate) fn do_it(&mut self, code: i32, body: &Body) -> io::Result<i32> {
        Ok(self.reply(code, body)?.error)
    }

    /// The reply; events before it are dropped.
    pub(crate) fn reply(&mut self, code: i32, body: &Body) -> io::Result<Frame> {
        let xid = self.ask(code, body)?;
        Ok(self.frames_to(xid)?.pop().expect("the reply"))
    }

    pub(crate) fn create(&mut self, path: &str, flags: i32) -> io::Result<i32> {
        self.do_it(1, &create(path, flags))
    }

    pub(crate) fn exists(&mut self, path: &str) -> io::Result<bool> {
        Ok(self.do_it(3, &Body::default().string(path).bool(false))? == 0)
    }

    pub(crate) fn set(&mut self, path: &str, data: &str) -> io::Result<i32> {
        self.do_it(5, &Body::default().string(path).string(data).int(-1))
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let reply = self.reply(4, &Body::default().string(path).bool(false))?;
        Ok((reply.error == 0).then(|| Fields(&reply.body).buffer()).flatten())
    }

    pub(crate) fn ping(&mut self) -> io::Result<()> {
        self.do_it(11, &Body::default()).map(|_| ())
    }

    /// Adds the events that have come.
    pub(crate) fn ping_for_events(&mut self, events: &mut Vec<Frame>) -> io::Result<()> {
        let xid = self.ask(11, &Body::default())?;
        events.extend(self.frames_to(xid)?.into_iter().filter(|frame| frame.xid == EVENT_XID));
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
    pub(crate) fn ask(&mut self, code: i32, body: &Body) -> io::Result<i32> {
        let xid = match code {
            11 => PING_XID,
            100 => AUTH_XID,
            101 | 105 => SET_WATCHES_XID,
            _ => {
                self.xid += 1;
                self.xid
            }
        };
        let mut frame = xid.to_be_bytes().to_vec();
        frame.extend(code.to_be_bytes());
        frame.extend(&body.0);
        self.send(&frame)?;
        Ok(xid)
    }

    /// All frames up to the reply to that request.
    pub(crate) fn frames_to(&mut self, xid: i32) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        loop {
            let frame = self.frame()?;
            let last = frame.xid == xid;
            frames.push(frame);
            if last {
                return Ok(frames);
            }
        }
    }

    pub(crate) fn frame(&mut self) -> io::Result<Frame> {
        let bytes = self.receive()?;
        let mut fields = Fields(&bytes);
        let (xid, zxid, error) = (fields.int(), fields.long(), fields.int());
        Ok(Frame { xid, zxid, error, body: fields.0.to_vec() })
    }

    /// The server closes the connection, and says nothing more.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
            || self.stream.take_error().is_ok_and(|error| error.is_some())
            || self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
    }

    /// The bare connection.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut bytes = u32::try_from(frame.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(frame);
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
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

/// The body of a `create` that everyone may do everything with.
pub(crate) fn create(path: &str, flags: i32) -> Body {
    let acl = Body::default().string(path).string("data").int(1).int(31);
    acl.string("world").string("anyone").int(flags)
}

/// Reads a frame's fields; a frame that is too short fails the test.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N);
        self.0 = rest;
        taken.try_into().unwrap()
    }

    pub(crate) fn bool(&mut self) -> bool {
        self.array::<1>() != [0]
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.array())
    }

    pub(crate) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.array())
    }

    pub(crate) fn buffer(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.int()).ok()?;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(taken.to_vec())
    }

    pub(crate) fn string(&mut self) -> String {
        let bytes = self.buffer().unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_else(|error| format!("{:x?}", error.as_bytes()))
    }
}
