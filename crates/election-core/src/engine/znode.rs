//! What is known of one znode.

use std::sync::Arc;

use super::io::Node;
use crate::record::{Record, RecordError};

/// A znode that a watch reports and that this member also reads itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Znode {
    Decision,
    /// The leader znode of this slot.
    Leader(usize),
}

/// What is known of one znode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Known<T> {
    /// It has not been read in this session.
    #[default]
    Unread,
    /// It does not exist.
    Absent,
    /// It exists and can't be used.
    Unreadable(Box<RecordError>, Meta),
    /// It exists. What is derived from it shares the record.
    Present(Arc<T>, Meta),
}

/// What ZooKeeper reports about a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Meta {
    pub(crate) version: i32,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) owner: i64,
}

impl From<&Node> for Meta {
    fn from(node: &Node) -> Self {
        Self { version: node.version, czxid: node.czxid, mzxid: node.mzxid, owner: node.owner }
    }
}

impl<T: Record> Known<T> {
    pub(crate) fn read(path: &str, node: Option<&Node>) -> Self {
        match node {
            None => Self::Absent,
            Some(node) => match T::decode(path, &node.data) {
                Ok(record) => Self::Present(Arc::new(record), node.into()),
                Err(error) => Self::Unreadable(Box::new(error), node.into()),
            },
        }
    }
}

impl<T> Known<T> {
    pub(crate) fn record(&self) -> Option<&T> {
        self.shared().map(|record| &**record)
    }

    pub(crate) fn shared(&self) -> Option<&Arc<T>> {
        match self {
            Self::Present(record, _) => Some(record),
            _ => None,
        }
    }

    /// Why it can't be used, if it can't.
    pub(crate) fn error(&self) -> Option<&RecordError> {
        match self {
            Self::Unreadable(error, _) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn meta(&self) -> Option<Meta> {
        match self {
            Self::Present(_, meta) | Self::Unreadable(_, meta) => Some(*meta),
            Self::Unread | Self::Absent => None,
        }
    }

    /// Whether `node`, read by a watch, is older than what is known already: the outcome of an own write can be known
    /// before a watch's result.
    pub(crate) fn is_newer_than(&self, node: Option<&Node>) -> bool {
        self.meta().zip(node).is_some_and(|(known, node)| node.mzxid < known.mzxid)
    }
}
