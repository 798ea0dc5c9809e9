//! What clients ask for. A request borrows from what it is made of: the caller's strings on one side, the frame on the
//! other.

use std::borrow::Cow;

use bytes::BytesMut;

use super::numbers::OpCode;
use super::types::{AclEntry, CreateMode};
use super::wire::{Malformed, Reader, Writer};

/// The first two fields of every request but the connect request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// The number by which the reply is known; negative for the messages of [`xid`](super::xid).
    pub xid: i32,
    /// The kind of what follows.
    pub op: OpCode,
}

impl RequestHeader {
    /// The bytes that it takes.
    pub const LEN: usize = 8;

    /// Reads the header of a frame without its length. The request is behind [`LEN`](Self::LEN) bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(frame);
        Ok(Self { xid: reader.int()?, op: OpCode(reader.int()?) })
    }
}

/// A znode to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create<'a> {
    /// [`OpCode::CREATE`], which is answered with the path alone, [`OpCode::CREATE2`], [`OpCode::CREATE_CONTAINER`] or
    /// [`OpCode::CREATE_TTL`].
    pub op: OpCode,
    /// For a sequential znode without its number.
    pub path: Cow<'a, str>,
    /// `None`: null, which is not the same as empty.
    pub data: Option<Cow<'a, [u8]>>,
    /// Not empty, or the server refuses it.
    pub acl: Vec<AclEntry<'a>>,
    /// The number of a [`CreateMode`].
    pub flags: i32,
    /// In milliseconds; sent with [`OpCode::CREATE_TTL`] alone, -1 otherwise.
    pub ttl_ms: i64,
}

impl<'a> Create<'a> {
    /// Answered with the path and the stat, where the server can.
    #[must_use]
    pub fn new(
        path: impl Into<Cow<'a, str>>,
        data: impl Into<Cow<'a, [u8]>>,
        acl: &[AclEntry<'a>],
        mode: CreateMode,
    ) -> Self {
        let op = match mode {
            CreateMode::Container => OpCode::CREATE_CONTAINER,
            CreateMode::Ttl(_) | CreateMode::TtlSequential(_) => OpCode::CREATE_TTL,
            _ => OpCode::CREATE2,
        };
        let (path, data) = (path.into(), Some(data.into()));
        Self { op, path, data, acl: acl.to_vec(), flags: mode.flags(), ttl_ms: mode.ttl_ms() }
    }

    fn read(op: OpCode, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            op,
            path: reader.string()?,
            data: reader.buffer()?.map(Cow::Borrowed),
            acl: access_list(reader)?,
            flags: reader.int()?,
            ttl_ms: if op == OpCode::CREATE_TTL { reader.long()? } else { -1 },
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.string(&self.path);
        writer.buffer(self.data.as_deref());
        writer.list(&self.acl, |writer, entry| entry.write(writer));
        writer.int(self.flags);
        if self.op == OpCode::CREATE_TTL {
            writer.long(self.ttl_ms);
        }
    }
}

/// A part of [`Request::Multi`] or [`Request::MultiRead`]. A version of -1 is any version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the requests of the same name")]
pub enum MultiOp<'a> {
    Create(Create<'a>),
    Delete { path: Cow<'a, str>, version: i32 },
    SetData { path: Cow<'a, str>, data: Option<Cow<'a, [u8]>>, version: i32 },
    Check { path: Cow<'a, str>, version: i32 },
    GetData { path: Cow<'a, str> },
    GetChildren { path: Cow<'a, str> },
}

impl MultiOp<'_> {
    /// Whether it is a part of a [`Request::MultiRead`].
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::GetData { .. } | Self::GetChildren { .. })
    }
}

/// What [`Request::AddWatch`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchMode {
    /// The znode and its children, again and again.
    Persistent,
    /// The znode and everything below it, without events about children: those are told as events of the child.
    Recursive,
}

impl WatchMode {
    /// As it is sent.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Recursive => 1,
        }
    }
}

/// Which watches of a path [`Request::RemoveWatches`] removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatcherType {
    /// Of its children.
    Children,
    /// Of its data or its existence.
    Data,
    /// All, persistent and recursive ones too.
    Any,
}

impl WatcherType {
    /// As it is sent.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Children => 1,
            Self::Data => 2,
            Self::Any => 3,
        }
    }
}

/// What a client asks for. A version of -1 is any version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields are ZooKeeper's own")]
pub enum Request<'a> {
    Create(Create<'a>),
    Delete {
        path: Cow<'a, str>,
        version: i32,
    },
    Exists {
        path: Cow<'a, str>,
        watch: bool,
    },
    GetData {
        path: Cow<'a, str>,
        watch: bool,
    },
    SetData {
        path: Cow<'a, str>,
        data: Option<Cow<'a, [u8]>>,
        version: i32,
    },
    GetAcl {
        path: Cow<'a, str>,
    },
    SetAcl {
        path: Cow<'a, str>,
        acl: Vec<AclEntry<'a>>,
        version: i32,
    },
    GetChildren {
        path: Cow<'a, str>,
        watch: bool,
        /// Whether the parent's stat is wanted, too: another op code.
        with_stat: bool,
    },
    Sync {
        path: Cow<'a, str>,
    },
    Ping,
    Check {
        path: Cow<'a, str>,
        version: i32,
    },
    Multi(Vec<MultiOp<'a>>),
    MultiRead(Vec<MultiOp<'a>>),
    Reconfig {
        joining: Option<Cow<'a, str>>,
        leaving: Option<Cow<'a, str>>,
        members: Option<Cow<'a, str>>,
        /// Of the configuration; -1 is any.
        version: i64,
    },
    CheckWatches {
        path: Cow<'a, str>,
        kind: i32,
    },
    RemoveWatches {
        path: Cow<'a, str>,
        kind: i32,
    },
    /// With persistent or recursive watches it is sent as `SetWatches2`, which servers know from 3.6 on.
    SetWatches {
        relative_zxid: i64,
        data: Vec<Cow<'a, str>>,
        exist: Vec<Cow<'a, str>>,
        child: Vec<Cow<'a, str>>,
        persistent: Vec<Cow<'a, str>>,
        recursive: Vec<Cow<'a, str>>,
    },
    AddWatch {
        path: Cow<'a, str>,
        mode: i32,
    },
    GetEphemerals {
        prefix: Option<Cow<'a, str>>,
    },
    GetAllChildrenNumber {
        path: Cow<'a, str>,
    },
    WhoAmI,
    Auth {
        kind: i32,
        scheme: Option<Cow<'a, str>>,
        credentials: Option<Cow<'a, [u8]>>,
    },
    Sasl {
        token: Option<Cow<'a, [u8]>>,
    },
    CloseSession,
    /// A request of a kind that is not known here.
    Other {
        op: OpCode,
        body: Cow<'a, [u8]>,
    },
}

impl<'a> Request<'a> {
    /// Its kind.
    #[must_use]
    pub fn op(&self) -> OpCode {
        match self {
            Self::Create(create) => create.op,
            Self::Delete { .. } => OpCode::DELETE,
            Self::Exists { .. } => OpCode::EXISTS,
            Self::GetData { .. } => OpCode::GET_DATA,
            Self::SetData { .. } => OpCode::SET_DATA,
            Self::GetAcl { .. } => OpCode::GET_ACL,
            Self::SetAcl { .. } => OpCode::SET_ACL,
            Self::GetChildren { with_stat: false, .. } => OpCode::GET_CHILDREN,
            Self::GetChildren { with_stat: true, .. } => OpCode::GET_CHILDREN2,
            Self::Sync { .. } => OpCode::SYNC,
            Self::Ping => OpCode::PING,
            Self::Check { .. } => OpCode::CHECK,
            Self::Multi(_) => OpCode::MULTI,
            Self::MultiRead(_) => OpCode::MULTI_READ,
            Self::Reconfig { .. } => OpCode::RECONFIG,
            Self::CheckWatches { .. } => OpCode::CHECK_WATCHES,
            Self::RemoveWatches { .. } => OpCode::REMOVE_WATCHES,
            Self::SetWatches { persistent, recursive, .. } => {
                let newer = !persistent.is_empty() || !recursive.is_empty();
                if newer { OpCode::SET_WATCHES2 } else { OpCode::SET_WATCHES }
            }
            Self::AddWatch { .. } => OpCode::ADD_WATCH,
            Self::GetEphemerals { .. } => OpCode::GET_EPHEMERALS,
            Self::GetAllChildrenNumber { .. } => OpCode::GET_ALL_CHILDREN_NUMBER,
            Self::WhoAmI => OpCode::WHO_AM_I,
            Self::Auth { .. } => OpCode::AUTH,
            Self::Sasl { .. } => OpCode::SASL,
            Self::CloseSession => OpCode::CLOSE_SESSION,
            Self::Other { op, .. } => *op,
        }
    }

    /// The path that it is about, if it is about one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Create(create) => Some(&create.path),
            Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::GetChildren { path, .. }
            | Self::Sync { path }
            | Self::Check { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. }
            | Self::AddWatch { path, .. }
            | Self::GetAllChildrenNumber { path } => Some(path),
            _ => None,
        }
    }

    /// Reads what follows the header of a request of that kind. What comes after the last field is ignored, as Apache
    /// ZooKeeper does.
    ///
    /// # Errors
    /// [`Malformed`]. A kind that is not known is none.
    pub fn decode(op: OpCode, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let reader = &mut reader;
        Ok(match op {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                Self::Create(Create::read(op, reader)?)
            }
            OpCode::DELETE => Self::Delete { path: reader.string()?, version: reader.int()? },
            OpCode::EXISTS => Self::Exists { path: reader.string()?, watch: reader.bool()? },
            OpCode::GET_DATA => Self::GetData { path: reader.string()?, watch: reader.bool()? },
            OpCode::SET_DATA => Self::SetData {
                path: reader.string()?,
                data: reader.buffer()?.map(Cow::Borrowed),
                version: reader.int()?,
            },
            OpCode::GET_ACL => Self::GetAcl { path: reader.string()? },
            OpCode::SET_ACL => {
                Self::SetAcl { path: reader.string()?, acl: access_list(reader)?, version: reader.int()? }
            }
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => Self::GetChildren {
                path: reader.string()?,
                watch: reader.bool()?,
                with_stat: op == OpCode::GET_CHILDREN2,
            },
            OpCode::SYNC => Self::Sync { path: reader.string()? },
            OpCode::PING => Self::Ping,
            OpCode::CHECK => Self::Check { path: reader.string()?, version: reader.int()? },
            OpCode::MULTI => Self::Multi(parts(reader)?),
            OpCode::MULTI_READ => Self::MultiRead(parts(reader)?),
            OpCode::RECONFIG => Self::Reconfig {
                joining: reader.nullable_string()?,
                leaving: reader.nullable_string()?,
                members: reader.nullable_string()?,
                version: reader.long()?,
            },
            OpCode::CHECK_WATCHES => Self::CheckWatches { path: reader.string()?, kind: reader.int()? },
            OpCode::REMOVE_WATCHES => Self::RemoveWatches { path: reader.string()?, kind: reader.int()? },
            OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => {
                let newer = op == OpCode::SET_WATCHES2;
                Self::SetWatches {
                    relative_zxid: reader.long()?,
                    data: paths(reader)?,
                    exist: paths(reader)?,
                    child: paths(reader)?,
                    persistent: if newer { paths(reader)? } else { Vec::new() },
                    recursive: if newer { paths(reader)? } else { Vec::new() },
                }
            }
            OpCode::ADD_WATCH => Self::AddWatch { path: reader.string()?, mode: reader.int()? },
            OpCode::GET_EPHEMERALS => Self::GetEphemerals { prefix: reader.nullable_string()? },
            OpCode::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path: reader.string()? },
            OpCode::WHO_AM_I => Self::WhoAmI,
            OpCode::AUTH => Self::Auth {
                kind: reader.int()?,
                scheme: reader.nullable_string()?,
                credentials: reader.buffer()?.map(Cow::Borrowed),
            },
            OpCode::SASL => Self::Sasl { token: reader.buffer()?.map(Cow::Borrowed) },
            OpCode::CLOSE_SESSION => Self::CloseSession,
            op => Self::Other { op, body: reader.rest().into() },
        })
    }

    /// Appends the frame with that number.
    pub fn encode(&self, xid: i32, out: &mut BytesMut) {
        Writer::frame(out, |writer| {
            writer.int(xid);
            writer.int(self.op().0);
            self.write(writer);
        });
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Ping | Self::WhoAmI | Self::CloseSession => {}
            Self::Create(create) => create.write(writer),
            Self::GetAcl { path } | Self::Sync { path } | Self::GetAllChildrenNumber { path } => {
                writer.string(path);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch, .. } => {
                writer.string(path);
                writer.bool(*watch);
            }
            Self::Delete { path, version: number }
            | Self::Check { path, version: number }
            | Self::CheckWatches { path, kind: number }
            | Self::RemoveWatches { path, kind: number }
            | Self::AddWatch { path, mode: number } => {
                writer.string(path);
                writer.int(*number);
            }
            Self::SetData { path, data, version } => {
                writer.string(path);
                writer.buffer(data.as_deref());
                writer.int(*version);
            }
            Self::SetAcl { path, acl, version } => {
                writer.string(path);
                writer.list(acl, |writer, entry| entry.write(writer));
                writer.int(*version);
            }
            Self::Multi(parts) | Self::MultiRead(parts) => write_parts(parts, writer),
            Self::Reconfig { joining, leaving, members, version } => {
                for servers in [joining, leaving, members] {
                    writer.nullable_string(servers.as_deref());
                }
                writer.long(*version);
            }
            Self::SetWatches { relative_zxid, data, exist, child, persistent, recursive } => {
                writer.long(*relative_zxid);
                let newer: &[_] =
                    if self.op() == OpCode::SET_WATCHES2 { &[persistent, recursive] } else { &[] };
                for list in [data, exist, child].iter().chain(newer) {
                    writer.list(list, |writer, path| writer.string(path));
                }
            }
            Self::GetEphemerals { prefix } => writer.nullable_string(prefix.as_deref()),
            Self::Auth { kind, scheme, credentials } => {
                writer.int(*kind);
                writer.nullable_string(scheme.as_deref());
                writer.buffer(credentials.as_deref());
            }
            Self::Sasl { token } => writer.buffer(token.as_deref()),
            Self::Other { body, .. } => writer.raw(body),
        }
    }
}

/// A missing list is as good as an empty one: a server accepts neither.
fn access_list<'a>(reader: &mut Reader<'a>) -> Result<Vec<AclEntry<'a>>, Malformed> {
    Ok(reader.list(AclEntry::read)?.unwrap_or_default())
}

fn paths<'a>(reader: &mut Reader<'a>) -> Result<Vec<Cow<'a, str>>, Malformed> {
    reader.list(Reader::string)?.ok_or(Malformed("a list is null"))
}

/// Each part has a header (kind, whether this is the end, an error); reads and writes don't mix.
fn parts<'a>(reader: &mut Reader<'a>) -> Result<Vec<MultiOp<'a>>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let op = OpCode(reader.int()?);
        let done = reader.bool()?;
        let _error = reader.int()?;
        if done {
            break;
        }
        parts.push(match op {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                MultiOp::Create(Create::read(op, reader)?)
            }
            OpCode::DELETE => MultiOp::Delete { path: reader.string()?, version: reader.int()? },
            OpCode::SET_DATA => MultiOp::SetData {
                path: reader.string()?,
                data: reader.buffer()?.map(Cow::Borrowed),
                version: reader.int()?,
            },
            OpCode::CHECK => MultiOp::Check { path: reader.string()?, version: reader.int()? },
            OpCode::GET_DATA | OpCode::GET_CHILDREN => {
                let path = reader.string()?;
                let _watch = reader.bool()?;
                if op == OpCode::GET_DATA { MultiOp::GetData { path } } else { MultiOp::GetChildren { path } }
            }
            _ => return Err(Malformed("a part of a kind that a group can't have")),
        });
    }
    let reads = parts.iter().filter(|part| part.is_read()).count();
    if reads != 0 && reads != parts.len() {
        return Err(Malformed("a group of reads and writes"));
    }
    Ok(parts)
}

fn write_parts(parts: &[MultiOp<'_>], writer: &mut Writer<'_>) {
    for part in parts {
        let op = match part {
            MultiOp::Create(create) => create.op,
            MultiOp::Delete { .. } => OpCode::DELETE,
            MultiOp::SetData { .. } => OpCode::SET_DATA,
            MultiOp::Check { .. } => OpCode::CHECK,
            MultiOp::GetData { .. } => OpCode::GET_DATA,
            MultiOp::GetChildren { .. } => OpCode::GET_CHILDREN,
        };
        part_header(writer, op, false, -1);
        match part {
            MultiOp::Create(create) => create.write(writer),
            MultiOp::Delete { path, version } | MultiOp::Check { path, version } => {
                writer.string(path);
                writer.int(*version);
            }
            MultiOp::SetData { path, data, version } => {
                writer.string(path);
                writer.buffer(data.as_deref());
                writer.int(*version);
            }
            MultiOp::GetData { path } | MultiOp::GetChildren { path } => {
                writer.string(path);
                writer.bool(false);
            }
        }
    }
    part_header(writer, OpCode::ERROR, true, -1);
}

pub(super) fn part_header(writer: &mut Writer<'_>, op: OpCode, done: bool, error: i32) {
    writer.int(op.0);
    writer.bool(done);
    writer.int(error);
}
