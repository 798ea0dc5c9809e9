//! What this member's own requests write.

use crate::engine::{Node, Outcome, Request};

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
    pub fn all_of(request: &Request, session: i64) -> Vec<Self> {
        match request {
            Request::Create { path, data, ephemeral } => {
                let owner = if *ephemeral { session } else { 0 };
                vec![Self { path: path.clone(), data: data.clone(), over: None, owner, changes: 1 }]
            }
            Request::Set { path, data, version } => vec![Self::set(path, data, *version)],
            // What others are set to is what they have.
            Request::While { request, .. } | Request::Notifying { request, .. } => {
                Self::of_transaction(request, session)
            }
            Request::Together { request, path, data, version } => {
                let other = Self::set(path, data, *version);
                Self::of_transaction(request, session).into_iter().chain([other]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A transaction sets what it creates: servers before 3.9 do not answer otherwise in which transaction that was.
    fn of_transaction(request: &Request, session: i64) -> Vec<Self> {
        let mut writes = Self::all_of(request, session);
        for write in writes.iter_mut().filter(|write| write.over.is_none()) {
            write.changes = 2;
        }
        writes
    }

    fn set(path: &str, data: &[u8], version: i32) -> Self {
        Self { path: path.to_owned(), data: data.to_owned(), over: Some(version), owner: 0, changes: 1 }
    }

    /// The znode after this outcome of the request, if that is known; `before` is the znode as it was.
    pub fn done(&self, outcome: &Outcome, before: Option<&Node>) -> Option<Node> {
        let data = self.data.clone();
        match (outcome, self.over) {
            (Outcome::Created { czxid, version, .. }, None) => {
                let (zxid, owner) = (*czxid, self.owner);
                Some(Node {
                    data,
                    version: *version,
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
