//! A successor steps in for a leader, never for somebody who is merely named.
//!
//! From the znodes alone 'gone' looks like 'named, and not there yet', and the
//! released leader of a planned move may be first in the new line: without the
//! memory of having seen the named one in office it would jump straight back in.
//! A model checker has found that trace.

use std::collections::BTreeSet;

use election_core::{
    Ballot,
    record::{Current, Elected},
};

use super::Verdict;

/// Who has ever held the place of a slot, in which term.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Tenures {
    held: BTreeSet<(usize, u64, Ballot)>,
    last: Option<Elected>,
}

impl Tenures {
    pub(crate) fn holds(&mut self, slot: usize, current: &Current) {
        self.held.insert((slot, current.term, current.ballot.clone()));
    }

    pub(crate) fn decided(&mut self, elected: &Elected) -> Verdict {
        let before = self.last.replace(elected.clone());
        let (Some(before), true) = (before, elected.sentence.contains("being first in line")) else {
            return Ok(());
        };
        let stepped_in = |slot: &usize| before.term < elected.term && elected.term_of(*slot) == elected.term;
        for slot in (0..before.slots.len()).filter(stepped_in) {
            let Some(gone) = before.named(slot) else { continue };
            let term = before.term_of(slot);
            if !self.held.contains(&(slot, term, gone.ballot.clone())) {
                return Err(format!(
                    "a successor follows a leader: term {} steps in for {} in slot {slot}, who never held it in term {term}",
                    elected.term, gone.ballot
                ));
            }
        }
        Ok(())
    }
}
