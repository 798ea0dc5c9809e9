//! What servers say.

use bytes::{Bytes, BytesMut};

use super::numbers::{ErrorCode, OpCode, xid};
use super::request::part_header;
use super::types::{Acl, Id, Stat};
use super::wire::{Malformed, Reader, Writer};

/// The first fields of every message of a server but the connect response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Of the request, or one of [`xid`](super::xid).
    pub xid: i32,
    /// The last change that the server knew of; 0 or -1 where it does not say.
    pub zxid: i64,
    /// 0 for success.
    pub error: ErrorCode,
}

impl ReplyHeader {
    /// The bytes that it takes.
    pub const LEN: usize = 16;

    /// Reads the header of a frame without its length. What it is the header of is behind [`LEN`](Self::LEN) bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        Ok(Self { xid: reader.int()?, zxid: reader.long()?, error: ErrorCode(reader.int()?) })
    }

    fn write(self, writer: &mut Writer<'_>) {
        writer.int(self.xid);
        writer.long(self.zxid);
        writer.int(self.error.0);
    }
}

/// What follows the header of a reply. After an error nothing does, except for SASL. Data is a part of the frame, not
/// a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The header says it all.
    Empty,
    /// Of the znode that was created, or that a `sync` was about.
    Path(String),
    /// Of the znode that was created.
    PathAndStat(String, Stat),
    /// Of the znode.
    Stat(Stat),
    /// Of the znode, or the configuration after a `reconfig`.
    Data(Option<Bytes>, Stat),
    /// Names of children, or paths of ephemerals.
    Names(Vec<String>),
    /// Names of children, and the stat of their parent.
    NamesAndStat(Vec<String>, Stat),
    /// The access list, and the stat of the znode.
    Acl(Vec<Acl>, Stat),
    /// A number of children, or an error code.
    Int(i32),
    /// Who the client is.
    Identities(Vec<Id>),
    /// One for each part of a group.
    Multi(Vec<MultiReply>),
    /// A step of SASL.
    Token(Option<Bytes>),
    /// To a request of a kind that is not known here.
    Other(Bytes),
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

impl Reply {
    /// Reads the body of a successful reply to a request of that kind. `frame` is without its length.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(op: OpCode, frame: &Bytes) -> Result<Self, Malformed> {
        let body = frame.get(ReplyHeader::LEN..).ok_or(Malformed("a reply without a header"))?;
        let mut reader = Reader::new(body);
        let reader = &mut reader;
        Ok(match op {
            OpCode::CREATE | OpCode::SYNC => Self::Path(reader.java_string()?),
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                Self::PathAndStat(reader.java_string()?, Stat::read(reader)?)
            }
            OpCode::EXISTS | OpCode::SET_DATA | OpCode::SET_ACL => Self::Stat(Stat::read(reader)?),
            OpCode::GET_DATA | OpCode::RECONFIG => Self::Data(slice(frame, reader)?, Stat::read(reader)?),
            OpCode::GET_CHILDREN | OpCode::GET_EPHEMERALS => Self::Names(names(reader)?),
            OpCode::GET_CHILDREN2 => Self::NamesAndStat(names(reader)?, Stat::read(reader)?),
            OpCode::GET_ACL => {
                let entry =
                    |reader: &mut Reader<'_>| Ok(Acl { permissions: reader.int()?, id: Id::read(reader)? });
                Self::Acl(reader.list(entry)?.unwrap_or_default(), Stat::read(reader)?)
            }
            OpCode::GET_ALL_CHILDREN_NUMBER | OpCode::ADD_WATCH => Self::Int(reader.int()?),
            OpCode::WHO_AM_I => Self::Identities(reader.list(Id::read)?.unwrap_or_default()),
            OpCode::MULTI | OpCode::MULTI_READ => Self::Multi(parts(frame, reader)?),
            OpCode::SASL => Self::Token(slice(frame, reader)?),
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
            self.write(writer);
        });
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Empty => {}
            Self::Path(path) => writer.java_string(path),
            Self::PathAndStat(path, stat) => {
                writer.java_string(path);
                stat.write(writer);
            }
            Self::Stat(stat) => stat.write(writer),
            Self::Data(data, stat) => {
                writer.buffer(data.as_deref());
                stat.write(writer);
            }
            Self::Names(names) => write_names(names, writer),
            Self::NamesAndStat(names, stat) => {
                write_names(names, writer);
                stat.write(writer);
            }
            Self::Acl(acl, stat) => {
                writer.list(acl, |writer, entry| {
                    writer.int(entry.permissions);
                    entry.id.write(writer);
                });
                stat.write(writer);
            }
            Self::Int(value) => writer.int(*value),
            Self::Identities(ids) => writer.list(ids, |writer, id| id.write(writer)),
            Self::Multi(parts) => {
                for part in parts {
                    part.write(writer);
                }
                part_header(writer, OpCode::ERROR, true, -1);
            }
            Self::Token(token) => writer.buffer(token.as_deref()),
            Self::Other(body) => writer.raw(body),
        }
    }
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
            Self::Created(path) => writer.java_string(path),
            Self::CreatedWithStat(path, stat) => {
                writer.java_string(path);
                stat.write(writer);
            }
            Self::Set(stat) => stat.write(writer),
            Self::Data(data, stat) => {
                writer.buffer(data.as_deref());
                stat.write(writer);
            }
            Self::Names(names) => write_names(names, writer),
            Self::Failed(error) => writer.int(error.0),
        }
    }
}

fn parts(frame: &Bytes, reader: &mut Reader<'_>) -> Result<Vec<MultiReply>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let op = OpCode(reader.int()?);
        let done = reader.bool()?;
        let _error = reader.int()?;
        if done {
            return Ok(parts);
        }
        parts.push(match op {
            OpCode::CREATE => MultiReply::Created(reader.java_string()?),
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                MultiReply::CreatedWithStat(reader.java_string()?, Stat::read(reader)?)
            }
            OpCode::DELETE => MultiReply::Deleted,
            OpCode::SET_DATA => MultiReply::Set(Stat::read(reader)?),
            OpCode::CHECK => MultiReply::Checked,
            OpCode::GET_DATA => MultiReply::Data(slice(frame, reader)?, Stat::read(reader)?),
            OpCode::GET_CHILDREN => MultiReply::Names(names(reader)?),
            OpCode::ERROR => MultiReply::Failed(ErrorCode(reader.int()?)),
            _ => return Err(Malformed("a part of a kind that a group's reply can't have")),
        });
    }
}

/// The part of the frame that the next buffer is.
fn slice(frame: &Bytes, reader: &mut Reader<'_>) -> Result<Option<Bytes>, Malformed> {
    Ok(reader.buffer()?.map(|bytes| frame.slice_ref(bytes)))
}

fn names(reader: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    Ok(reader.list(Reader::java_string)?.unwrap_or_default())
}

fn write_names(names: &[String], writer: &mut Writer<'_>) {
    writer.list(names, |writer, name| writer.java_string(name));
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
