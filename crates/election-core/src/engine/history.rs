//! The history: one entry for each leadership, and a bounded number of entries.
//!
//! The leader writes its entry together with READY. If that is refused, or its outcome is unknown, READY is written alone, and
//! the entry here. The fencing token is its name, so an entry that was written already is not written twice.

use std::collections::VecDeque;

use super::{
    core::Core,
    io::{Outcome, Request},
    ops::{HistoryOp, Part, Pending},
};
use crate::record::{HistoryEntry, Record};

/// How many entries wait to be written while the connection is lost; beyond that, the oldest are dropped.
const WAITING: usize = 16;

/// What must still be written.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct History {
    waiting: VecDeque<HistoryEntry>,
    /// The entries to remove.
    surplus: Vec<String>,
    /// The existing entries must be read.
    lists: bool,
}

impl History {
    pub(in crate::engine) fn push(&mut self, entry: HistoryEntry) {
        if self.waiting.len() == WAITING {
            self.pop();
        }
        self.waiting.push_back(entry);
    }

    /// Whether everything is written.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.surplus.is_empty() && !self.lists
    }

    fn pop(&mut self) {
        self.waiting.pop_front();
        if self.waiting.is_empty() {
            // An idle election holds no memory for it.
            self.waiting = VecDeque::new();
        }
    }

    /// An entry is written, and there are so many of them at most.
    pub(in crate::engine) fn written(&mut self, core: &Core, entries: u64) {
        self.lists = entries >= core.config.policy.history_kept as u64;
    }

    pub(in crate::engine) fn advance(&mut self, core: &mut Core) {
        if !core.ops.is_free(Part::History, core.now.time) {
            return;
        }
        let paths = &core.config.paths;
        let (op, request) = if let Some(entry) = self.waiting.front() {
            let path = paths.history_entry(entry.fencing_token);
            let Ok(data) = entry.encode(&path) else {
                self.pop();
                return;
            };
            (HistoryOp::Write, Request::Create { path, data, ephemeral: false })
        } else if let Some(name) = self.surplus.last() {
            let path = format!("{}/{name}", paths.history());
            (HistoryOp::Trim, Request::Delete { path, version: None })
        } else if self.lists {
            (HistoryOp::List, Request::Children { path: paths.history() })
        } else {
            return;
        };
        core.perform(request, Pending::History(op));
    }

    pub(in crate::engine) fn done(&mut self, core: &mut Core, op: HistoryOp, outcome: &Outcome) {
        match (op, outcome) {
            // It exists if it was written with READY, or by an earlier request whose reply was lost.
            (HistoryOp::Write, Outcome::Created { .. } | Outcome::Exists) => {
                self.pop();
                self.lists = true;
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
