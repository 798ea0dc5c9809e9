//! ZooKeeper as visible to an election: znodes, sessions with their ephemerals, versions, sequential names, and views
//! that lag behind.

use std::{collections::BTreeMap, sync::Arc};

use election_core::internals::{Node, Outcome, Time, Transaction, ZkOp, ZnodeWrite};

use crate::{
    model::{
        canon::FIRST_ZXID,
        settings::{TICK, TIMEOUT},
    },
    zookeeper::{Applied, Znodes, new_node, parent_of},
};

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
        let read = Applied::refused;
        match request {
            ZkOp::Get(path) => read(Outcome::Got(view.get(path).map(|node| (**node).clone()))),
            ZkOp::Children(path) => {
                read(Outcome::Names(children(view, path).map(|(name, _)| name.to_owned()).collect()))
            }
            ZkOp::CreateSequential { prefix, data, ephemeral, .. } => {
                let parent = parent_of(prefix);
                if self.get(parent).is_none() {
                    self.put(parent, 0, Some(new_node(Vec::new(), NO_TIME, 0, 0)));
                }
                let number = self.numbers.entry(parent.to_owned()).or_default();
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
        let Transaction { checks, before, answer, after } = transaction;
        if checks.iter().any(|(path, version)| self.check(path, *version).is_err()) {
            return Applied::refused(Outcome::Stale);
        }
        if let Some(refused) = self.refuses_any(before).or_else(|| self.refuses_any(after)) {
            return Applied::refused(refused);
        }
        if transaction.counted().is_some() && self.get(&answer.path).is_none() {
            // Directories are there without being created here.
            self.put(&answer.path, 0, Some(Node { version: -1, ..new_node(Vec::new(), NO_TIME, 0, 0) }));
        }
        if let Some(refused) = self.refuses(answer) {
            return Applied::refused(refused);
        }
        self.zxid += 1;
        self.carry_out(NO_TIME, self.zxid, session, transaction)
    }
}

/// What time it is plays no part here.
const NO_TIME: i64 = 0;

impl Znodes for Server {
    fn znode(&self, path: &str) -> Option<&Node> {
        self.get(path)
    }

    fn put(&mut self, path: &str, _: i64, node: Option<Node>) {
        let tree = Arc::make_mut(&mut self.tree);
        match node {
            Some(node) => drop(tree.insert(path.to_owned(), Arc::new(node))),
            None => drop(tree.remove(path)),
        }
    }
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
