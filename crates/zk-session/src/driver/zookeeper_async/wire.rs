//! The little of ZooKeeper's wire format that the link has to understand.
//!
//! The client crate encodes the requests and decodes the replies. The link
//! between it and the server reads just enough to make the handshake, to
//! match replies to requests, to follow watches, and to refuse a reply that
//! would make the client panic or allocate without bound.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest reply that is let through to the client. A server bounds what
/// it receives, not what it sends: a list of children may be longer than any
/// request. Beyond this the peer is taken for something that is no ZooKeeper.
pub(super) const MAX_REPLY: usize = 16 << 20;

/// The largest frame taken from the client: the payload bound of the driver
/// and room for a path and the header.
pub(super) const MAX_REQUEST: usize = 2 << 20;

/// The largest reply to a connect request: 37 bytes by the protocol, with
/// room for a longer password.
pub(super) const MAX_HANDSHAKE: usize = 1024;

/// Length of an encoded `Stat`.
pub(super) const STAT_LEN: usize = 68;

/// Operation codes that the driver makes the client send.
pub(super) mod op {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const CLOSE: i32 = -11;
}

/// Exchange ids with a fixed meaning.
pub(super) mod xid {
    pub(crate) const EVENT: i32 = -1;
    pub(crate) const PING: i32 = -2;
    pub(crate) const AUTH: i32 = -4;
    pub(crate) const SET_WATCHES: i32 = -8;
}

/// Server error codes that the link itself acts on.
pub(super) mod code {
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
}

/// Bytes that are not what the protocol says they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a ZooKeeper message: {0}")]
pub(super) struct Malformed(pub(super) &'static str);

impl From<Malformed> for io::Error {
    fn from(error: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// One length-prefixed message, the prefix included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// A frame around what `write` appends.
    pub(super) fn build(write: impl FnOnce(&mut Vec<u8>)) -> Frame {
        let mut bytes = vec![0; 4];
        write(&mut bytes);
        let len = i32::try_from(bytes.len() - 4).unwrap_or(i32::MAX);
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        Frame(bytes)
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.0[4..]
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Overwrite the exchange id (the first field of requests and replies).
    pub(super) fn set_xid(&mut self, xid: i32) {
        if let Some(field) = self.0.get_mut(4..8) {
            field.copy_from_slice(&xid.to_be_bytes());
        }
    }
}

/// Cuts a byte stream into frames, none longer than the limit.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    io: R,
    buf: Vec<u8>,
    /// How much of `buf` has been cut off already.
    cut: usize,
    limit: usize,
}

/// Room for what is read at one time, so that many small frames come with one read.
const READ: usize = 8192;

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(io: R, limit: usize) -> FrameReader<R> {
        FrameReader { io, buf: Vec::new(), cut: 0, limit }
    }

    /// What the frames are cut from.
    pub(super) fn source(&self) -> &R {
        &self.io
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The next frame; `None` at the end of the stream.
    ///
    /// The buffer grows with the bytes that really arrive, never by what a
    /// length field claims.
    ///
    /// # Errors
    /// Of the stream, and `InvalidData` for a length that is negative or
    /// beyond the limit.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read is kept for the next call.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            // The rest of one frame at most, and mostly nothing.
            self.buf.drain(..self.cut);
            self.cut = 0;
            if self.buf.capacity() - self.buf.len() < READ {
                self.buf.reserve(self.buf.len().clamp(READ, 1 << 20));
            }
            if self.io.read_buf(&mut self.buf).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Whether everything that was read has been given away.
    pub(super) fn is_drained(&self) -> bool {
        self.cut == self.buf.len()
    }

    /// The next frame, if it has been read already.
    ///
    /// # Errors
    /// As `next`.
    pub(super) fn buffered(&mut self) -> io::Result<Option<Frame>> {
        Ok(self.cut()?)
    }

    fn cut(&mut self) -> Result<Option<Frame>, Malformed> {
        let bytes = &self.buf[self.cut..];
        let Some(prefix) = bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| Malformed("a negative length"))?;
        if len > self.limit {
            return Err(Malformed("a message longer than any that is sent here"));
        }
        let end = len + 4;
        let Some(frame) = bytes.get(..end) else {
            return Ok(None);
        };
        if self.cut == 0 && end > 8 * READ {
            // Long ones are not copied, and their memory goes with them.
            let rest = self.buf.split_off(end);
            return Ok(Some(Frame(std::mem::replace(&mut self.buf, rest))));
        }
        let frame = Frame(frame.to_vec());
        self.cut += end;
        Ok(Some(frame))
    }
}

/// Reads fields from the front of a payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed("it ends within a field"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Malformed("it ends within a field"))?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        self.array::<1>().map(|[byte]| byte != 0)
    }

    /// A byte string; a negative length means "none" and reads as empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.i32()?).unwrap_or(0);
        self.take(len)
    }

    pub(super) fn str(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a string that is not UTF-8"))
    }

    /// Skip a list of strings, checking each.
    pub(super) fn skip_strings(&mut self) -> Result<(), Malformed> {
        let count = self.i32()?;
        // Each element takes four bytes at least, so this also bounds what
        // the client allocates for the list before it reads the first.
        if usize::try_from(count).is_ok_and(|count| count > self.0.len() / 4) || count < 0 {
            return Err(Malformed("a list longer than its message"));
        }
        for _ in 0..count {
            self.str()?;
        }
        Ok(())
    }

    pub(super) fn skip_stat(&mut self) -> Result<(), Malformed> {
        self.take(STAT_LEN).map(drop)
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Nothing longer than a frame is ever written, far below the limit.
    let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The header of a reply or of a watch event.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyHeader {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) err: i32,
}

impl ReplyHeader {
    /// The header, and the fields behind it.
    pub(super) fn parse(payload: &[u8]) -> Result<(ReplyHeader, Fields<'_>), Malformed> {
        let mut fields = Fields(payload);
        let header = ReplyHeader { xid: fields.i32()?, zxid: fields.i64()?, err: fields.i32()? };
        Ok((header, fields))
    }
}

/// A connect request, from the client or to a server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ConnectRequest {
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: i32,
    pub(super) session_id: i64,
    pub(super) password: Vec<u8>,
}

impl ConnectRequest {
    pub(super) fn to_frame(&self) -> Frame {
        Frame::build(|out| {
            out.extend_from_slice(&0i32.to_be_bytes());
            out.extend_from_slice(&self.last_zxid.to_be_bytes());
            out.extend_from_slice(&self.timeout_ms.to_be_bytes());
            out.extend_from_slice(&self.session_id.to_be_bytes());
            put_bytes(out, &self.password);
            // Never a read-only server: it may lag behind without bound.
            out.push(0);
        })
    }

    pub(super) fn parse(payload: &[u8]) -> Result<ConnectRequest, Malformed> {
        let mut fields = Fields(payload);
        let _protocol = fields.i32()?;
        Ok(ConnectRequest {
            last_zxid: fields.i64()?,
            timeout_ms: fields.i32()?,
            session_id: fields.i64()?,
            password: fields.bytes()?.to_vec(),
        })
    }
}

/// What a server grants: the reply to a connect request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) timeout: Duration,
    pub(super) session_id: i64,
    pub(super) password: Vec<u8>,
}

impl Grant {
    pub(super) fn to_frame(&self) -> Frame {
        Frame::build(|out| {
            let timeout = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
            out.extend_from_slice(&0i32.to_be_bytes());
            out.extend_from_slice(&timeout.to_be_bytes());
            out.extend_from_slice(&self.session_id.to_be_bytes());
            put_bytes(out, &self.password);
            out.push(0);
        })
    }

    /// `None` when the server says that the session is over.
    pub(super) fn parse(payload: &[u8]) -> Result<Option<Grant>, Malformed> {
        let mut fields = Fields(payload);
        if fields.i32()? != 0 {
            return Err(Malformed("a handshake of an unknown protocol version"));
        }
        let timeout = fields.i32()?;
        let session_id = fields.i64()?;
        let password = fields.bytes()?.to_vec();
        // The last byte is absent from old servers.
        if fields.bool().unwrap_or(false) {
            return Err(Malformed("a read-only server, which was not asked for"));
        }
        match u64::try_from(timeout) {
            Ok(ms) if ms > 0 && session_id != 0 => {
                Ok(Some(Grant { timeout: Duration::from_millis(ms), session_id, password }))
            }
            _ => Ok(None),
        }
    }
}

/// The frame of an authentication request.
pub(super) fn auth_frame(scheme: &str, credentials: &[u8]) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&xid::AUTH.to_be_bytes());
        out.extend_from_slice(&op::AUTH.to_be_bytes());
        out.extend_from_slice(&0i32.to_be_bytes());
        put_bytes(out, scheme.as_bytes());
        put_bytes(out, credentials);
    })
}

/// A frame that is nothing but a header: a ping, or the end of the session.
pub(super) fn bare_frame(xid: i32, op: i32) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&xid.to_be_bytes());
        out.extend_from_slice(&op.to_be_bytes());
    })
}

/// The reply that the link gives to the client's own pings.
pub(super) fn pong_frame() -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&xid::PING.to_be_bytes());
        out.extend_from_slice(&0i64.to_be_bytes());
        out.extend_from_slice(&0i32.to_be_bytes());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_cut_wherever_the_bytes_break() {
        let one = bare_frame(7, op::DELETE);
        let two = auth_frame("digest", b"a:b");
        let mut bytes = one.as_bytes().to_vec();
        bytes.extend_from_slice(two.as_bytes());
        for chunk in 1..bytes.len() {
            let (near, mut far) = tokio::io::duplex(chunk);
            let sent = bytes.clone();
            let writer =
                tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut far, &sent).await });
            let mut reader = FrameReader::new(near, 1024);
            assert_eq!(reader.next().await.unwrap().as_ref(), Some(&one));
            assert_eq!(reader.next().await.unwrap().as_ref(), Some(&two));
            assert_eq!(reader.next().await.unwrap(), None);
            writer.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        for length in [-1, i32::MIN, 1025, i32::MAX] {
            let bytes = length.to_be_bytes();
            let mut reader = FrameReader::new(&bytes[..], 1024);
            let error = reader.next().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
            assert!(reader.buf.capacity() < 1 << 16);
        }
    }

    #[test]
    fn a_list_can_not_claim_more_elements_than_it_has_room_for() {
        let mut list = Vec::new();
        list.extend_from_slice(&2i32.to_be_bytes());
        put_bytes(&mut list, b"a");
        put_bytes(&mut list, b"b");
        assert_eq!(Fields(&list).skip_strings(), Ok(()));
        for count in [-1, 3, 1 << 30, i32::MAX] {
            list[..4].copy_from_slice(&i32::to_be_bytes(count));
            assert!(Fields(&list).skip_strings().is_err(), "{count}");
        }
        list[..4].copy_from_slice(&1i32.to_be_bytes());
        list[8] = 0xff;
        assert!(Fields(&list).skip_strings().is_err(), "not UTF-8");
    }

    #[test]
    fn handshakes_survive_a_round_trip_and_any_truncation() {
        let grant = Grant { timeout: Duration::from_secs(4), session_id: -5, password: vec![9; 16] };
        let frame = grant.to_frame();
        assert!(Grant::parse(frame.payload()) == Ok(Some(grant)));
        // All but the last byte, the read-only mark, which old servers omit.
        for end in 0..frame.payload().len() - 1 {
            assert!(Grant::parse(&frame.payload()[..end]).is_err(), "{end}");
        }
        let over = Grant { timeout: Duration::ZERO, session_id: 0, password: vec![0; 16] };
        assert!(Grant::parse(over.to_frame().payload()) == Ok(None));

        let request =
            ConnectRequest { last_zxid: 3, timeout_ms: 10_000, session_id: 77, password: vec![1; 16] };
        assert!(ConnectRequest::parse(request.to_frame().payload()) == Ok(request));
    }
}
