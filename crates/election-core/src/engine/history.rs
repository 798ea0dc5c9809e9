//! The history: one entry for each leadership, and a bounded number of entries.
//!
//! The leader writes its entry together with READY. If that is refused, or its outcome is unknown, READY is written alone, and
//! the entry here. The fencing token is its name, so an entry that was written already is not written twice.

use std::collections::VecDeque;

use super::{
    core::Core,
    io::{Outcome, ZkOp},
    ops::{HistoryOp, Part, Pending},
    transaction::ZnodeWrite,
};
use crate::record::{HistoryEntry, Record};

/// How many entries wait to be written while the connection is lost; beyond that, the oldest are dropped.
const WAITING: usize = 16;

/// What must still be done.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct History {
    /// To be written.
    waiting: VecDeque<HistoryEntry>,
    /// The entries to remove.
    surplus: Vec<String>,
    /// The existing entries must be read.
    lists: bool,
}

impl History {
    pub(crate) fn push(&mut self, entry: HistoryEntry) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(entry);
    }

    /// Whether everything is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.surplus.is_empty() && !self.lists
    }

    /// An entry is written, and there are so many of them at most.
    pub(crate) fn written(&mut self, core: &Core, entries: u64) {
        if entries >= core.config.policy.history_kept as u64 {
            self.lists = true;
        }
    }

    pub(crate) fn advance(&mut self, core: &mut Core) {
        if !core.ops.is_free(Part::History, core.now.time) {
            return;
        }
        let paths = &core.config.paths;
        let (op, request) = if let Some(entry) = self.waiting.front() {
            let (path, token) = (paths.history_entry(entry.fencing_token), entry.fencing_token);
            let Ok(data) = entry.encode(&path) else { return self.written_one(token) };
            (HistoryOp::Write(token), ZnodeWrite::create(path, data).into())
        } else if let Some(name) = self.surplus.last() {
            let path = format!("{}/{name}", paths.history());
            (HistoryOp::Trim, ZnodeWrite::delete(path, None).into())
        } else if self.lists {
            (HistoryOp::List, ZkOp::Children(paths.history()))
        } else {
            return;
        };
        core.perform(request, Pending::History(op));
    }

    /// The entry of that fencing token need not be written any more.
    fn written_one(&mut self, token: u64) {
        self.waiting.retain(|entry| entry.fencing_token != token);
    }

    pub(crate) fn done(&mut self, core: &mut Core, op: HistoryOp, outcome: &Outcome) {
        match (op, outcome) {
            // It exists if it was written with READY, or by an earlier request whose reply was lost.
            (HistoryOp::Write(token), Outcome::Created { .. } | Outcome::Exists) => {
                self.lists = true;
                self.written_one(token);
            }
            (HistoryOp::List, Outcome::Names(names)) => {
                self.lists = false;
                let mut names: Vec<_> = names.clone();
                names.sort_unstable();
                let kept = core.config.policy.history_kept;
                names.truncate(names.len().saturating_sub(kept));
                self.surplus = names;
            }
            (HistoryOp::Trim, Outcome::Ok | Outcome::Missing) => {
                self.surplus.pop();
            }
            _ => core.retry(Part::History),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        engine::{Config, Leftovers, Profile, Recipe},
        ids::Ballot,
        paths::Paths,
        record::{Cause, Phases, VERSION},
        time::{Now, Time},
    };

    fn entry(fencing_token: u64) -> HistoryEntry {
        HistoryEntry {
            v: VERSION,
            term: fencing_token,
            member: "one".parse().unwrap(),
            ballot: Ballot::new("one-0000000001").unwrap(),
            site: "east".parse().unwrap(),
            slot: 0,
            fencing_token,
            cause: Cause::Startup,
            sentence: String::new(),
            previous: None,
            ready_ms: 1,
            phases: Phases::default(),
        }
    }

    #[test]
    fn the_end_of_a_write_removes_what_was_written() {
        let config = Config {
            paths: Paths::at("/x").unwrap(),
            member: Arc::new(Profile::new("one".parse().unwrap())),
            policy: Arc::default(),
            leftovers: Leftovers::default(),
            recipe: Recipe::Single,
        };
        let mut core = Core::new(config, 1, Now::new(Time::ZERO, 1));
        let mut history = History::default();
        let most = WAITING as u64;
        // The write of the first is under way when there is no room for it any more.
        (1..=most + 1).for_each(|token| history.push(entry(token)));
        let done = Outcome::Created { path: String::new(), czxid: 1, version: 0 };
        history.done(&mut core, HistoryOp::Write(1), &done);
        let waiting = |history: &History| -> Vec<_> {
            history.waiting.iter().map(|entry| entry.fencing_token).collect()
        };
        assert_eq!(waiting(&history), (2..=most + 1).collect::<Vec<_>>());
        history.done(&mut core, HistoryOp::Write(2), &done);
        assert_eq!(waiting(&history), (3..=most + 1).collect::<Vec<_>>());
    }
}
