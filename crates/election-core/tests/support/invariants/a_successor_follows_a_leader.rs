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

/// Who has ever held the place, in which term.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Tenures {
    held: BTreeSet<(u64, Ballot)>,
    last: Option<Elected>,
}

impl Tenures {
    pub(crate) fn holds(&mut self, current: &Current) {
        self.held.insert((current.term, current.ballot.clone()));
    }

    pub(crate) fn decided(&mut self, elected: &Elected) -> Verdict {
        let before = self.last.replace(elected.clone());
        let (Some(before), true) = (before, elected.sentence.contains("being first in line")) else {
            return Ok(());
        };
        let gone = before.named().filter(|_| before.term < elected.term);
        match gone {
            Some(gone) if !self.held.contains(&(before.term, gone.ballot.clone())) => Err(format!(
                "a successor follows a leader: term {} steps in for {}, who never held term {}",
                elected.term, gone.ballot, before.term
            )),
            _ => Ok(()),
        }
    }
}
