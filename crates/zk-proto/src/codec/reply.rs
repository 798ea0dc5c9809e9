//! What servers say.

use bytes::{Bytes, BytesMut};

use super::numbers::{ErrorCode, OpCode, xid};
use super::request::part_header;
use super::types::{Acl, Id, Stat};
use super::wire::{Field as _, Malformed, Reader, Writer, record};

record! {
    /// The first fields of every message of a server but the connect response.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReplyHeader {
        /// Of the request, or one of [`xid`](super::xid).
        pub xid: i32,
        /// The last change that the server knew of.
        pub zxid: i64,
        /// 0 for success.
        pub error: ErrorCode,
    }
}

impl ReplyHeader {
    /// The bytes that it takes.
    pub const LEN: usize = 16;

    /// Reads the header of a frame without its length. What it is the header of is behind [`LEN`](Self::LEN) bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        Reader::new(frame).next()
    }
}

/// The kinds of replies: their fields in order, and to which requests they are.
macro_rules! replies {
    ($($(#[$about:meta])* $name:ident($($field:ident: $type:ty),+) = $($op:ident)|+;)*) => {
        /// What follows the header of a reply. After an error nothing does, except for SASL. Data is a part of the frame,
        /// not a copy.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Reply {
            $($(#[$about])* $name($($type),+),)*
            /// One for each part of a group.
            Multi(Vec<MultiReply>),
            /// The header says it all.
            Empty,
            /// To a request of a kind that is not known here.
            Other(Bytes),
        }

        impl Reply {
            /// Reads the body of a successful reply to a request of that kind. `frame` is without its length.
            ///
            /// # Errors
            /// [`Malformed`].
            pub fn decode(op: OpCode, frame: &Bytes) -> Result<Self, Malformed> {
                let mut reader = Reader::of_frame(frame, ReplyHeader::LEN)?;
                let reader = &mut reader;
                Ok(match op {
                    $($(OpCode::$op)|+ => {
                        $(let $field = reader.next()?;)+
                        Self::$name($($field),+)
                    })*
                    OpCode::MULTI | OpCode::MULTI_READ => Self::Multi(parts(reader)?),
                    OpCode::DELETE
                    | OpCode::PING
                    | OpCode::CHECK
                    | OpCode::CHECK_WATCHES
                    | OpCode::REMOVE_WATCHES
                    | OpCode::AUTH
                    | OpCode::SET_WATCHES
                    | OpCode::SET_WATCHES2
                    | OpCode::CLOSE_SESSION => Self::Empty,
                    _ => Self::Other(frame.slice(ReplyHeader::LEN..)),
                })
            }

            /// Appends the frame.
            pub fn encode(&self, header: ReplyHeader, out: &mut BytesMut) {
                Writer::frame(out, |writer| {
                    header.write(writer);
                    match self {
                        $(Self::$name($($field),+) => {
                            $($field.write(writer);)+
                        })*
                        Self::Multi(parts) => {
                            parts.iter().for_each(|part| part.write(writer));
                            part_header(writer, OpCode::ERROR, true, -1);
                        }
                        Self::Empty => {}
                        Self::Other(body) => writer.raw(body),
                    }
                });
            }
        }
    };
}

replies! {
    /// Of the znode that was created, or that a `sync` was about.
    Path(path: String) = CREATE | SYNC;
    /// Of the znode that was created.
    PathAndStat(path: String, stat: Stat) = CREATE2 | CREATE_CONTAINER | CREATE_TTL;
    /// Of the znode.
    Stat(stat: Stat) = EXISTS | SET_DATA | SET_ACL;
    /// Of the znode, or the configuration after a `reconfig`.
    Data(data: Option<Bytes>, stat: Stat) = GET_DATA | RECONFIG;
    /// Names of children, or paths of ephemerals.
    Names(names: Vec<String>) = GET_CHILDREN | GET_EPHEMERALS;
    /// Names of children, and the stat of their parent.
    NamesAndStat(names: Vec<String>, stat: Stat) = GET_CHILDREN2;
    /// The access list, and the stat of the znode.
    Acl(list: Vec<Acl>, stat: Stat) = GET_ACL;
    /// A number of children, or an error code.
    Int(value: i32) = GET_ALL_CHILDREN_NUMBER | ADD_WATCH;
    /// Who the client is.
    Identities(ids: Vec<Id>) = WHO_AM_I;
    /// A step of SASL.
    Token(token: Option<Bytes>) = SASL;
}

/// The reply to one part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum MultiReply {
    /// Servers up to 3.8 answer a `create2` in a group so, too.
    Created(String),
    CreatedWithStat(String, Stat),
    Deleted,
    Set(Stat),
    Checked,
    Data(Option<Bytes>, Stat),
    Names(Vec<String>),
    /// In a group of writes: why it was refused, where this is the part that was. Those before it have 0, those after it
    /// [`ErrorCode::RUNTIME_INCONSISTENCY`].
    Failed(ErrorCode),
}

impl MultiReply {
    fn write(&self, writer: &mut Writer<'_>) {
        let (op, error) = match self {
            Self::Created(_) => (OpCode::CREATE, 0),
            Self::CreatedWithStat(..) => (OpCode::CREATE2, 0),
            Self::Deleted => (OpCode::DELETE, 0),
            Self::Set(_) => (OpCode::SET_DATA, 0),
            Self::Checked => (OpCode::CHECK, 0),
            Self::Data(..) => (OpCode::GET_DATA, 0),
            Self::Names(_) => (OpCode::GET_CHILDREN, 0),
            Self::Failed(error) => (OpCode::ERROR, error.0),
        };
        part_header(writer, op, false, error);
        match self {
            Self::Deleted | Self::Checked => {}
            Self::Created(path) => path.write(writer),
            Self::CreatedWithStat(path, stat) => {
                path.write(writer);
                stat.write(writer);
            }
            Self::Set(stat) => stat.write(writer),
            Self::Data(data, stat) => {
                data.write(writer);
                stat.write(writer);
            }
            Self::Names(names) => names.write(writer),
            Self::Failed(error) => error.write(writer),
        }
    }
}

fn parts(reader: &mut Reader<'_>) -> Result<Vec<MultiReply>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let op = OpCode(reader.int()?);
        let done = reader.bool()?;
        let _error = reader.int()?;
        if done {
            return Ok(parts);
        }
        parts.push(match op {
            OpCode::CREATE => MultiReply::Created(reader.next()?),
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                MultiReply::CreatedWithStat(reader.next()?, reader.next()?)
            }
            OpCode::DELETE => MultiReply::Deleted,
            OpCode::SET_DATA => MultiReply::Set(reader.next()?),
            OpCode::CHECK => MultiReply::Checked,
            OpCode::GET_DATA => MultiReply::Data(reader.next()?, reader.next()?),
            OpCode::GET_CHILDREN => MultiReply::Names(reader.next()?),
            OpCode::ERROR => MultiReply::Failed(reader.next()?),
            _ => return Err(Malformed("a part of a kind that a group's reply can't have")),
        });
    }
}

/// What happened to a znode that is watched: `Watcher.Event.EventType` of Apache ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub i32);

#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
impl EventKind {
    /// About the connection, not about a znode.
    pub const NONE: Self = Self(-1);
    pub const CREATED: Self = Self(1);
    pub const DELETED: Self = Self(2);
    pub const DATA_CHANGED: Self = Self(3);
    pub const CHILDREN_CHANGED: Self = Self(4);
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
    /// The change, from 3.9 on; -1 before, and where the answer to [`SetWatches`](super::Request::SetWatches) tells of
    /// what was missed.
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
        let zxid = ReplyHeader::decode(frame)?.zxid;
        let mut reader = Reader::new(&frame[ReplyHeader::LEN..]);
        let (kind, state) = (EventKind(reader.int()?), reader.int()?);
        Ok(Self { kind, state, path: reader.java_string()?, zxid })
    }

    /// Appends the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        Writer::frame(out, |writer| {
            ReplyHeader { xid: xid::EVENT, zxid: self.zxid, error: ErrorCode::OK }.write(writer);
            writer.int(self.kind.0);
            writer.int(self.state);
            writer.java_string(&self.path);
        });
    }
}
