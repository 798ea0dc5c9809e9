//! The history: one entry for each leadership, and a bounded number of entries.
//!
//! An entry is written when a leader becomes READY, perhaps just before its connection is lost. After a write whose
//! outcome is unknown the latest entries are read, so that it is not written twice.

use std::collections::VecDeque;

use super::{
    core::Core,
    io::{Outcome, Request},
    ops::{HistoryOp, Part, Pending},
};
use crate::record::{HistoryEntry, Record};

/// How many entries wait to be written while the connection is lost; beyond that, the oldest are dropped.
const WAITING: usize = 16;

/// How many entries are read to find one that may have been written: the latest, since it is written again soon.
const SEARCHED: usize = 16;

const WRITE: Pending = Pending::History(HistoryOp::Write);

/// What must still be written.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct History {
    waiting: VecDeque<HistoryEntry>,
    /// The first one that waits may have been written.
    doubt: Option<Doubt>,
    /// The entries to remove.
    surplus: Vec<String>,
    /// The existing entries must be read.
    lists: bool,
}

/// How to find out whether an entry was written.
#[derive(Clone, Debug, Hash)]
enum Doubt {
    /// The names of the entries are needed.
    Search,
    /// These entries must still be read, the last one first.
    Look(Vec<String>),
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
        self.waiting.is_empty() && self.doubt.is_none() && self.surplus.is_empty() && !self.lists
    }

    fn pop(&mut self) {
        self.waiting.pop_front();
        if self.waiting.is_empty() {
            // An idle election holds no memory for it.
            self.waiting = VecDeque::new();
        }
        self.doubt = None;
    }

    /// The session is over: call it while the operations are still known.
    pub(in crate::engine) fn session_over(&mut self, core: &Core) {
        if core.ops.has(&WRITE) {
            self.doubt = Some(Doubt::Search);
        }
    }

    pub(in crate::engine) fn advance(&mut self, core: &mut Core) {
        if !core.ops.is_free(Part::History, core.now.time) {
            return;
        }
        let paths = &core.config.paths;
        if matches!(&self.doubt, Some(Doubt::Look(names)) if names.is_empty()) {
            self.doubt = None;
        }
        let (op, request) = if let Some(Doubt::Look(names)) = &self.doubt {
            let name = names.last().map_or("", String::as_str);
            (HistoryOp::Look, Request::Get { path: format!("{}/{name}", paths.history()) })
        } else if let Some(Doubt::Search) = self.doubt {
            (HistoryOp::Search, Request::Children { path: paths.history() })
        } else if let Some(entry) = self.waiting.front() {
            let prefix = paths.history_prefix();
            let Ok(data) = entry.encode(&prefix) else {
                self.pop();
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
            (HistoryOp::Write, Outcome::Created { path, .. }) => {
                self.written();
                // It counts the entries that have ever been created, so there are no more.
                let number = path.rsplit('-').next().and_then(|number| number.parse().ok());
                self.lists = number.is_none_or(|number: usize| number >= core.config.policy.history_kept);
            }
            (HistoryOp::Write, Outcome::Unknown(_)) => {
                self.doubt = Some(Doubt::Search);
                core.retry(Part::History);
            }
            (HistoryOp::Search, Outcome::Names(names)) => {
                let mut names = names.clone();
                names.sort_unstable();
                names.drain(..names.len().saturating_sub(SEARCHED));
                self.doubt = Some(Doubt::Look(names));
            }
            (HistoryOp::Look, Outcome::Got(node)) => {
                let Some(Doubt::Look(names)) = &mut self.doubt else { return };
                names.pop();
                let path = core.config.paths.history();
                let found = node.as_ref().and_then(|node| HistoryEntry::decode(&path, &node.data).ok());
                if found.is_some_and(|found| self.waiting.front() == Some(&found)) {
                    self.written();
                }
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

    fn written(&mut self) {
        self.pop();
        self.lists = true;
    }
}
