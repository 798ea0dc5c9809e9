//! What this member's own requests write.

use crate::engine::{Node, Outcome, WriteKind, ZkOp, ZnodeWrite};

/// What a request sets or creates.
#[derive(Clone, Debug)]
pub struct Write {
    /// The znode.
    pub path: String,
    /// Its data then.
    pub data: Vec<u8>,
    /// The version that it replaces; `None` if it creates the znode.
    pub over: Option<i32>,
    /// The session that owns the znode that it creates, 0 if that is persistent.
    pub owner: i64,
    /// The number of changes that watches report of it.
    pub changes: u8,
}

impl Write {
    /// All that a request of this session writes, apart from sequential znodes and from what is deleted or counted.
    pub fn all_of(request: &ZkOp, session: i64) -> Vec<Self> {
        let ZkOp::Multi(transaction) = request else { return Vec::new() };
        if transaction.counted().is_some() {
            return Vec::new();
        }
        // What any version is set to with something else is what it has.
        let is_news = |write: &&ZnodeWrite| !matches!(write.kind, WriteKind::Set { version: None, .. });
        let others = transaction.before.iter().filter(is_news).filter_map(|write| Self::of(write, session));
        // A transaction sets what it is for, if it creates that: servers before 3.9 do not answer otherwise in which
        // transaction that was.
        let changes = 1 + u8::from(transaction.answer.creates() && !transaction.is_single());
        let answer = Self::of(&transaction.answer, session).map(|write| Self { changes, ..write });
        answer.into_iter().chain(others).collect()
    }

    fn of(write: &ZnodeWrite, session: i64) -> Option<Self> {
        let (data, over, owner) = match &write.kind {
            WriteKind::Create { data, ephemeral } => (data, None, if *ephemeral { session } else { 0 }),
            WriteKind::Set { data, version } => (data, Some(version.unwrap_or(-1)), 0),
            WriteKind::Delete { .. } => return None,
        };
        Some(Self { path: write.path.clone(), data: data.clone(), over, owner, changes: 1 })
    }

    /// The znode after this outcome of the request, if that is known; `before` is the znode as it was.
    pub fn done(&self, outcome: &Outcome, before: Option<&Node>) -> Option<Node> {
        let data = self.data.clone();
        match (outcome, self.over) {
            (Outcome::Created { czxid, version, .. }, None) => {
                // That of what the request is for, which the transaction also sets.
                let version = if self.changes > 1 { *version } else { 0 };
                Some(Node { version, ..Node::created(data, *czxid, self.owner) })
            }
            // All of a transaction is of one moment.
            (Outcome::Created { czxid: mzxid, .. } | Outcome::Changed { mzxid, .. }, Some(over)) => {
                let before = before.filter(|before| before.version == over)?;
                Some(Node { data, version: over + 1, mzxid: *mzxid, ..before.clone() })
            }
            _ => None,
        }
    }
}
