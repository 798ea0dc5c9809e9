//! Replies and events of servers.

use bytes::{Bytes, BytesMut};

use super::numbers::{ErrorCode, EventKind, OpCode, xid};
use super::request::PartHeader;
use super::types::{Acl, Id, Stat};
use super::wire::{Field as _, Malformed, Reader, Writer, record};

record! {
    /// The first fields of every message of a server but the connect response.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReplyHeader {
        /// The number of the request, or one of [`xid`](super::xid).
        pub xid: i32,
        /// The last change that the server had seen.
        pub zxid: i64,
        /// The error; 0 for success.
        pub error: ErrorCode,
    }
}

impl ReplyHeader {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Reads the header of a frame without its length. The body follows after [`LEN`](Self::LEN) bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        Reader::new(frame).next()
    }
}

/// The kinds of replies: their fields in order, and their requests.
macro_rules! replies {
    ($($(#[$about:meta])* $name:ident($($field:ident: $type:ty),+) = $($op:ident)|+;)*) => {
        /// What follows the header of a reply. After an error nothing does, except for SASL. Data is a part of the frame,
        /// not a copy.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Reply {
            $($(#[$about])* $name($($type),+),)*
            /// One for each part of a group.
            Multi(Vec<PartReply>),
            /// No body: the header is the answer.
            Empty,
            /// The reply to a request of an unknown kind.
            Other(Bytes),
        }

        impl Reply {
            /// Reads the body of a successful reply to a request of that kind. `frame` is without its length.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn decode(op: OpCode, frame: &Bytes) -> Result<Self, Malformed> {
                Self::read(op, frame, &mut Reader::of_frame(frame, ReplyHeader::LEN)?)
            }

            fn read(op: OpCode, frame: &Bytes, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(match op {
                    $($(OpCode::$op)|+ => {
                        $(let $field = reader.next()?;)+
                        Self::$name($($field),+)
                    })*
                    OpCode::MULTI | OpCode::MULTI_READ => Self::Multi(parts(frame, reader)?),
                    OpCode::DELETE
                    | OpCode::PING
                    | OpCode::CHECK
                    | OpCode::CHECK_WATCHES
                    | OpCode::REMOVE_WATCHES
                    | OpCode::AUTH
                    | OpCode::SET_WATCHES
                    | OpCode::SET_WATCHES2
                    | OpCode::CLOSE_SESSION => Self::Empty,
                    _ => Self::Other(frame.slice_ref(reader.rest())),
                })
            }

            /// Appends the frame.
            pub fn encode(&self, header: ReplyHeader, out: &mut BytesMut) {
                Writer::frame(out, |writer| {
                    header.write(writer);
                    self.write(writer);
                });
            }

            fn write(&self, writer: &mut Writer<'_>) {
                    match self {
                        $(Self::$name($($field),+) => {
                            $($field.write(writer);)+
                        })*
                        Self::Multi(parts) => {
                            for (op, reply) in parts {
                                match reply {
                                    Ok(reply) => {
                                        PartHeader { op: *op, done: false, error: ErrorCode::OK }.write(writer);
                                        reply.write(writer);
                                    }
                                    Err(error) => {
                                        let op = OpCode::ERROR;
                                        PartHeader { op, done: false, error: *error }.write(writer);
                                        error.write(writer);
                                    }
                                }
                            }
                            PartHeader::LAST.write(writer);
                        }
                        Self::Empty => {}
                        Self::Other(body) => writer.raw(body),
                    }
            }
        }
    };
}

replies! {
    /// The path of the created znode, or of a `sync`.
    Path(path: String) = CREATE | SYNC;
    /// The path and stat of the created znode.
    PathAndStat(path: String, stat: Stat) = CREATE2 | CREATE_CONTAINER | CREATE_TTL;
    /// Of the znode.
    Stat(stat: Stat) = EXISTS | SET_DATA | SET_ACL;
    /// Data and stat of the znode, or of the configuration after a `reconfig`.
    Data(data: Option<Bytes>, stat: Stat) = GET_DATA | RECONFIG;
    /// Names of children, or paths of ephemerals.
    Names(names: Vec<String>) = GET_CHILDREN | GET_EPHEMERALS;
    /// Names of children, and the stat of their parent.
    NamesAndStat(names: Vec<String>, stat: Stat) = GET_CHILDREN2;
    /// The access list, and the stat of the znode.
    Acl(list: Vec<Acl>, stat: Stat) = GET_ACL;
    /// A number of children, or an error code.
    Int(value: i32) = GET_ALL_CHILDREN_NUMBER | ADD_WATCH;
    /// The identities of the client.
    Identities(ids: Vec<Id>) = WHO_AM_I;
    /// A step of SASL.
    Token(token: Option<Bytes>) = SASL;
}

/// The reply to one part of a group: the kind of the part according to the server, and its result. Servers up to 3.8 treat
/// a `create2` as a `create`. In a refused group of writes each part has an error: those before the one that was refused
/// [`ErrorCode::OK`], those after it [`ErrorCode::RUNTIME_INCONSISTENCY`].
pub type PartReply = (OpCode, Result<Reply, ErrorCode>);

fn parts(frame: &Bytes, reader: &mut Reader<'_>) -> Result<Vec<PartReply>, Malformed> {
    let mut parts = Vec::new();
    while let PartHeader { op, done: false, .. } = reader.next()? {
        let reply = match op {
            OpCode::ERROR => Err(reader.next()?),
            OpCode::MULTI | OpCode::MULTI_READ => return Err(Malformed("a group within a group")),
            _ => match Reply::read(op, frame, reader)? {
                Reply::Other(_) => return Err(Malformed("a part of a kind that a group's reply can't have")),
                reply => Ok(reply),
            },
        };
        parts.push((op, reply));
    }
    Ok(parts)
}

/// A watch has fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// `KeeperState`; 3 is connected.
    pub state: i32,
    /// Of the znode.
    pub path: String,
    /// The change, from 3.9 on; -1 before, and in events that report what was missed, after
    /// [`SetWatches`](super::Request::SetWatches).
    pub zxid: i64,
}

impl WatchEvent {
    /// `KeeperState.SyncConnected`.
    pub const CONNECTED: i32 = 3;

    /// Reads a frame without its length, whose header has the number [`xid::EVENT`].
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        let ReplyHeader { zxid, .. } = reader.next()?;
        Ok(Self { kind: reader.next()?, state: reader.next()?, path: reader.next()?, zxid })
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        Writer::frame(out, |writer| {
            ReplyHeader { xid: xid::EVENT, zxid: self.zxid, error: ErrorCode::OK }.write(writer);
            self.kind.write(writer);
            self.state.write(writer);
            self.path.write(writer);
        });
    }
}
