//! An ensemble in memory. An election can't distinguish it from a real one.
//!
//! Every transaction has a zxid and a time. Every znode keeps its history, so that a server that lags can answer a
//! read. Sessions expire no earlier than their timeout after the last touch that the ensemble's leader knows of. Their
//! ephemerals are deleted with them in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use election_core::internals::{Node, Outcome, Transaction, WriteKind, ZkOp, ZnodeWrite};

/// Milliseconds of true time.
pub(crate) type Millis = u64;

/// A client's session, as the ensemble's leader knows it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) timeout: Millis,
    pub(crate) touched: Millis,
    pub(crate) over: bool,
}

/// The ensemble.
#[derive(Clone, Debug)]
pub(crate) struct Ensemble {
    zxid: i64,
    /// When each transaction was committed, oldest first.
    commits: Vec<(Millis, i64)>,
    znodes: BTreeMap<String, Vec<(i64, Option<Node>)>>,
    /// How many children a parent has ever had: what sequential names are made from.
    children: BTreeMap<String, i32>,
    sessions: BTreeMap<i64, Session>,
    next_session: i64,
}

/// Znodes, and what ZooKeeper does with a transaction on them.
pub(crate) trait Znodes {
    /// A znode as the last transaction left it.
    fn znode(&self, path: &str) -> Option<&Node>;

    /// Stores a znode in a transaction, or removes it.
    fn put(&mut self, path: &str, zxid: i64, node: Option<Node>);

    /// Version -1 is any, as in ZooKeeper.
    fn check(&self, path: &str, version: Option<i32>) -> Result<(), Outcome> {
        let known = self.znode(path).ok_or(Outcome::Missing)?;
        let fits = version.is_none_or(|version| version == -1 || version == known.version);
        if fits { Ok(()) } else { Err(Outcome::Stale) }
    }

    /// Why a write can't be applied, if it can't.
    fn refuses(&self, write: &ZnodeWrite) -> Option<Outcome> {
        match write.kind {
            WriteKind::Create { .. } => self.znode(&write.path).map(|_| Outcome::Exists),
            WriteKind::Set { version, .. } | WriteKind::Delete { version } => {
                self.check(&write.path, version).err()
            }
        }
    }

    /// Why a group with these writes besides its answer can't be applied, if it can't.
    fn refuses_any(&self, writes: &[ZnodeWrite]) -> Option<Outcome> {
        let refused = writes.iter().find_map(|write| self.refuses(write))?;
        Some(if refused == Outcome::Exists { refused } else { Outcome::Stale })
    }

    /// Applies all writes of a transaction, none of which is refused.
    fn carry_out(&mut self, stamp: i64, zxid: i64, session: i64, transaction: &Transaction) -> Applied {
        let Transaction { before, answer, after, .. } = transaction;
        let mut outcome = self.write(stamp, zxid, session, answer);
        if let Outcome::Created { path, version, .. } = &mut outcome
            && !transaction.is_single()
        {
            // Its data is set in the same transaction.
            *version = 1;
            let created = self.znode(path).map(|node| Node { version: 1, ..node.clone() });
            self.put(path, zxid, created);
        }
        before.iter().chain(after).for_each(|write| drop(self.write(stamp, zxid, session, write)));
        let changed = [answer].into_iter().chain(before).chain(after).map(|write| write.path.clone());
        Applied { outcome, changed: changed.collect() }
    }

    /// Applies a write, which is not refused.
    fn write(&mut self, stamp: i64, zxid: i64, session: i64, write: &ZnodeWrite) -> Outcome {
        let path = &write.path;
        match &write.kind {
            WriteKind::Create { data, ephemeral } => {
                let owner = if *ephemeral { session } else { 0 };
                self.put(path, zxid, Some(new_node(data.clone(), stamp, zxid, owner)));
                Outcome::Created { path: path.clone(), czxid: zxid, version: 0 }
            }
            WriteKind::Set { data, .. } => {
                let Some(known) = self.znode(path).cloned() else { return Outcome::Missing };
                let (data, version) = (data.clone(), known.version + 1);
                self.put(path, zxid, Some(Node { data, version, mzxid: zxid, mtime_ms: stamp, ..known }));
                Outcome::Changed { version, mzxid: zxid }
            }
            WriteKind::Delete { .. } => {
                self.put(path, zxid, None);
                Outcome::Ok
            }
        }
    }
}

/// A znode that was just created.
pub(crate) fn new_node(data: Vec<u8>, stamp: i64, zxid: i64, owner: i64) -> Node {
    Node { data, version: 0, czxid: zxid, mzxid: zxid, owner, ctime_ms: stamp, mtime_ms: stamp }
}

/// How a transaction went, and which paths it changed.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    pub(crate) changed: Vec<String>,
}

impl Applied {
    /// Of what changes nothing.
    pub(crate) fn refused(outcome: Outcome) -> Self {
        Self { outcome, changed: Vec::new() }
    }
}

impl Ensemble {
    pub(crate) fn new() -> Self {
        Self {
            zxid: 0x1_0000_0000,
            commits: Vec::new(),
            znodes: BTreeMap::new(),
            children: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_session: 0x1000,
        }
    }

    // ---- sessions ----

    pub(crate) fn open(&mut self, now: Millis, timeout: Millis) -> i64 {
        self.next_session += 1;
        self.sessions.insert(self.next_session, Session { timeout, touched: now, over: false });
        self.next_session
    }

    pub(crate) fn lives(&self, session: i64) -> bool {
        self.sessions.get(&session).is_some_and(|s| !s.over)
    }

    pub(crate) fn touch(&mut self, session: i64, at: Millis) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.touched = session.touched.max(at);
        }
    }

    /// When the session expires if it is not touched before.
    pub(crate) fn expires_at(&self, session: i64) -> Option<Millis> {
        self.sessions.get(&session).filter(|s| !s.over).map(|s| s.touched + s.timeout)
    }

    /// Another server leads the ensemble: every session's clock begins again.
    pub(crate) fn elect_leader(&mut self, now: Millis) {
        self.zxid = ((self.zxid >> 32) + 1) << 32;
        for session in self.sessions.values_mut() {
            session.touched = session.touched.max(now);
        }
    }

    /// Everything is as in the copy, sessions included, but the number of epochs where that is kept. Answers
    /// what has changed by it, and which sessions live again.
    pub(crate) fn restore(&mut self, copy: Self, keeps_epoch: bool) -> (Vec<String>, Vec<i64>) {
        let was = std::mem::replace(self, copy);
        // Ids of sessions begin with the time.
        self.next_session = was.next_session;
        if keeps_epoch {
            self.zxid = self.zxid.max(was.zxid);
        }
        let paths: BTreeSet<_> = was.znodes.keys().chain(self.znodes.keys()).collect();
        let changed = paths.into_iter().filter(|path| was.get(path) != self.get(path)).cloned().collect();
        let revived =
            self.sessions.keys().filter(|id| self.lives(**id) && !was.lives(**id)).copied().collect();
        (changed, revived)
    }

    /// Ends a session, and everything ephemeral of it in one transaction.
    pub(crate) fn end(&mut self, session: i64, now: Millis) -> Vec<String> {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.over = true;
        }
        let owned = self.owned_by(session);
        if !owned.is_empty() {
            let zxid = self.commit(now);
            for path in &owned {
                self.put(path, zxid, None);
            }
        }
        owned
    }

    // ---- reading ----

    /// The ephemerals of a session.
    pub(crate) fn owned_by(&self, session: i64) -> Vec<String> {
        let owned = |history: &[(i64, Option<Node>)]| latest(history).is_some_and(|n| n.owner == session);
        self.znodes.iter().filter(|(_, history)| owned(history)).map(|(path, _)| path.clone()).collect()
    }

    /// The last transaction that was committed at `time`.
    pub(crate) fn zxid_at(&self, time: Millis) -> i64 {
        let after = self.commits.partition_point(|(at, _)| *at <= time);
        after.checked_sub(1).map_or(0, |last| self.commits[last].1)
    }

    pub(crate) fn zxid(&self) -> i64 {
        self.commits.last().map_or(0, |(_, zxid)| *zxid)
    }

    /// What servers compare with what a client has seen: the last transaction, or the beginning of the epoch of
    /// their leader.
    pub(crate) fn newest(&self) -> i64 {
        self.zxid
    }

    /// A znode as a server has it that has applied everything up to `zxid`.
    pub(crate) fn get_at(&self, path: &str, zxid: i64) -> Option<&Node> {
        at(self.znodes.get(path)?, zxid)
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        latest(self.znodes.get(path)?)
    }

    /// The children of a znode and what they hold, by name.
    pub(crate) fn tree_at(&self, parent: &str, zxid: i64) -> BTreeMap<String, Node> {
        self.children_at(parent, zxid).map(|(name, node)| (name.to_owned(), node.clone())).collect()
    }

    fn children_at(&self, parent: &str, zxid: i64) -> impl Iterator<Item = (&str, &Node)> {
        let prefix = format!("{parent}/");
        let skipped = prefix.len();
        let below =
            self.znodes.range(prefix.clone()..).take_while(move |(path, _)| path.starts_with(&prefix));
        below.filter_map(move |(path, history)| {
            let name = &path[skipped..];
            let node = at(history, zxid).filter(|_| !name.contains('/'))?;
            Some((name, node))
        })
    }

    // ---- transactions ----

    /// Applies an operation of a session; reads are answered as of `view`.
    pub(crate) fn apply(&mut self, now: Millis, session: i64, view: i64, request: &ZkOp) -> Applied {
        match request {
            ZkOp::Get(path) => Applied::refused(Outcome::Got(self.get_at(path, view).cloned())),
            ZkOp::Children(path) => {
                let names = self.children_at(path, view).map(|(name, _)| name.to_owned());
                Applied::refused(Outcome::Names(names.collect()))
            }
            ZkOp::CreateSequential { prefix, data, ephemeral, .. } => {
                let mut changed = self.make_parents(now, prefix);
                let owner = if *ephemeral { session } else { 0 };
                let (path, czxid) = self.create_sequential(now, prefix, data.clone(), owner);
                changed.push(path.clone());
                Applied { outcome: Outcome::Created { path, czxid, version: 0 }, changed }
            }
            ZkOp::Multi(transaction) => self.transact(now, session, transaction),
        }
    }

    /// Applies all writes of a transaction, or none.
    fn transact(&mut self, now: Millis, session: i64, transaction: &Transaction) -> Applied {
        let Transaction { checks, before, answer, after } = transaction;
        if checks.iter().any(|(path, version)| self.check(path, *version).is_err()) {
            return Applied::refused(Outcome::Stale);
        }
        if let Some(refused) = self.refuses_any(before) {
            return Applied::refused(refused);
        }
        // A group creates no parents. Those of an election are created with its first ballot.
        for write in before.iter().filter(|write| write.creates()) {
            if self.was_deleted(parent_of(&write.path)) {
                return Applied::refused(Outcome::Stale);
            }
            self.make_parents(now, &write.path);
        }
        if let Some(refused) = self.refuses_any(after) {
            return Applied::refused(refused);
        }
        let subject = transaction.subject();
        let mut changed = match subject.creates() && self.get(&subject.path).is_none() {
            true => self.make_parents(now, &subject.path),
            false => Vec::new(),
        };
        if let Some(refused) = self.refuses(answer) {
            return Applied::refused(refused);
        }
        if transaction.counted().is_some() {
            // The recorded tokens are numbered as if the counter was set one transaction earlier.
            self.commit(now);
        }
        let zxid = self.commit(now);
        let applied = self.carry_out(stamp(now), zxid, session, transaction);
        changed.extend(applied.changed);
        Applied { changed, ..applied }
    }

    /// The numbers of the children continue below zero, as after 2^31 of them.
    pub(crate) fn wrap(&mut self, parent: &str) {
        self.children.insert(parent.to_owned(), i32::MIN);
    }

    pub(crate) fn create_sequential(
        &mut self,
        now: Millis,
        prefix: &str,
        data: Vec<u8>,
        owner: i64,
    ) -> (String, i64) {
        let number = self.children.get(parent_of(prefix)).copied().unwrap_or(0);
        let path = format!("{prefix}{number:010}");
        let czxid = self.create(now, &path, data, owner);
        (path, czxid)
    }

    pub(crate) fn create(&mut self, now: Millis, path: &str, data: Vec<u8>, owner: i64) -> i64 {
        let zxid = self.commit(now);
        self.put(path, zxid, Some(new_node(data, stamp(now), zxid, owner)));
        zxid
    }

    pub(crate) fn set(&mut self, now: Millis, path: &str, data: Vec<u8>, version: Option<i32>) -> Applied {
        self.transact(now, 0, &ZnodeWrite::set(path, data, version).into())
    }

    pub(crate) fn delete(&mut self, now: Millis, path: &str, version: Option<i32>) -> Applied {
        self.transact(now, 0, &ZnodeWrite::delete(path, version).into())
    }

    /// Deletes a znode and all below it, as an administrator's tool does; answers what was there.
    pub(crate) fn delete_tree(&mut self, now: Millis, root: &str) -> Vec<String> {
        let below = format!("{root}/");
        let there = |path: &String| path == root || path.starts_with(&below);
        let mut doomed: Vec<_> = self.znodes.keys().filter(|path| there(path)).cloned().collect();
        doomed.retain(|path| self.get(path).is_some());
        // Children first.
        for path in doomed.iter().rev() {
            self.delete(now, path, None);
        }
        doomed
    }

    /// Every znode that there is now.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.znodes.iter().filter(|(_, history)| latest(history).is_some()).map(|(path, _)| path)
    }

    /// Whether the znode has existed, and does not exist now.
    fn was_deleted(&self, path: &str) -> bool {
        self.znodes.contains_key(path) && self.get(path).is_none()
    }

    /// Creates the missing parents of a path. Returns the created ones.
    pub(crate) fn make_parents(&mut self, now: Millis, path: &str) -> Vec<String> {
        let missing: Vec<_> =
            with_ancestors(parent_of(path)).into_iter().filter(|path| self.get(path).is_none()).collect();
        for path in &missing {
            self.create(now, path, Vec::new(), 0);
        }
        missing
    }

    /// Gives up what no read as of now can ask for: what znodes held before, and which there were.
    #[allow(dead_code, reason = "a world of years needs it")]
    pub(crate) fn forget_history(&mut self) {
        self.commits.drain(..self.commits.len().saturating_sub(1));
        self.znodes.retain(|_, history| {
            history.drain(..history.len().saturating_sub(1));
            latest(history).is_some()
        });
        self.sessions.retain(|_, session| !session.over);
    }

    fn commit(&mut self, now: Millis) -> i64 {
        self.zxid += 1;
        self.commits.push((now, self.zxid));
        self.zxid
    }
}

impl Znodes for Ensemble {
    fn znode(&self, path: &str) -> Option<&Node> {
        self.get(path)
    }

    fn put(&mut self, path: &str, zxid: i64, node: Option<Node>) {
        match (&node, self.get(path)) {
            // Made again, it counts its children from 0.
            (None, _) => drop(self.children.remove(path)),
            (Some(_), None) => *self.children.entry(parent_of(path).to_owned()).or_default() += 1,
            (Some(_), Some(_)) => {}
        }
        self.znodes.entry(path.to_owned()).or_default().push((zxid, node));
    }
}

/// The clock of the servers, independent of that of any host.
fn stamp(now: Millis) -> i64 {
    1_000_000 + i64::try_from(now).unwrap_or(i64::MAX / 2)
}

/// What a znode held when everything up to `zxid` was applied.
fn at(history: &[(i64, Option<Node>)], zxid: i64) -> Option<&Node> {
    let after = history.partition_point(|(at, _)| *at <= zxid);
    history.get(after.checked_sub(1)?)?.1.as_ref()
}

fn latest(history: &[(i64, Option<Node>)]) -> Option<&Node> {
    history.last()?.1.as_ref()
}

pub(crate) fn parent_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn with_ancestors(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).skip(1);
    ends.map(|end| path[..end].to_owned()).collect()
}
