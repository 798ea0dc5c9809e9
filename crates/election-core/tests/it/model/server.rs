//! ZooKeeper as visible to an election: znodes, sessions with their ephemerals, versions, sequential names, and views
//! that lag behind.

use std::{collections::BTreeMap, sync::Arc};

use election_core::internals::{Node, Outcome, Time, ZkOp};

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
            ZkOp::Get { path } => read(Outcome::Got(view.get(path).map(|node| (**node).clone()))),
            ZkOp::Children { path } => {
                read(Outcome::Names(children(view, path).map(|(name, _)| name.to_owned()).collect()))
            }
            ZkOp::Create { path, data, ephemeral } => {
                if self.tree.contains_key(path) {
                    return read(Outcome::Exists);
                }
                self.create(path, data, if *ephemeral { session } else { 0 })
            }
            ZkOp::CreateCounted { path, data, counter } => {
                if self.tree.contains_key(path) {
                    return read(Outcome::Exists);
                }
                let count = self.get(counter).map_or(0, |known| known.version + 1);
                let czxid = self.zxid + 1;
                let node = node(&[], count, czxid, 0);
                Arc::make_mut(&mut self.tree).insert(counter.clone(), Arc::new(node));
                let created = self.create(path, data, session);
                Applied { outcome: Outcome::Counted { czxid, count }, ..created }
            }
            ZkOp::CreateSequential { prefix, data, ephemeral, .. } => {
                let number = self.numbers.entry(parent_of(prefix).to_owned()).or_default();
                let path = format!("{prefix}{number:010}");
                *number += 1;
                self.create(&path, data, if *ephemeral { session } else { 0 })
            }
            ZkOp::Set { path, data, version } => match self.check(path, Some(*version)) {
                Err(outcome) => read(outcome),
                Ok(known) => {
                    self.zxid += 1;
                    let version = known.version + 1;
                    let node = Node { data: data.clone(), version, mzxid: self.zxid, ..known };
                    Arc::make_mut(&mut self.tree).insert(path.clone(), Arc::new(node));
                    let outcome = Outcome::Changed { version, mzxid: self.zxid };
                    Applied { outcome, changed: vec![path.clone()] }
                }
            },
            ZkOp::DeleteWhile { path, version, unchanged, unchanged_version } => {
                if self.get(unchanged).is_none_or(|node| node.version != *unchanged_version) {
                    return read(Outcome::Stale);
                }
                let delete = ZkOp::Delete { path: path.clone(), version: Some(*version) };
                self.apply(session, view, &delete)
            }
            ZkOp::Together { request, path, data, version } => {
                if version.is_some() && self.check(path, *version).is_err() {
                    return read(Outcome::Stale);
                }
                if version.is_none() && self.tree.contains_key(path) {
                    return read(Outcome::Exists);
                }
                let mut applied = self.apply_in_group(session, view, request);
                if let Outcome::Changed { .. } | Outcome::Created { .. } = &applied.outcome {
                    match version {
                        Some(_) => self.set_in_group(path, data),
                        None => {
                            let node = node(data, 0, self.zxid, 0);
                            Arc::make_mut(&mut self.tree).insert(path.clone(), Arc::new(node));
                        }
                    }
                    applied.changed.push(path.clone());
                }
                applied
            }
            ZkOp::Notifying { request, others } => {
                if others.iter().any(|(path, _)| self.check(path, None).is_err()) {
                    return read(Outcome::Stale);
                }
                let mut applied = self.apply_in_group(session, view, request);
                if let Outcome::Changed { .. } | Outcome::Created { .. } = &applied.outcome {
                    for (path, data) in others {
                        self.set_in_group(path, data);
                        applied.changed.push(path.clone());
                    }
                }
                applied
            }
            ZkOp::Clearing { request, others } => {
                if others.iter().any(|path| self.check(path, None).is_err()) {
                    return read(Outcome::Stale);
                }
                let mut applied = self.apply(session, view, request);
                if applied.outcome == Outcome::Ok {
                    for path in others {
                        Arc::make_mut(&mut self.tree).remove(path);
                        applied.changed.push(path.clone());
                    }
                }
                applied
            }
            ZkOp::While { there, version, request } => match self.check(there, *version) {
                Ok(_) => self.apply_in_group(session, view, request),
                Err(_) => read(Outcome::Stale),
            },
            ZkOp::Delete { path, version } => match self.check(path, *version) {
                Err(outcome) => read(outcome),
                Ok(_) => {
                    self.zxid += 1;
                    Arc::make_mut(&mut self.tree).remove(path);
                    Applied { outcome: Outcome::Ok, changed: vec![path.clone()] }
                }
            },
        }
    }

    /// Sets a znode in the last transaction.
    fn set_in_group(&mut self, path: &str, data: &[u8]) {
        let Some(known) = self.get(path).cloned() else { return };
        let node = Node { data: data.to_vec(), version: known.version + 1, mzxid: self.zxid, ..known };
        Arc::make_mut(&mut self.tree).insert(path.to_owned(), Arc::new(node));
    }

    /// A creation in a group with other operations: its data is set in the same transaction.
    fn apply_in_group(&mut self, session: i64, view: &Tree, request: &ZkOp) -> Applied {
        let mut applied = self.apply(session, view, request);
        if let (ZkOp::Create { .. }, Outcome::Created { path, version, .. }) = (request, &mut applied.outcome)
        {
            *version = 1;
            if let Some(node) = self.get(path).cloned() {
                Arc::make_mut(&mut self.tree).insert(path.clone(), Arc::new(Node { version: 1, ..node }));
            }
        }
        applied
    }

    /// Version -1 is any, as in ZooKeeper.
    fn check(&self, path: &str, version: Option<i32>) -> Result<Node, Outcome> {
        let known = self.get(path).ok_or(Outcome::Missing)?;
        match version {
            Some(version) if version != -1 && version != known.version => Err(Outcome::Stale),
            _ => Ok(known.clone()),
        }
    }

    fn create(&mut self, path: &str, data: &[u8], owner: i64) -> Applied {
        self.zxid += 1;
        let czxid = self.zxid;
        let node = node(data, 0, czxid, owner);
        Arc::make_mut(&mut self.tree).insert(path.to_owned(), Arc::new(node));
        let outcome = Outcome::Created { path: path.to_owned(), czxid, version: 0 };
        Applied { outcome, changed: vec![path.to_owned()] }
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
