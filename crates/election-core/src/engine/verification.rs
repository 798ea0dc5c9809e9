//! Reading the leaders' places once more where nothing else would.
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

/// What the watches on the places have told, and where the view differs; by slot.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Verification {
    places: Vec<Place>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Place {
    /// Creation and last change of what the watch told last; `None` before its
    /// first word.
    told: Option<Option<(i64, i64)>>,
    due: Option<Time>,
    op: Option<OpId>,
}

impl Verification {
    fn place(&mut self, slot: usize) -> &mut Place {
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, Place::default);
        }
        &mut self.places[slot]
    }

    /// When a place is to be read again.
    pub(super) fn due(&self) -> Option<Time> {
        self.places.iter().filter(|p| p.op.is_none()).filter_map(|p| p.due).min()
    }

    pub(super) fn watch_told(&mut self, slot: usize, node: Option<&Node>) {
        self.place(slot).told = Some(node.map(|n| (n.czxid, n.mzxid)));
    }

    /// The view has changed, or has been confirmed.
    pub(super) fn compare(&mut self, slot: usize, known: Option<Meta>, now: Time) {
        let place = self.place(slot);
        let agrees = place.told.is_none_or(|told| told == known.map(|m| (m.czxid, m.mzxid)));
        if agrees {
            place.due = None;
        } else if place.due.is_none() {
            place.due = Some(now + PATIENCE);
        }
    }

    /// The places from this slot on are not watched any more.
    pub(super) fn forget(&mut self, from: usize) {
        self.places.truncate(from);
    }
}

impl Engine {
    pub(super) fn advance_verification(&mut self) {
        for slot in 0..self.verification.places.len() {
            let place = self.verification.place(slot);
            if place.op.is_some() || place.due.is_none_or(|due| self.now.time < due) {
                continue;
            }
            if let Some(op) = self.perform(Request::Get { path: self.place_path_of(slot) }) {
                let place = self.verification.place(slot);
                place.op = Some(op);
                place.due = None;
            }
        }
    }

    pub(super) fn verification_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        let Some(slot) = self.verification.places.iter().position(|p| p.op == Some(op)) else {
            return false;
        };
        self.verification.place(slot).op = None;
        if let Outcome::Got(node) = outcome {
            self.see_place(slot, node.as_ref());
            self.office_saw_place(slot, node.as_ref());
        }
        self.verification.compare(slot, self.view.place(slot).meta(), self.now.time);
        true
    }
}
