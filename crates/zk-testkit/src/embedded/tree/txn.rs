//! What is in the log: a change that has been found possible, or the reason why
//! it is none.

use std::sync::Arc;

use bytes::Bytes;
use zk_proto::{Acl, ErrorCode, OpCode};

use super::node::Owner;

#[derive(Debug, Clone)]
pub(crate) struct Txn {
    pub(crate) zxid: i64,
    /// Milliseconds since 1970.
    pub(crate) time: i64,
    pub(crate) session: i64,
    pub(crate) change: Change,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    OpenSession,
    /// With the ephemerals to delete, in their order.
    CloseSession(Vec<String>),
    Create {
        path: String,
        data: Option<Bytes>,
        acl: Arc<[Acl]>,
        owner: Owner,
        created_children: i32,
        /// Whether the reply has the stat.
        with_stat: bool,
    },
    Delete(String),
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Arc<[Acl]>,
        version: i32,
    },
    /// A version was as expected.
    Checked,
    Nothing(ErrorCode),
    /// All or, if one of them is `Nothing`, none.
    Multi(Vec<Change>),
}

impl Change {
    /// As which kind of request it is answered as a part of a group.
    pub(super) fn part_op(&self) -> OpCode {
        match self {
            Self::Create { with_stat: false, .. } => OpCode::CREATE,
            Self::Create { with_stat: true, .. } => OpCode::CREATE2,
            Self::Delete(_) => OpCode::DELETE,
            Self::SetData { .. } => OpCode::SET_DATA,
            _ => OpCode::CHECK,
        }
    }
}
