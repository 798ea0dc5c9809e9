//! Znodes as ZooKeeper reports them, and the identities of sessions.

use std::fmt;

pub use zk_proto::{CreateMode, SessionId, Stat};

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
