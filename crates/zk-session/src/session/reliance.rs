//! What a session relies on that one server has told it, for [`audit`](crate::session::audit).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use zk_proto::WatchId;

use crate::lock::lock;

/// More paths than that are not remembered as refused.
const MOST_REFUSED: usize = 64;
/// More are not remembered as created.
const MOST_CREATED: usize = 256;

/// A znode, as the server of the connection has shown it. Here and below, paths are those of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) path: Arc<str>,
    pub(crate) version: i32,
}

/// What is to be checked.
pub(crate) struct Suspects {
    /// The readings that something waits on.
    pub(crate) shown: Vec<Shown>,
    /// The paths that were refused repeatedly.
    pub(crate) refused: Vec<String>,
    /// Those of the readings where this session has created another znode, after that change.
    pub(crate) replaced: Vec<(String, i64)>,
}

/// The readings of a session that something waits on, and the paths at which ZooKeeper has refused what such a reading
/// suggested.
#[derive(Default)]
pub(crate) struct Reliance(Mutex<ReliedOnZnodes>);

#[derive(Default)]
struct ReliedOnZnodes {
    shown: HashMap<WatchId, Shown>,
    begun: u64,
    /// How often each was refused since the last audit.
    refused: BTreeMap<String, u32>,
    /// Ephemerals that groups of this session have created over the present connection, each with the newest change that the
    /// session had seen before: what is there later is newer.
    created: HashMap<String, i64>,
}

impl Reliance {
    /// Somebody waits until this znode changes, under this number.
    pub(crate) fn begin(&self, id: WatchId, shown: Shown) {
        let mut table = lock(&self.0);
        table.shown.insert(id, shown);
        table.begun += 1;
    }

    pub(crate) fn end(&self, id: WatchId) {
        lock(&self.0).shown.remove(&id);
    }

    /// ZooKeeper has refused an operation for what exists at this path, or does not.
    pub(crate) fn refused(&self, path: &str) {
        let mut table = lock(&self.0);
        if table.refused.len() < MOST_REFUSED || table.refused.contains_key(path) {
            *table.refused.entry(path.to_owned()).or_default() += 1;
        }
    }

    /// A group of this session has created an ephemeral, after that change.
    pub(crate) fn created(&self, path: &str, after: i64) {
        let mut table = lock(&self.0);
        if table.created.len() < MOST_CREATED || table.created.contains_key(path) {
            table.created.insert(path.to_owned(), after);
        }
    }

    /// The connection was lost: the ensemble may have been restored from an older copy.
    pub(crate) fn forget_created(&self) {
        lock(&self.0).created = HashMap::new();
    }

    /// The number of readings so far, and whether a path was refused repeatedly. One refusal is as a rule that another
    /// client was faster.
    pub(crate) fn state(&self) -> (u64, bool) {
        let table = lock(&self.0);
        (table.begun, table.refused.values().any(|count| *count > 1))
    }

    /// What is to be checked. The count of refusals begins again.
    pub(crate) fn take(&self) -> Suspects {
        let mut table = lock(&self.0);
        let refused = std::mem::take(&mut table.refused).into_iter();
        let refused = refused.filter(|(_, count)| *count > 1).map(|(path, _)| path).collect();
        let mut shown: Vec<Shown> = table.shown.values().cloned().collect();
        shown.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        shown.dedup();
        let after = |shown: &Shown| Some((shown.path.to_string(), *table.created.get(&*shown.path)?));
        let replaced = shown.iter().filter_map(after).collect();
        Suspects { shown, refused, replaced }
    }
}
