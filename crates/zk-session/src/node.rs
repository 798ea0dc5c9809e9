//! Znodes as ZooKeeper reports them, and the identities of sessions.

use std::fmt;

/// Counts the sessions that one [`Session`](crate::Session) has had in this process: 1, 2, and so on.
///
/// An epoch names one [`Incarnation`](crate::Incarnation) within the process; [`SessionId`] names it to ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// ZooKeeper's id of a session: what [`Stat::ephemeral_owner`] holds. Printed in hexadecimal, as ZooKeeper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How long a znode lives.
///
/// There is no 'container': not every driver can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted or the session that created it ends.
    Ephemeral,
}

/// The metadata of a znode.
///
/// A zxid numbers ZooKeeper's changes in their order, over the whole ensemble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stat {
    /// The zxid of the change that created the znode: no two znodes, and no two lives of one path, share it.
    pub czxid: i64,
    /// The zxid of the last change of the data.
    pub mzxid: i64,
    /// The zxid of the last change of the set of children.
    pub pzxid: i64,
    /// Changes of the data since the znode was created: 0 in every new znode.
    pub version: i32,
    /// Changes of the set of children.
    pub cversion: i32,
    /// The [`SessionId`] that an ephemeral znode belongs to, 0 for a persistent one.
    pub ephemeral_owner: i64,
    /// When it was created, by the server's wall clock, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// When the data was last changed, by the server's wall clock, in milliseconds since 1970.
    pub mtime_ms: i64,
    /// How many children it has.
    pub num_children: i32,
    /// Bytes of data.
    pub data_length: i32,
}

impl Stat {
    /// Whether this is an ephemeral znode of that session.
    pub fn is_owned_by(&self, session: SessionId) -> bool {
        self.ephemeral_owner != 0 && self.ephemeral_owner == session.0
    }
}

/// A znode as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its content.
    pub data: Vec<u8>,
    /// Its metadata, of the same moment as the content.
    pub stat: Stat,
}

impl Node {
    /// A node that was not read from ZooKeeper, for tests of code that takes nodes.
    pub fn new(data: impl Into<Vec<u8>>, stat: Stat) -> Self {
        Self { data: data.into(), stat }
    }
}

/// The children of a znode as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Children {
    /// Their names (the last element of their paths), sorted.
    pub names: Vec<String>,
    /// The metadata of the parent, of the same moment as the names.
    pub stat: Stat,
}

impl Children {
    /// Children that were not read from ZooKeeper, for tests of code that takes children.
    pub fn new(mut names: Vec<String>, stat: Stat) -> Self {
        names.sort_unstable();
        Self { names, stat }
    }
}

/// A znode that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// Its path: for a sequential znode with the number that the server appended.
    pub path: String,
    /// Its metadata.
    pub stat: Stat,
}
