//! Reading the leader's place once more where nothing else would.
//!
//! A watch tells each value that differs from the one it told before. What this
//! member reads itself, or knows from its own writes, can be a value that no watch
//! ever tells: a place that was created and is gone again before the watch came to
//! read it. Nothing would then correct the view. So what differs from the watch's
//! last word is read again, until both agree.

use std::time::Duration;

use super::{
    Engine,
    io::{Node, OpId, Outcome, Request},
    view::Meta,
};
use crate::time::Time;

/// How long a watch may lag before the place is read without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the watch on `leader/current` has told, and whether the view differs.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Verification {
    /// Creation and last change of what the watch told last; `None` before its
    /// first word.
    told: Option<Option<(i64, i64)>>,
    due: Option<Time>,
    op: Option<OpId>,
}

impl Verification {
    /// When the place is to be read again.
    pub(super) fn due(&self) -> Option<Time> {
        self.due.filter(|_| self.op.is_none())
    }

    pub(super) fn watch_told(&mut self, node: Option<&Node>) {
        self.told = Some(node.map(|n| (n.czxid, n.mzxid)));
    }

    /// The view has changed, or has been confirmed.
    pub(super) fn compare(&mut self, known: Option<Meta>, now: Time) {
        let agrees = self.told.is_none_or(|told| told == known.map(|m| (m.czxid, m.mzxid)));
        if agrees {
            self.due = None;
        } else if self.due.is_none() {
            self.due = Some(now + PATIENCE);
        }
    }
}

impl Engine {
    pub(super) fn advance_verification(&mut self) {
        if self.verification.op.is_some() || self.verification.due.is_none_or(|due| self.now.time < due) {
            return;
        }
        if let Some(op) = self.perform(Request::Get { path: self.place_path() }) {
            self.verification.op = Some(op);
            self.verification.due = None;
        }
    }

    pub(super) fn verification_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        if self.verification.op.take_if(|known| *known == op).is_none() {
            return false;
        }
        if let Outcome::Got(node) = outcome {
            self.see_current(node.as_ref());
            self.office_saw_place(node.as_ref());
        }
        self.verification.compare(self.view.current.meta(), self.now.time);
        true
    }
}
