//! ZooKeeper's frames, as far as a proxy needs them: where they end, and their kinds.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use zk_proto::{OpCode, ReplyHeader, Request, RequestHeader, frame_length};

/// No frame of a client or server is longer. Longer 'lengths' are the first
/// bytes of something else: text (a four-letter word, the answer to one) or TLS.
const LONGEST: usize = 64 << 20;
/// The length in front of a frame.
pub(super) const PREFIX: usize = 4;

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
    /// Of one version, or of several by a group that writes nothing: a session sends such a group to
    /// see whether its server agrees with the quorum.
    Check,
    Multi,
    MultiRead,
    Reconfig,
    RemoveWatches,
    AddWatch,
    CloseSession,
}

impl Op {
    /// Several codes are variants of one operation.
    fn from_code(code: OpCode) -> Option<Self> {
        Some(match code {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => Self::Create,
            OpCode::DELETE | OpCode::DELETE_CONTAINER => Self::Delete,
            OpCode::EXISTS => Self::Exists,
            OpCode::GET_DATA => Self::GetData,
            OpCode::SET_DATA => Self::SetData,
            OpCode::GET_ACL => Self::GetAcl,
            OpCode::SET_ACL => Self::SetAcl,
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => Self::GetChildren,
            OpCode::SYNC => Self::Sync,
            OpCode::CHECK => Self::Check,
            OpCode::MULTI => Self::Multi,
            OpCode::MULTI_READ => Self::MultiRead,
            OpCode::RECONFIG => Self::Reconfig,
            OpCode::CHECK_WATCHES | OpCode::REMOVE_WATCHES => Self::RemoveWatches,
            OpCode::ADD_WATCH => Self::AddWatch,
            OpCode::CLOSE_SESSION => Self::CloseSession,
            _ => return None,
        })
    }

    /// Whether it changes znodes when it succeeds.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Delete | Self::SetData | Self::SetAcl | Self::Multi)
    }
}

/// The properties by which faults select requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) xid: i32,
    pub(crate) op: Op,
    pub(crate) path: Option<String>,
}

impl Asked {
    /// `None` for a kind that [`Op`] does not name. A request that can't be read has no path.
    pub(crate) fn new(header: RequestHeader, request: Option<&Request<'_>>) -> Option<Self> {
        let path = request.and_then(Request::path).map(str::to_owned);
        let op = Op::from_code(header.op)?;
        let only_checks = |parts: &[Request<'_>]| {
            !parts.is_empty() && parts.iter().all(|part| matches!(part, Request::Check { .. }))
        };
        let op = match request {
            Some(Request::Multi(parts)) if only_checks(parts) => Op::Check,
            _ => op,
        };
        Some(Self { xid: header.xid, op, path })
    }

    /// From a frame with its length in front.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let frame = frame.get(PREFIX..)?;
        let header = RequestHeader::decode(frame).ok()?;
        Self::new(header, Request::decode(header.op, &frame[RequestHeader::LEN..]).ok().as_ref())
    }
}

/// The number of the request that a reply's frame answers; negative for what
/// answers none (-1 a watch's event, -2 a ping).
pub(crate) fn reply_xid(frame: &[u8]) -> Option<i32> {
    Some(ReplyHeader::decode(frame.get(PREFIX..)?).ok()?.xid)
}

/// A piece of what one side sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole frame, its length in front.
    Frame(Bytes),
    /// Bytes that are no frame.
    Raw(Bytes),
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(bytes) | Self::Raw(bytes) => bytes,
        }
    }
}

/// Cuts a stream into frames; passes unframed bytes on unchanged.
pub(crate) struct Pieces<R> {
    from: R,
    pending: BytesMut,
    raw: bool,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    /// `framed`: whether to look for frames at all.
    pub(crate) fn new(from: R, framed: bool) -> Self {
        Self { from, pending: BytesMut::new(), raw: !framed }
    }

    /// The next piece, `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Piece>> {
        loop {
            if self.raw && !self.pending.is_empty() {
                return Ok(Some(Piece::Raw(self.pending.split().freeze())));
            }
            if !self.raw {
                match frame_length(&self.pending, LONGEST) {
                    Ok(Some(length)) if self.pending.len() >= PREFIX + length => {
                        return Ok(Some(Piece::Frame(self.pending.split_to(PREFIX + length).freeze())));
                    }
                    Ok(_) => {}
                    Err(_) => {
                        self.raw = true;
                        continue;
                    }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Bytes {
        let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        frame.into()
    }

    /// A `delete`, byte by byte.
    const DELETE: &[u8] = b"\0\0\0\x07\0\0\0\x02\0\0\0\x04/a/b\xff\xff\xff\xff";

    #[test]
    fn a_request_that_is_cut_short_has_no_path() {
        for end in 8..DELETE.len() {
            let asked = Asked { xid: 7, op: Op::Delete, path: None };
            assert_eq!(Asked::parse(&frame(&DELETE[..end])), Some(asked), "{end}");
        }
        assert_eq!(Asked::parse(&frame(&DELETE[..7])), None);
    }

    #[test]
    fn a_group_that_only_checks_writes_nothing() {
        let check = || Request::Check { path: "/a".into(), version: 3 };
        let delete = Request::Delete { path: "/a".into(), version: 3 };
        for (parts, op) in
            [(vec![check(), check()], Op::Check), (vec![check(), delete], Op::Multi), (vec![], Op::Multi)]
        {
            let header = RequestHeader { xid: 7, op: OpCode::MULTI };
            let asked = Asked::new(header, Some(&Request::Multi(parts)));
            assert_eq!(asked.map(|asked| asked.op), Some(op));
        }
    }

    #[tokio::test]
    async fn cuts_frames_and_passes_the_rest_on() {
        let sent = [&frame(b"one")[..], &frame(b""), &frame(b"three")[..6]].concat();
        let mut pieces = Pieces::new(&sent[..], true);
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Frame(frame(b"one"))));
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Frame(frame(b""))));
        let rest = frame(b"three").slice(..6);
        assert_eq!(pieces.next().await.unwrap(), Some(Piece::Raw(rest)));
        assert_eq!(pieces.next().await.unwrap(), None);
    }
}
