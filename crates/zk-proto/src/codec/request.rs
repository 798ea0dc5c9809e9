//! Requests of clients. A request borrows its data: from the caller's strings on one side, from the frame on the other.

use std::borrow::Cow;

use bytes::BytesMut;

use super::numbers::{ErrorCode, OpCode};
use super::types::{AclEntry, CreateMode};
use super::wire::{Field as _, Malformed, Reader, Writer, record};

record! {
    /// The first two fields of every request but the connect request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct RequestHeader {
        /// The number that the reply repeats; negative for the messages of [`xid`](super::xid).
        pub xid: i32,
        /// The kind of the request.
        pub op: OpCode,
    }
}

impl RequestHeader {
    /// Its length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header of a frame without its length. The request follows after [`LEN`](Self::LEN) bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self, Malformed> {
        Reader::new(frame).next()
    }
}

/// A znode to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create<'a> {
    /// [`OpCode::CREATE`], which is answered with the path alone, [`OpCode::CREATE2`], [`OpCode::CREATE_CONTAINER`] or
    /// [`OpCode::CREATE_TTL`].
    pub op: OpCode,
    /// The path; of a sequential znode without its number.
    pub path: Cow<'a, str>,
    /// The data; `None` is null, which is not the same as empty.
    pub data: Option<Cow<'a, [u8]>>,
    /// The access list. A server refuses an empty one.
    pub acl: Vec<AclEntry<'a>>,
    /// The number of a [`CreateMode`], sequential or not.
    pub flags: i32,
    /// The time to live in milliseconds; sent with [`OpCode::CREATE_TTL`] only, -1 otherwise.
    pub ttl_ms: i64,
}

impl<'a> Create<'a> {
    /// A create that is answered with the path and the stat, if the server supports it.
    #[must_use]
    pub fn new(
        path: impl Into<Cow<'a, str>>,
        data: impl Into<Cow<'a, [u8]>>,
        acl: &[AclEntry<'a>],
        mode: CreateMode,
    ) -> Self {
        let (op, flags, ttl_ms) = match mode {
            CreateMode::Persistent => (OpCode::CREATE2, 0, -1),
            CreateMode::Ephemeral => (OpCode::CREATE2, 1, -1),
            CreateMode::Container => (OpCode::CREATE_CONTAINER, 4, -1),
            CreateMode::Ttl(ttl) => {
                (OpCode::CREATE_TTL, 5, i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
            }
        };
        Self { op, path: path.into(), data: Some(data.into()), acl: acl.to_vec(), flags, ttl_ms }
    }

    /// The sequential create: the server appends a number to the name; `None` for a container, which can't have one.
    #[must_use]
    pub fn sequential(self) -> Option<Self> {
        let flags = match self.flags {
            0 => 2,
            1 => 3,
            5 => 6,
            _ => return None,
        };
        Some(Self { flags, ..self })
    }

    fn read(op: OpCode, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            op,
            path: reader.next()?,
            data: reader.next()?,
            acl: reader.next()?,
            flags: reader.next()?,
            ttl_ms: if op == OpCode::CREATE_TTL { reader.next()? } else { -1 },
        })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        self.path.write(writer);
        self.data.write(writer);
        self.acl.write(writer);
        self.flags.write(writer);
        if self.op == OpCode::CREATE_TTL {
            self.ttl_ms.write(writer);
        }
    }
}

/// The mode of [`Request::AddWatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchMode {
    /// The znode and its children, until it is removed.
    Persistent = 0,
    /// The znode and everything below it, without events about children: those are events of the child.
    Recursive = 1,
}

impl WatchMode {
    /// Its number in the protocol.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// The watches of a path that [`Request::RemoveWatches`] removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatcherType {
    /// Of its children.
    Children = 1,
    /// Of its data or its existence.
    Data = 2,
    /// All, including persistent and recursive ones.
    Any = 3,
}

impl WatcherType {
    /// Its number in the protocol.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// The requests that are their fields in order, each with its op code; those that are not are added.
macro_rules! requests {
    ($($name:ident = $op:ident { $($(#[$about:meta])* $field:ident: $type:ty),* })*) => {
        /// A request of a client. A version of -1 is any version.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the names are ZooKeeper's own")]
        pub enum Request<'a> {
            $($name { $($(#[$about])* $field: $type),* },)*
            Create(Create<'a>),
            GetChildren {
                path: Cow<'a, str>,
                watch: bool,
                /// Whether the parent's stat is included, which has another op code.
                with_stat: bool,
            },
            /// Creates of each kind, `Delete`, `SetData` and `Check`.
            Multi(Vec<Request<'a>>),
            /// `GetData` and `GetChildren` without a stat; none of them watches.
            MultiRead(Vec<Request<'a>>),
            /// With persistent or recursive watches it is sent as `SetWatches2`, which servers support from 3.6 on.
            SetWatches {
                relative_zxid: i64,
                data: Vec<Cow<'a, str>>,
                exist: Vec<Cow<'a, str>>,
                child: Vec<Cow<'a, str>>,
                persistent: Vec<Cow<'a, str>>,
                recursive: Vec<Cow<'a, str>>,
            },
            Ping,
            WhoAmI,
            CloseSession,
            /// A request of an unknown kind.
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
                    $(Self::$name { .. } => OpCode::$op,)*
                    Self::Create(create) => create.op,
                    Self::GetChildren { with_stat: false, .. } => OpCode::GET_CHILDREN,
                    Self::GetChildren { with_stat: true, .. } => OpCode::GET_CHILDREN2,
                    Self::Multi(_) => OpCode::MULTI,
                    Self::MultiRead(_) => OpCode::MULTI_READ,
                    Self::SetWatches { persistent, recursive, .. } => {
                        let newer = !persistent.is_empty() || !recursive.is_empty();
                        if newer { OpCode::SET_WATCHES2 } else { OpCode::SET_WATCHES }
                    }
                    Self::Ping => OpCode::PING,
                    Self::WhoAmI => OpCode::WHO_AM_I,
                    Self::CloseSession => OpCode::CLOSE_SESSION,
                    Self::Other { op, .. } => *op,
                }
            }

            /// Reads the body of a request of that kind. Bytes after the last field are ignored, as by Apache ZooKeeper.
            ///
            /// # Errors
            /// [`Malformed`]. An unknown kind is no error.
            pub fn decode(op: OpCode, body: &'a [u8]) -> Result<Self, Malformed> {
                Self::read(op, &mut Reader::new(body))
            }

            fn read(op: OpCode, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
                Ok(match op {
                    $(OpCode::$op => Self::$name { $($field: reader.next()?),* },)*
                    OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                        Self::Create(Create::read(op, reader)?)
                    }
                    OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => Self::GetChildren {
                        path: reader.next()?,
                        watch: reader.next()?,
                        with_stat: op == OpCode::GET_CHILDREN2,
                    },
                    OpCode::MULTI => Self::Multi(parts(reader)?),
                    OpCode::MULTI_READ => Self::MultiRead(parts(reader)?),
                    OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => {
                        let newer = op == OpCode::SET_WATCHES2;
                        Self::SetWatches {
                            relative_zxid: reader.next()?,
                            data: reader.next()?,
                            exist: reader.next()?,
                            child: reader.next()?,
                            persistent: if newer { reader.next()? } else { Vec::new() },
                            recursive: if newer { reader.next()? } else { Vec::new() },
                        }
                    }
                    OpCode::PING => Self::Ping,
                    OpCode::WHO_AM_I => Self::WhoAmI,
                    OpCode::CLOSE_SESSION => Self::CloseSession,
                    op => Self::Other { op, body: reader.rest().into() },
                })
            }

            fn write(&self, writer: &mut Writer<'_>) {
                match self {
                    $(Self::$name { $($field),* } => {
                        $($field.write(writer);)*
                    })*
                    Self::Create(create) => create.write(writer),
                    Self::GetChildren { path, watch, .. } => {
                        path.write(writer);
                        watch.write(writer);
                    }
                    Self::Multi(parts) | Self::MultiRead(parts) => {
                        for part in parts {
                            PartHeader { op: part.op(), done: false, error: ErrorCode(-1) }.write(writer);
                            part.write(writer);
                        }
                        PartHeader::LAST.write(writer);
                    }
                    Self::SetWatches { relative_zxid, data, exist, child, persistent, recursive } => {
                        relative_zxid.write(writer);
                        let newer: &[_] =
                            if self.op() == OpCode::SET_WATCHES2 { &[persistent, recursive] } else { &[] };
                        for list in [data, exist, child].iter().chain(newer) {
                            list.write(writer);
                        }
                    }
                    Self::Ping | Self::WhoAmI | Self::CloseSession => {}
                    Self::Other { body, .. } => writer.raw(body),
                }
            }
        }
    };
}

requests! {
    Delete = DELETE { path: Cow<'a, str>, version: i32 }
    Exists = EXISTS { path: Cow<'a, str>, watch: bool }
    GetData = GET_DATA { path: Cow<'a, str>, watch: bool }
    SetData = SET_DATA { path: Cow<'a, str>, data: Option<Cow<'a, [u8]>>, version: i32 }
    GetAcl = GET_ACL { path: Cow<'a, str> }
    SetAcl = SET_ACL { path: Cow<'a, str>, acl: Vec<AclEntry<'a>>, version: i32 }
    Sync = SYNC { path: Cow<'a, str> }
    Check = CHECK { path: Cow<'a, str>, version: i32 }
    Reconfig = RECONFIG {
        joining: Option<Cow<'a, str>>,
        leaving: Option<Cow<'a, str>>,
        members: Option<Cow<'a, str>>,
        /// Of the configuration; -1 is any.
        version: i64
    }
    CheckWatches = CHECK_WATCHES { path: Cow<'a, str>, kind: i32 }
    RemoveWatches = REMOVE_WATCHES { path: Cow<'a, str>, kind: i32 }
    AddWatch = ADD_WATCH { path: Cow<'a, str>, mode: i32 }
    GetEphemerals = GET_EPHEMERALS { prefix: Option<Cow<'a, str>> }
    GetAllChildrenNumber = GET_ALL_CHILDREN_NUMBER { path: Cow<'a, str> }
    Auth = AUTH { kind: i32, scheme: Option<Cow<'a, str>>, credentials: Option<Cow<'a, [u8]>> }
    Sasl = SASL { token: Option<Cow<'a, [u8]>> }
}

impl Request<'_> {
    /// The path of the request, if it has one.
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

    /// Appends the frame with that number.
    pub fn encode(&self, xid: i32, out: &mut BytesMut) {
        Writer::frame(out, |writer| {
            RequestHeader { xid, op: self.op() }.write(writer);
            self.write(writer);
        });
    }
}

/// A group has either reads or writes.
fn parts<'a>(reader: &mut Reader<'a>) -> Result<Vec<Request<'a>>, Malformed> {
    let mut parts = Vec::new();
    let mut reads = 0;
    while let PartHeader { op, done: false, .. } = reader.next()? {
        match op {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {}
            OpCode::DELETE | OpCode::SET_DATA | OpCode::CHECK => {}
            OpCode::GET_DATA | OpCode::GET_CHILDREN => reads += 1,
            _ => return Err(Malformed("a part of a kind that a group can't have")),
        }
        parts.push(Request::read(op, reader)?);
    }
    if reads != 0 && reads != parts.len() {
        return Err(Malformed("a group of reads and writes"));
    }
    Ok(parts)
}

record! {
    /// The header before each part of a group and of its reply, and after the last one.
    pub(super) struct PartHeader {
        pub(super) op: OpCode,
        pub(super) done: bool,
        pub(super) error: ErrorCode,
    }
}

impl PartHeader {
    pub(super) const LAST: Self = Self { op: OpCode::ERROR, done: true, error: ErrorCode(-1) };
}
