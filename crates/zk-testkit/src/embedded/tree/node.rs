//! A znode.

use std::sync::Arc;

use bytes::Bytes;
use zk_proto::{Acl, Stat};

use super::hash_order::HashOrder;

/// What the two kinds of znode that end by themselves have as their owner.
const CONTAINER_OWNER: i64 = i64::MIN;
const TTL_OWNER: i64 = 0xff << 56;
/// The longest time to live, in milliseconds: 40 bits.
pub(crate) const LONGEST_TTL: i64 = (1 << 40) - 1;

/// How long a znode lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Nobody,
    Session(i64),
    /// Removed some time after its last child.
    Container,
    /// Removed once it has had no child and no change for so many milliseconds.
    Ttl(i64),
}

impl Owner {
    /// The number that such a znode has instead of a session; never shown.
    pub(crate) fn is_reserved(session: i64) -> bool {
        session == CONTAINER_OWNER || session & TTL_OWNER == TTL_OWNER
    }

    fn shown(self) -> i64 {
        match self {
            Self::Session(session) => session,
            Self::Nobody | Self::Container | Self::Ttl(_) => 0,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) owner: Owner,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// How many children have ever been created; also the next sequence number.
    pub(crate) created_children: i32,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) children: HashOrder<String>,
}

impl Node {
    pub(crate) fn new(data: Option<Bytes>, acl: Arc<[Acl]>, owner: Owner, zxid: i64, time: i64) -> Self {
        Self {
            data,
            acl,
            owner,
            version: 0,
            aversion: 0,
            created_children: 0,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            children: HashOrder::with_capacity(8),
        }
    }

    pub(crate) fn stat(&self) -> Stat {
        let children = i32::try_from(self.children.len()).unwrap_or(i32::MAX);
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime_ms: self.ctime,
            mtime_ms: self.mtime,
            version: self.version,
            // Creations and deletions: each child that is gone counts twice.
            cversion: self.created_children.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: self.owner.shown(),
            data_length: self.data.as_ref().map_or(0, |data| i32::try_from(data.len()).unwrap_or(i32::MAX)),
            num_children: children,
            pzxid: self.pzxid,
        }
    }
}
