//! What clients ask for.

use super::{Malformed, Reader};
use crate::embedded::tree::Wanted;

/// The numbers of `ZooDefs.OpCode`.
pub(crate) mod op {
    pub(crate) const ERROR: i32 = -1;
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const RECONFIG: i32 = 16;
    pub(crate) const CHECK_WATCHES: i32 = 17;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const SASL: i32 = 102;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(crate) const SET_WATCHES2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const WHO_AM_I: i32 = 107;
    pub(crate) const CLOSE_SESSION: i32 = -11;

    /// What Apache ZooKeeper 3.8 knows. The rest is answered 'unimplemented', and the connection is closed.
    pub(crate) fn is_known(code: i32) -> bool {
        matches!(code, CREATE..=SYNC | PING..=CREATE_CONTAINER | CREATE_TTL | MULTI_READ)
            || matches!(code, SET_WATCHES | GET_EPHEMERALS..=WHO_AM_I | CLOSE_SESSION)
    }
}

/// Which of the four requests makes the znode, whatever its flags say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreateKind {
    /// Answered with the path alone.
    Plain,
    WithStat,
    Container,
    Ttl,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) kind: CreateKind,
    pub(crate) path: String,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Vec<Wanted>,
    pub(crate) flags: i32,
    /// Milliseconds; -1 where the request has none.
    pub(crate) ttl: i64,
}

/// A part of a `multi` or of a `multiRead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MultiOp {
    Create(Create),
    Delete { path: String, version: i32 },
    SetData { path: String, data: Option<Vec<u8>>, version: i32 },
    Check { path: String, version: i32 },
    GetData { path: String },
    GetChildren { path: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Wanted>,
        version: i32,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    Sync {
        path: String,
    },
    Ping,
    Check {
        path: String,
        version: i32,
    },
    Multi(Vec<MultiOp>),
    MultiRead(Vec<MultiOp>),
    Reconfig,
    CheckWatches {
        path: String,
        kind: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    SetWatches {
        relative_zxid: i64,
        data: Vec<String>,
        exist: Vec<String>,
        child: Vec<String>,
        persistent: Vec<String>,
        recursive: Vec<String>,
    },
    AddWatch {
        path: String,
        mode: i32,
    },
    GetEphemerals {
        prefix: Option<String>,
    },
    GetAllChildrenNumber {
        path: String,
    },
    WhoAmI,
    CloseSession,
}

impl Request {
    /// Reads what follows the header of a request of that kind. What comes after
    /// the last field is ignored, as Apache ZooKeeper does.
    pub(crate) fn read(code: i32, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match code {
            op::CREATE => Self::Create(create(CreateKind::Plain, reader)?),
            op::CREATE2 => Self::Create(create(CreateKind::WithStat, reader)?),
            op::CREATE_CONTAINER => Self::Create(create(CreateKind::Container, reader)?),
            op::CREATE_TTL => Self::Create(create(CreateKind::Ttl, reader)?),
            op::DELETE => Self::Delete { path: reader.string()?, version: reader.int()? },
            op::EXISTS => Self::Exists { path: reader.string()?, watch: reader.bool()? },
            op::GET_DATA => Self::GetData { path: reader.string()?, watch: reader.bool()? },
            op::SET_DATA => {
                Self::SetData { path: reader.string()?, data: reader.buffer()?, version: reader.int()? }
            }
            op::GET_ACL => Self::GetAcl { path: reader.string()? },
            op::SET_ACL => Self::SetAcl { path: reader.string()?, acl: acl(reader)?, version: reader.int()? },
            op::GET_CHILDREN | op::GET_CHILDREN2 => Self::GetChildren {
                path: reader.string()?,
                watch: reader.bool()?,
                with_stat: code == op::GET_CHILDREN2,
            },
            op::SYNC => Self::Sync { path: reader.string()? },
            op::PING => Self::Ping,
            op::CHECK => Self::Check { path: reader.string()?, version: reader.int()? },
            op::MULTI => Self::Multi(multi(reader)?),
            op::MULTI_READ => Self::MultiRead(multi(reader)?),
            op::RECONFIG => Self::Reconfig,
            op::CHECK_WATCHES => Self::CheckWatches { path: reader.string()?, kind: reader.int()? },
            op::REMOVE_WATCHES => Self::RemoveWatches { path: reader.string()?, kind: reader.int()? },
            op::SET_WATCHES | op::SET_WATCHES2 => {
                let both = code == op::SET_WATCHES2;
                Self::SetWatches {
                    relative_zxid: reader.long()?,
                    data: paths(reader)?,
                    exist: paths(reader)?,
                    child: paths(reader)?,
                    persistent: if both { paths(reader)? } else { Vec::new() },
                    recursive: if both { paths(reader)? } else { Vec::new() },
                }
            }
            op::ADD_WATCH => Self::AddWatch { path: reader.string()?, mode: reader.int()? },
            op::GET_EPHEMERALS => Self::GetEphemerals { prefix: reader.nullable_string()? },
            op::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path: reader.string()? },
            op::WHO_AM_I => Self::WhoAmI,
            op::CLOSE_SESSION => Self::CloseSession,
            _ => return Err(Malformed),
        })
    }

    /// The first path that it names.
    pub(crate) fn path(&self) -> Option<&str> {
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
            Self::Ping
            | Self::Multi(_)
            | Self::MultiRead(_)
            | Self::Reconfig
            | Self::SetWatches { .. }
            | Self::GetEphemerals { .. }
            | Self::WhoAmI
            | Self::CloseSession => None,
        }
    }
}

fn create(kind: CreateKind, reader: &mut Reader<'_>) -> Result<Create, Malformed> {
    Ok(Create {
        kind,
        path: reader.string()?,
        data: reader.buffer()?,
        acl: acl(reader)?,
        flags: reader.int()?,
        ttl: if kind == CreateKind::Ttl { reader.long()? } else { -1 },
    })
}

/// A missing list is as good as an empty one: neither is accepted.
fn acl(reader: &mut Reader<'_>) -> Result<Vec<Wanted>, Malformed> {
    let entry = |reader: &mut Reader<'_>| {
        Ok(Wanted {
            permissions: reader.int()?,
            scheme: reader.nullable_string()?,
            id: reader.nullable_string()?,
        })
    };
    Ok(reader.list(entry)?.unwrap_or_default())
}

fn paths(reader: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    reader.list(Reader::string)?.ok_or(Malformed)
}

/// Each part has a header (kind, whether this is the end, an error); reads and
/// writes don't mix.
fn multi(reader: &mut Reader<'_>) -> Result<Vec<MultiOp>, Malformed> {
    let mut parts = Vec::new();
    loop {
        let code = reader.int()?;
        let done = reader.bool()?;
        let _error = reader.int()?;
        if done {
            break;
        }
        let part = match code {
            // The flags decide, not the kind: all but containers are answered with the path alone.
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
                let create = create(CreateKind::Plain, reader)?;
                let kind = if create.flags == 4 { CreateKind::Container } else { CreateKind::Plain };
                MultiOp::Create(Create { kind, ..create })
            }
            op::CREATE_TTL => {
                let create = create(CreateKind::Ttl, reader)?;
                let kind = if matches!(create.flags, 5 | 6) { CreateKind::Ttl } else { CreateKind::Plain };
                MultiOp::Create(Create { kind, ..create })
            }
            op::DELETE => MultiOp::Delete { path: reader.string()?, version: reader.int()? },
            op::SET_DATA => {
                MultiOp::SetData { path: reader.string()?, data: reader.buffer()?, version: reader.int()? }
            }
            op::CHECK => MultiOp::Check { path: reader.string()?, version: reader.int()? },
            op::GET_DATA => {
                let part = MultiOp::GetData { path: reader.string()? };
                let _watch = reader.bool()?;
                part
            }
            op::GET_CHILDREN => {
                let part = MultiOp::GetChildren { path: reader.string()? };
                let _watch = reader.bool()?;
                part
            }
            _ => return Err(Malformed),
        };
        parts.push(part);
    }
    let reads =
        parts.iter().filter(|part| matches!(part, MultiOp::GetData { .. } | MultiOp::GetChildren { .. }));
    let reads = reads.count();
    if reads != 0 && reads != parts.len() { Err(Malformed) } else { Ok(parts) }
}
