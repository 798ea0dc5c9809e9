//! ZooKeeper as visible to an election: znodes, sessions with their ephemerals, versions, sequential names, and views
//! that lag behind.

use std::{collections::BTreeMap, sync::Arc};

use election_core::internals::{Node, Outcome, Time, Transaction, WriteKind, ZkOp, ZnodeWrite};

use crate::model::canon::FIRST_ZXID;
use crate::model::settings::{TICK, TIMEOUT};

/// All znodes at one moment. A member whose server lags keeps an older one.
pub(crate) type Tree = Arc<BTreeMap<String, Arc<Node>>>;

/// The ensemble.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Server {
    zxid: i64,
    pub(crate) tree: Tree,
    numbers: BTreeMap<String, u32>,
    /// When each living session was heard of last.
    pub(crate) sessions: BTreeMap<i64, Time>,
    next_session: i64,
    /// Writes of sessions whose client has lost the connection over which they were sent.
    pub(crate) strays: Vec<(i64, ZkOp)>,
}

/// How a request went, and what it changed.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    pub(crate) changed: Vec<String>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            zxid: FIRST_ZXID,
            tree: Tree::default(),
            numbers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 0x1000,
            strays: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, now: Time) -> i64 {
        self.next_session += 1;
        self.sessions.insert(self.next_session, now);
        self.next_session
    }

    pub(crate) fn lives(&self, session: i64) -> bool {
        self.sessions.contains_key(&session)
    }

    pub(crate) fn touch(&mut self, session: i64, now: Time) {
        if let Some(touched) = self.sessions.get_mut(&session) {
            *touched = now;
        }
    }

    /// A session may be closed from now on, and is closed before time passes twice.
    pub(crate) fn may_close(&mut self, session: i64, now: Time) {
        self.touch(session, Time::from_origin(now.since_origin() - TICK * TIMEOUT));
    }

    /// Ends a session, and everything ephemeral of it in one transaction.
    pub(crate) fn end(&mut self, session: i64) -> Vec<String> {
        self.sessions.remove(&session);
        self.has_moved(session);
        let owned = self.tree.iter().filter(|(_, n)| n.owner == session);
        let owned: Vec<_> = owned.map(|(path, _)| path.clone()).collect();
        if !owned.is_empty() {
            self.zxid += 1;
            let tree = Arc::make_mut(&mut self.tree);
            owned.iter().for_each(|path| drop(tree.remove(path)));
        }
        owned
    }

    /// A write has come over the session's latest connection: those that were sent before it are refused from now on.
    pub(crate) fn has_moved(&mut self, session: i64) {
        self.strays.retain(|(of, _)| *of != session);
    }

    /// Deletes everything; answers what was there. Parents that are made again count their children from 0.
    pub(crate) fn delete_all(&mut self) -> Vec<String> {
        self.zxid += 1;
        self.numbers.clear();
        std::mem::take(&mut self.tree).keys().cloned().collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.tree.get(path).map(|node| &**node)
    }

    /// Applies a request of a session; what it reads it reads in `view`.
    pub(crate) fn apply(&mut self, session: i64, view: &Tree, request: &ZkOp) -> Applied {
        let read = |outcome| Applied { outcome, changed: Vec::new() };
        match request {
            ZkOp::Get(path) => read(Outcome::Got(view.get(path).map(|node| (**node).clone()))),
            ZkOp::Children(path) => {
                read(Outcome::Names(children(view, path).map(|(name, _)| name.to_owned()).collect()))
            }
            ZkOp::CreateSequential { prefix, data, ephemeral, .. } => {
                let number = self.numbers.entry(parent_of(prefix).to_owned()).or_default();
                let path = format!("{prefix}{number:010}");
                *number += 1;
                let create = match ephemeral {
                    true => ZnodeWrite::create_ephemeral(path, &**data),
                    false => ZnodeWrite::create(path, &**data),
                };
                self.transact(session, &create.into())
            }
            ZkOp::Multi(transaction) => self.transact(session, transaction),
        }
    }

    /// Applies all writes of a transaction, or none.
    fn transact(&mut self, session: i64, transaction: &Transaction) -> Applied {
        let refused = |outcome| Applied { outcome, changed: Vec::new() };
        let Transaction { checks, before, answer, after } = transaction;
        if checks.iter().any(|(path, version)| self.check(path, *version).is_err()) {
            return refused(Outcome::Stale);
        }
        match before.iter().chain(after).find_map(|write| self.refuses(write)) {
            None => {}
            Some(Outcome::Exists) => return refused(Outcome::Exists),
            Some(_) => return refused(Outcome::Stale),
        }
        if transaction.counted().is_some() && self.get(&answer.path).is_none() {
            // Directories are there without being created here.
            self.put(&answer.path, node(&[], -1, 0, 0));
        }
        if let Some(outcome) = self.refuses(answer) {
            return refused(outcome);
        }
        self.zxid += 1;
        let mut outcome = self.write(session, answer);
        if let Outcome::Created { path, version, .. } = &mut outcome
            && !transaction.is_single()
            && let Some(created) = self.get(path).cloned()
        {
            // Its data is set in the same transaction.
            *version = 1;
            self.put(path, Node { version: 1, ..created });
        }
        before.iter().chain(after).for_each(|write| drop(self.write(session, write)));
        let changed = [answer].into_iter().chain(before).chain(after).map(|write| write.path.clone());
        Applied { outcome, changed: changed.collect() }
    }

    /// Why a write can't be applied, if it can't.
    fn refuses(&self, write: &ZnodeWrite) -> Option<Outcome> {
        match write.kind {
            WriteKind::Create { .. } => self.get(&write.path).map(|_| Outcome::Exists),
            WriteKind::Set { version, .. } | WriteKind::Delete { version } => {
                self.check(&write.path, version).err()
            }
        }
    }

    /// Applies a write, which is not refused, in the last transaction.
    fn write(&mut self, session: i64, write: &ZnodeWrite) -> Outcome {
        let (path, zxid) = (&write.path, self.zxid);
        match &write.kind {
            WriteKind::Create { data, ephemeral } => {
                self.put(path, node(data, 0, zxid, if *ephemeral { session } else { 0 }));
                Outcome::Created { path: path.clone(), czxid: zxid, version: 0 }
            }
            WriteKind::Set { data, .. } => {
                let Some(known) = self.get(path).cloned() else { return Outcome::Missing };
                let version = known.version + 1;
                self.put(path, Node { data: data.clone(), version, mzxid: zxid, ..known });
                Outcome::Changed { version, mzxid: zxid }
            }
            WriteKind::Delete { .. } => {
                Arc::make_mut(&mut self.tree).remove(path);
                Outcome::Ok
            }
        }
    }

    fn put(&mut self, path: &str, node: Node) {
        Arc::make_mut(&mut self.tree).insert(path.to_owned(), Arc::new(node));
    }

    /// Version -1 is any, as in ZooKeeper.
    fn check(&self, path: &str, version: Option<i32>) -> Result<Node, Outcome> {
        let known = self.get(path).ok_or(Outcome::Missing)?;
        match version {
            Some(version) if version != -1 && version != known.version => Err(Outcome::Stale),
            _ => Ok(known.clone()),
        }
    }
}

/// A znode that was just created. What time it is plays no part here.
fn node(data: &[u8], version: i32, czxid: i64, owner: i64) -> Node {
    Node { data: data.to_vec(), version, czxid, mzxid: czxid, owner, ctime_ms: 0, mtime_ms: 0 }
}

/// The children of a znode by name.
pub(crate) fn children<'a>(
    tree: &'a Tree,
    parent: &str,
) -> impl Iterator<Item = (&'a str, &'a Arc<Node>)> + use<'a> {
    let prefix = format!("{parent}/");
    let length = prefix.len();
    let below = tree.range(prefix.clone()..);
    below
        .take_while(move |(path, _)| path.starts_with(&prefix))
        .map(move |(path, node)| (&path[length..], node))
}

pub(crate) fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
