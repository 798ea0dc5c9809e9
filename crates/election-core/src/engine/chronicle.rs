//! The history: one entry for each leadership, and no more than a bound of them.

use std::{collections::VecDeque, time::Duration};

use super::{
    Engine,
    io::{OpId, Outcome, Request},
};
use crate::{
    record::{HistoryEntry, Record},
    time::Time,
};

/// Entries that a lost connection keeps from being written; more are dropped,
/// oldest first.
const WAITING: usize = 16;

const RETRY: Duration = Duration::from_secs(1);

/// What is still to be written down.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Chronicle {
    waiting: VecDeque<HistoryEntry>,
    step: Option<(Step, OpId)>,
    surplus: Vec<String>,
    look: bool,
    retry_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Write,
    Look,
    Trim,
}

impl Chronicle {
    pub(super) fn push(&mut self, entry: HistoryEntry) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(entry);
    }

    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// What was under way ended with the session.
    pub(super) fn session_over(&mut self) {
        self.step = None;
        self.retry_at = None;
    }
}

impl Engine {
    pub(super) fn advance_history(&mut self) {
        if self.history.step.is_some() || self.history.retry_at.is_some_and(|at| self.now.time < at) {
            return;
        }
        self.history.retry_at = None;
        let (step, request) = if let Some(entry) = self.history.waiting.front() {
            let prefix = self.config.paths.history_prefix();
            let Ok(data) = entry.encode(&prefix) else {
                self.history.waiting.pop_front();
                return;
            };
            (Step::Write, Request::CreateSequential { prefix, data, ephemeral: false, unique_prefix: false })
        } else if let Some(name) = self.history.surplus.last() {
            let path = format!("{}/{name}", self.config.paths.history());
            (Step::Trim, Request::Delete { path, version: None })
        } else if self.history.look {
            (Step::Look, Request::Children { path: self.config.paths.history() })
        } else {
            return;
        };
        if let Some(op) = self.perform(request) {
            self.history.step = Some((step, op));
        }
    }

    pub(super) fn history_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        let Some((step, known)) = self.history.step else {
            return false;
        };
        if known != op {
            return false;
        }
        self.history.step = None;
        match (step, outcome) {
            (Step::Write, Outcome::Created { .. }) => {
                self.history.waiting.pop_front();
                self.history.look = true;
            }
            (Step::Look, Outcome::Names(names)) => {
                self.history.look = false;
                let mut names: Vec<_> = names.clone();
                names.sort_unstable();
                let kept = self.config.policy.history_kept;
                names.truncate(names.len().saturating_sub(kept));
                self.history.surplus = names;
            }
            (Step::Trim, Outcome::Ok | Outcome::Missing) => {
                self.history.surplus.pop();
            }
            _ => self.history.retry_at = Some(self.now.time + RETRY),
        }
        true
    }
}
