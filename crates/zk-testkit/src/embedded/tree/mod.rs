//! The znodes of one server, and the transactions that change them.

mod acl;
mod hash_order;
mod node;
pub(crate) mod path;
mod txn;
mod watches;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use zk_proto::{ErrorCode, OpCode, PartReply, Reply, permission};

pub(crate) use acl::{SUPER, check, digest_id, for_anyone, settle, user, without_hashes};
pub(crate) use hash_order::HashOrder;
pub(crate) use node::{LONGEST_TTL, Node, Owner};
pub(crate) use txn::{Change, Txn};
pub(crate) use watches::{Notice, WatchMode, Watcher, Watches};

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    /// The root has the empty path here; `/` is another name of it.
    nodes: HashMap<String, Node>,
    ephemerals: HashMap<i64, HashOrder<String>>,
    /// Those that end by themselves.
    expiring: BTreeSet<String>,
    /// Whose deletions this server does not carry out.
    kept: HashSet<String>,
    zxid: i64,
}

impl Tree {
    /// With what is in `/zookeeper/config`: who belongs to the ensemble, nothing for a server alone.
    pub(crate) fn new(config: String) -> Self {
        let mut tree = Self::default();
        for (path, acl, children) in [
            ("", for_anyone(permission::ALL), &["zookeeper"][..]),
            // In the order in which Apache ZooKeeper makes them.
            ("/zookeeper", for_anyone(permission::ALL), &["quota", "config"]),
            ("/zookeeper/quota", for_anyone(permission::ALL), &[]),
            ("/zookeeper/config", for_anyone(permission::READ), &[]),
        ] {
            let mut node = Node::new(Some(Bytes::new()), acl, Owner::Nobody, 0, 0);
            if path == "/zookeeper/config" {
                // Apache ZooKeeper sets its access list without saying which version that makes.
                node.aversion = -1;
                // Nor does it with the configuration.
                node.version = if config.is_empty() { 0 } else { -1 };
                node.data = Some(Bytes::from(config.clone()));
            }
            for child in children {
                node.children.insert((*child).to_owned());
            }
            tree.nodes.insert(path.to_owned(), node);
        }
        tree
    }

    /// This server does not carry out deletions of that znode; `false` lets it again.
    pub(crate) fn keep(&mut self, path: &str, on: bool) {
        if on {
            self.kept.insert(path.to_owned());
        } else {
            self.kept.remove(path);
        }
    }

    /// Removes a znode as if its creation had never been carried out here: no watch reports it.
    pub(crate) fn lose(&mut self, path: &str) {
        self.delete(path, self.get(path).map_or(0, |node| node.czxid), &mut Watches::new(false));
    }

    /// The last transaction.
    pub(crate) fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Another server leads from now on: the upper half of a zxid counts that.
    pub(crate) fn begin_epoch(&mut self) {
        self.zxid = ((self.zxid >> 32) + 1) << 32;
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path == "/" { "" } else { path })
    }

    pub(crate) fn find(&self, path: &str) -> Result<&Node, ErrorCode> {
        self.get(path).ok_or(ErrorCode::NO_NODE)
    }

    /// Whether it was there before the first transaction: such a znode is always there.
    pub(crate) fn is_reserved(&self, path: &str) -> bool {
        self.get(path).is_some_and(|node| node.czxid == 0)
    }

    /// Counted as Apache ZooKeeper does, the root twice.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() + 1
    }

    /// How many znodes are below a path.
    pub(crate) fn count_below(&self, path: &str) -> usize {
        match path {
            "/" => self.nodes.len() - 1,
            "" => self.nodes.len(),
            path => {
                let below =
                    |other: &String| other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
                self.nodes.keys().filter(|other| below(other)).count()
            }
        }
    }

    pub(crate) fn ephemerals(&self, session: i64) -> Vec<String> {
        self.ephemerals.get(&session).map(HashOrder::cloned_order).unwrap_or_default()
    }

    pub(crate) fn ephemerals_len(&self) -> usize {
        self.ephemerals.values().map(HashOrder::len).sum()
    }

    /// About how many bytes paths and data take.
    pub(crate) fn data_size(&self) -> usize {
        self.nodes
            .iter()
            .map(|(path, node)| path.len() + node.data.as_ref().map_or(0, |data| data.len()))
            .sum()
    }

    /// Containers that have had children and have none, and znodes whose time to
    /// live is over.
    pub(crate) fn ended(&self, time: i64) -> Vec<String> {
        let is_over = |path: &&String| {
            let Some(node) = self.get(path).filter(|node| node.children.is_empty()) else { return false };
            match node.owner {
                Owner::Container => node.created_children > 0,
                Owner::Ttl(ttl) => time - node.mtime > ttl,
                Owner::Nobody | Owner::Session(_) => false,
            }
        };
        self.expiring.iter().filter(is_over).cloned().collect()
    }

    /// Whether anything may end by itself.
    pub(crate) fn has_expiring_znodes(&self) -> bool {
        !self.expiring.is_empty()
    }

    /// Carries a transaction out, and gives the reply to who asked for it.
    pub(crate) fn apply(&mut self, txn: &Txn, watches: &mut Watches) -> Result<Reply, ErrorCode> {
        let reply = self.carry_out(txn, &txn.change, watches);
        self.zxid = txn.zxid;
        reply
    }

    fn carry_out(&mut self, txn: &Txn, change: &Change, watches: &mut Watches) -> Result<Reply, ErrorCode> {
        Ok(match change {
            Change::OpenSession | Change::Checked => Reply::Empty,
            Change::CloseSession(paths) => {
                for path in paths {
                    self.delete(path, txn.zxid, watches);
                }
                self.ephemerals.remove(&txn.session);
                Reply::Empty
            }
            Change::Create { path, data, acl, owner, created_children, with_stat } => {
                // Only where this server disagrees with the others. As Apache ZooKeeper does, it leaves its own znode there.
                if self.get(path).is_some() {
                    return Err(ErrorCode::NODE_EXISTS);
                }
                let node = Node::new(data.clone(), Arc::clone(acl), *owner, txn.zxid, txn.time);
                let stat = node.stat();
                self.create(path, node, *created_children, watches);
                if *with_stat { Reply::PathAndStat(path.clone(), stat) } else { Reply::Path(path.clone()) }
            }
            Change::Delete(path) => {
                self.find(path)?;
                self.delete(path, txn.zxid, watches);
                Reply::Empty
            }
            Change::SetData { path, data, version } => {
                let node = self.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
                node.data.clone_from(data);
                node.version = *version;
                node.mzxid = txn.zxid;
                node.mtime = txn.time;
                let (stat, acl) = (node.stat(), Arc::clone(&node.acl));
                watches.data_changed(path, &acl);
                Reply::Stat(stat)
            }
            Change::SetAcl { path, acl, version } => {
                let node = self.get_mut(path).ok_or(ErrorCode::NO_NODE)?;
                node.acl = Arc::clone(acl);
                node.aversion = *version;
                Reply::Stat(node.stat())
            }
            Change::Nothing(code) => return Err(*code),
            Change::Multi(changes) => Reply::Multi(self.apply_multi(txn, changes, watches)),
        })
    }

    fn apply_multi(&mut self, txn: &Txn, changes: &[Change], watches: &mut Watches) -> Vec<PartReply> {
        let failed = changes.iter().position(|change| matches!(change, Change::Nothing(_)));
        let Some(failed) = failed else {
            return changes
                .iter()
                .map(|change| match (self.carry_out(txn, change, watches), change) {
                    // Of a group Apache ZooKeeper does not report that its own znodes differ from the leader's.
                    (Err(_), Change::Create { path, .. }) => {
                        (change.part_op(), Ok(Reply::Path(path.clone())))
                    }
                    (Err(_), Change::Delete(_)) => (change.part_op(), Ok(Reply::Empty)),
                    (Err(code), _) => (OpCode::ERROR, Err(code)),
                    (done, _) => (change.part_op(), done),
                })
                .collect();
        };
        let error = |(index, change): (usize, &Change)| match change {
            Change::Nothing(code) => *code,
            _ if index < failed => ErrorCode::OK,
            _ => ErrorCode::RUNTIME_INCONSISTENCY,
        };
        changes.iter().enumerate().map(error).map(|error| (OpCode::ERROR, Err(error))).collect()
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(if path == "/" { "" } else { path })
    }

    fn create(&mut self, path: &str, node: Node, created_children: i32, watches: &mut Watches) {
        let Ok(parent) = path::parent(path) else { return };
        let Some(above) = self.get_mut(parent) else { return };
        above.created_children = created_children;
        above.pzxid = node.czxid;
        above.children.insert(path::name(path).to_owned());
        let parent_acl = Arc::clone(&above.acl);
        let acl = Arc::clone(&node.acl);
        match node.owner {
            Owner::Nobody => {}
            Owner::Session(session) => {
                let owned = self.ephemerals.entry(session).or_insert_with(|| HashOrder::with_capacity(16));
                owned.insert(path.to_owned());
            }
            Owner::Container | Owner::Ttl(_) => {
                self.expiring.insert(path.to_owned());
            }
        }
        self.nodes.insert(path.to_owned(), node);
        watches.created(path, &acl, parent, &parent_acl);
    }

    fn delete(&mut self, path: &str, zxid: i64, watches: &mut Watches) {
        let Ok(parent) = path::parent(path) else { return };
        if self.kept.contains(path) {
            return;
        }
        let Some(node) = self.nodes.remove(path) else { return };
        match node.owner {
            Owner::Nobody => {}
            Owner::Session(session) => {
                if let Some(owned) = self.ephemerals.get_mut(&session) {
                    owned.remove(&path.to_owned());
                }
            }
            Owner::Container | Owner::Ttl(_) => {
                self.expiring.remove(path);
            }
        }
        let Some(above) = self.get_mut(parent) else { return };
        above.children.remove(&path::name(path).to_owned());
        above.pzxid = zxid;
        let parent_acl = Arc::clone(&above.acl);
        watches.deleted(path, &node.acl, parent, &parent_acl);
    }
}
