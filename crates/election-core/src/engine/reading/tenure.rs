//! The memory of who was seen in office, for each slot.
//!
//! Without it, 'gone' looks like 'named, and not there yet'. It goes by the term in
//! which the slot was decided, so that a decision about another slot leaves it alone.

use super::Reading;
use crate::{
    engine::{
        rules::{Rule, Rules},
        znode::Known,
    },
    ids::Ballot,
    record::{Current, Elected},
};

/// What this member has seen of the place of one slot.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct Tenure {
    /// The term and ballot that this member itself has seen in office. A new holder,
    /// another term or a new session clears it.
    seen: Option<(u64, Ballot)>,
    /// The term and ballot whose place was seen to have become free.
    vanished: Option<(u64, Ballot)>,
    /// When the place was seen to be free, in milliseconds since the Unix epoch.
    free_since_ms: Option<u64>,
}

impl Tenure {
    /// Looks at the place once more, after the view has changed. `stands` is the term
    /// of the slot, and who is named for it.
    fn look(&mut self, stands: Option<(u64, Option<&Ballot>)>, place: &Known<Current>, unix_ms: u64) {
        let is_named = |term: u64, ballot: &Ballot| stands == Some((term, Some(ballot)));
        match (place, stands) {
            (Known::Present(current, _), Some(_)) => {
                let serves = is_named(current.term, &current.ballot);
                self.seen = serves.then(|| (current.term, current.ballot.clone()));
                self.vanished = None;
                self.free_since_ms = None;
            }
            (Known::Absent, Some(_)) => {
                self.seen = self.seen.take().filter(|(term, ballot)| is_named(*term, ballot));
                if self.seen.is_some() {
                    self.vanished.clone_from(&self.seen);
                }
                self.free_since_ms.get_or_insert(unix_ms);
            }
            // Somebody holds it, and nobody knows who.
            (Known::Unreadable(..), _) => *self = Self::default(),
            _ => {}
        }
        self.vanished = self.vanished.take().filter(|(term, ballot)| is_named(*term, ballot));
    }
}

impl Reading {
    /// Keeps the memory of who was seen in office, after the view has changed.
    pub(in crate::engine) fn remember_tenures(&mut self, slots: usize, unix_ms: u64) {
        self.tenures.resize_with(slots, Tenure::default);
        let elected = self.view.elected.record();
        for (slot, tenure) in self.tenures.iter_mut().enumerate() {
            let stands = elected.map(|e| (e.term_of(slot), e.named(slot).map(|n| &n.ballot)));
            tenure.look(stands, self.view.place(slot), unix_ms);
        }
    }

    /// The memory ends with the session, and where the ensemble went back to an older state: terms are given out again
    /// then.
    pub(in crate::engine) fn forget_tenures(&mut self) {
        for tenure in &mut self.tenures {
            (tenure.seen, tenure.vanished) = (None, None);
        }
    }

    /// Whether the one who is named for `slot` was seen in office in this very term,
    /// and its place has become free since.
    pub(in crate::engine) fn has_vanished(&self, elected: &Elected, slot: usize, rules: Rules) -> bool {
        let vanished = self.tenures.get(slot).and_then(|t| t.vanished.as_ref());
        let named = elected.named(slot).map(|n| (elected.term_of(slot), n.ballot.clone()));
        let seen = (named.is_some() && vanished == named.as_ref()) || !rules.keep(Rule::SeenInOffice);
        seen && *self.view.place(slot) == Known::Absent
    }

    /// Since when the leader znode of `slot` is free, in milliseconds since the Unix epoch.
    pub(in crate::engine) fn free_since_ms(&self, slot: usize) -> Option<u64> {
        self.tenures.get(slot)?.free_since_ms
    }
}
