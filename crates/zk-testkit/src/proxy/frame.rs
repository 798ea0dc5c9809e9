//! ZooKeeper's framing, as far as a proxy must understand it: a length, then,
//! in requests after the first, a number (xid) and an operation.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// No frame of a sane client or server is longer. Longer 'lengths' are the first
/// bytes of something else: text (a four-letter word, the answer to one) or TLS.
const LONGEST: usize = 64 << 20;

/// A request that a client can make. Pings, authentication and the setting again
/// of watches after a reconnect are the client library's own and not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Op {
    Create,
    Delete,
    Exists,
    GetData,
    SetData,
    GetAcl,
    SetAcl,
    GetChildren,
    Sync,
    Check,
    Multi,
    Reconfig,
    RemoveWatches,
    AddWatch,
    CloseSession,
}

impl Op {
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        // The numbers of ZooDefs.OpCode; several are variants of one operation.
        Some(match code {
            1 | 15 | 19 | 21 => Self::Create,
            2 | 20 => Self::Delete,
            3 => Self::Exists,
            4 => Self::GetData,
            5 => Self::SetData,
            6 => Self::GetAcl,
            7 => Self::SetAcl,
            8 | 12 => Self::GetChildren,
            9 => Self::Sync,
            13 => Self::Check,
            14 => Self::Multi,
            16 => Self::Reconfig,
            17 | 18 => Self::RemoveWatches,
            106 => Self::AddWatch,
            -11 => Self::CloseSession,
            _ => return None,
        })
    }

    /// Whether it changes znodes when it succeeds.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Delete | Self::SetData | Self::SetAcl | Self::Multi)
    }

    fn starts_with_path(self) -> bool {
        !matches!(self, Self::Multi | Self::Reconfig | Self::CloseSession)
    }
}

/// What a request's frame says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) xid: i32,
    pub(crate) op: Op,
    pub(crate) path: Option<String>,
}

impl Request {
    /// `None` for what the client library sends of its own accord, and for what
    /// makes no sense.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let xid = int_at(frame, 4)?;
        let op = Op::from_code(int_at(frame, 8)?)?;
        Some(Self { xid, op, path: op.starts_with_path().then(|| path_in(frame)).flatten() })
    }
}

/// The number of the request that a reply's frame answers; negative for what
/// answers none (-1 a watch's event, -2 a ping).
pub(crate) fn reply_xid(frame: &[u8]) -> Option<i32> {
    int_at(frame, 4)
}

fn path_in(frame: &[u8]) -> Option<String> {
    let length = usize::try_from(int_at(frame, 12)?).ok()?;
    let path = frame.get(16..16_usize.checked_add(length)?)?;
    Some(String::from_utf8_lossy(path).into_owned())
}

fn int_at(frame: &[u8], at: usize) -> Option<i32> {
    let bytes = frame.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

/// A piece of what one side sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole frame, its length in front.
    Frame(Vec<u8>),
    /// Bytes that are no frame.
    Raw(Vec<u8>),
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(bytes) | Self::Raw(bytes) => bytes,
        }
    }
}

/// Cuts a stream into frames; passes what is not framed on as it comes.
pub(crate) struct Pieces<R> {
    from: R,
    pending: Vec<u8>,
    raw: bool,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    /// `framed`: whether to look for frames at all.
    pub(crate) fn new(from: R, framed: bool) -> Self {
        Self { from, pending: Vec::new(), raw: !framed }
    }

    /// The next piece, `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Piece>> {
        loop {
            if self.raw && !self.pending.is_empty() {
                return Ok(Some(Piece::Raw(std::mem::take(&mut self.pending))));
            }
            if !self.raw {
                match self.frame_length() {
                    Some(Ok(whole)) if self.pending.len() >= whole => {
                        let rest = self.pending.split_off(whole);
                        let frame = std::mem::replace(&mut self.pending, rest);
                        return Ok(Some(Piece::Frame(frame)));
                    }
                    Some(Err(NotAFrame)) => {
                        self.raw = true;
                        continue;
                    }
                    _ => {}
                }
            }
            if self.from.read_buf(&mut self.pending).await? == 0 {
                if self.pending.is_empty() {
                    return Ok(None);
                }
                // The end in the middle of a frame: pass on what there is.
                self.raw = true;
            }
        }
    }

    /// The length of the next frame, its prefix included, once known.
    fn frame_length(&self) -> Option<Result<usize, NotAFrame>> {
        let length = usize::try_from(int_at(&self.pending, 0)?).ok();
        Some(match length {
            Some(length) if length <= LONGEST => Ok(4 + length),
            _ => Err(NotAFrame),
        })
    }
}

struct NotAFrame;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        frame
    }

    fn request(xid: i32, code: i32, path: &str) -> Vec<u8> {
        let mut body = xid.to_be_bytes().to_vec();
        body.extend(code.to_be_bytes());
        body.extend(u32::try_from(path.len()).unwrap().to_be_bytes());
        body.extend(path.as_bytes());
        frame(&body)
    }

    #[test]
    fn reads_number_operation_and_path() {
        let expected = Request { xid: 7, op: Op::Create, path: Some("/a/b".to_owned()) };
        assert_eq!(Request::parse(&request(7, 15, "/a/b")), Some(expected));
    }

    #[test]
    fn a_ping_is_no_request_of_the_application() {
        let mut ping = (-2_i32).to_be_bytes().to_vec();
        ping.extend(11_i32.to_be_bytes());
        assert_eq!(Request::parse(&frame(&ping)), None);
    }

    #[test]
    fn a_path_that_runs_past_the_frame_is_none() {
        let mut cut = request(7, 2, "/a/b");
        cut.truncate(18);
        assert_eq!(Request::parse(&cut).unwrap().path, None);
    }

    #[tokio::test]
    async fn cuts_frames_and_passes_the_rest_on() {
        let mut sent = frame(b"one");
        sent.extend(frame(b""));
        sent.extend(&frame(b"three")[..6]);
        let mut pieces = Pieces::new(&sent[..], true);
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Frame(frame(b"one"))));
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Frame(frame(b""))));
        let rest = frame(b"three")[..6].to_vec();
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Raw(rest)));
        assert_eq!(pieces.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_four_letter_word_is_raw() {
        let mut pieces = Pieces::new(&b"srvr"[..], true);
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Raw(b"srvr".to_vec())));
        assert_eq!(pieces.next().await.unwrap(), None);
    }
}
