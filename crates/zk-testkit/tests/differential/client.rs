//! A client that hides nothing: it writes requests field by field and gives back what
//! comes, frame by frame.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// For an answer. Long, as a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);

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
        String::from_utf8(self.buffer().unwrap_or_default()).unwrap()
    }
}
