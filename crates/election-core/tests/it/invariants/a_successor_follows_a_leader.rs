//! A successor steps in for a leader, never for a member that is only named.
//!
//! In the znodes, 'gone' and 'named, but not leading yet' look the same, and the released leader of a planned move may
//! be first in the new line. Without the memory of having seen the named member lead, the released leader would take
//! over again at once. A model checker has found that trace.
//!
//! A successor has its leader znode before the decision that names it. A member that an elector names has none in that
//! term yet.

use std::collections::BTreeSet;

use election_core::{
    internals::record::{Current, Elected, Named},
    status::Ballot,
};

use super::Verdict;

/// Which member has ever held the leader znode of a slot, in which term.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Tenures {
    held: BTreeSet<(usize, u64, Ballot)>,
    /// The same, before the ensemble was restored from a copy: terms are given out again since.
    lost: BTreeSet<(usize, u64, Ballot)>,
    last: Option<Elected>,
}

impl Tenures {
    pub(crate) fn holds(&mut self, slot: usize, current: &Current) {
        self.held.insert((slot, current.term, current.ballot.clone()));
    }

    /// The decision was deleted, and is written again as a member remembers it.
    pub(crate) fn deleted(&mut self) {
        self.last = None;
    }

    /// The ensemble was restored from a copy.
    pub(crate) fn restored(&mut self) {
        self.deleted();
        self.lost.append(&mut self.held);
    }

    pub(crate) fn decided(&mut self, elected: &Elected) -> Verdict {
        let before = self.last.replace(elected.clone());
        let Some(before) = before.filter(|before| before.term < elected.term) else {
            return Ok(());
        };
        let stepped_in = |slot: &usize| {
            let has_place = |named: &Named| self.held.contains(&(*slot, elected.term, named.ballot.clone()));
            elected.term_of(*slot) == elected.term && elected.named(*slot).is_some_and(has_place)
        };
        for slot in (0..before.slots.len()).filter(stepped_in) {
            let Some(gone) = before.named(slot) else { continue };
            let term = before.term_of(slot);
            let tenure = (slot, term, gone.ballot.clone());
            if !self.held.contains(&tenure) && !self.lost.contains(&tenure) {
                return Err(format!(
                    "a successor follows a leader: term {} steps in for {} in slot {slot}, who never held it in term {term}",
                    elected.term, gone.ballot
                ));
            }
        }
        Ok(())
    }
}
