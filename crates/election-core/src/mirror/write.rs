//! What this member's own requests write.

use crate::engine::{Node, Outcome, ZkOp};

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
    /// All that a request of this session writes, apart from sequential znodes.
    pub fn all_of(request: &ZkOp, session: i64) -> Vec<Self> {
        Self::of(request, session, false)
    }

    /// A transaction sets what it is for, if it creates that: servers before 3.9 do not answer otherwise in which
    /// transaction that was.
    fn of(request: &ZkOp, session: i64, in_transaction: bool) -> Vec<Self> {
        match request {
            ZkOp::Create { path, data, ephemeral } => {
                let owner = if *ephemeral { session } else { 0 };
                let changes = 1 + u8::from(in_transaction);
                vec![Self { owner, changes, ..Self::create(path, data) }]
            }
            ZkOp::Set { path, data, version } => vec![Self::set(path, data, *version)],
            // What others are set to is what they have.
            ZkOp::While { request, .. } | ZkOp::Notifying { request, .. } => Self::of(request, session, true),
            ZkOp::Together { request, path, data, version } => {
                let other = version.map_or_else(|| Self::create(path, data), |v| Self::set(path, data, v));
                Self::of(request, session, true).into_iter().chain([other]).collect()
            }
            _ => Vec::new(),
        }
    }

    fn create(path: &str, data: &[u8]) -> Self {
        Self { path: path.to_owned(), data: data.to_owned(), over: None, owner: 0, changes: 1 }
    }

    fn set(path: &str, data: &[u8], version: i32) -> Self {
        Self { over: Some(version), ..Self::create(path, data) }
    }

    /// The znode after this outcome of the request, if that is known; `before` is the znode as it was.
    pub fn done(&self, outcome: &Outcome, before: Option<&Node>) -> Option<Node> {
        let data = self.data.clone();
        match (outcome, self.over) {
            (Outcome::Created { czxid, version, .. }, None) => {
                let (zxid, owner) = (*czxid, self.owner);
                Some(Node {
                    data,
                    // That of what the request is for, which the transaction also sets.
                    version: if self.changes > 1 { *version } else { 0 },
                    czxid: zxid,
                    mzxid: zxid,
                    owner,
                    ctime_ms: 0,
                    mtime_ms: 0,
                })
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
