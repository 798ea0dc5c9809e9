//! The history: one entry for each leadership, and a bounded number of entries.

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
            self.waiting.pop_front();
        }
        self.waiting.push_back(entry);
    }

    pub(in crate::engine) fn advance(&mut self, core: &mut Core) {
        if !core.ops.is_free(Part::History, core.now.time) {
            return;
        }
        let paths = &core.config.paths;
        let (op, request) = if let Some(entry) = self.waiting.front() {
            let prefix = paths.history_prefix();
            let Ok(data) = entry.encode(&prefix) else {
                self.waiting.pop_front();
                return;
            };
            let request = Request::CreateSequential { prefix, data, ephemeral: false, unique_prefix: false };
            (HistoryOp::Write, request)
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
            (HistoryOp::Write, Outcome::Created { .. }) => {
                self.waiting.pop_front();
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
