//! The member that takes over in a term is the incarnation that this term's decision names, and the terms of leaders
//! only grow.
//!
//! The failures: a restarted process takes a decision about its predecessor for its own (weak point V7 of the published
//! algorithm); a leader that was superseded while it waited takes over under the old decision (V22,
//! etcd-io/etcd#11456). If the leader znode of a living member may be deleted, a process that was frozen between
//! reading the decision and acting on it can be late. The resource then refuses it.

use std::collections::BTreeMap;

use election_core::{
    internals::record::{Elected, Named},
    status::Ballot,
};

use super::Verdict;

/// Who was named for each slot in each term, and the latest term in which it was led.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Appointments {
    named: BTreeMap<(usize, u64), Vec<Named>>,
    led: BTreeMap<usize, u64>,
    /// A decision was deleted: a term can be decided once more.
    deleted: bool,
}

impl Appointments {
    pub(crate) fn decided(&mut self, elected: &Elected) {
        for slot in 0..elected.slots.len() {
            let at = (slot, elected.term_of(slot));
            if self.deleted || !self.named.contains_key(&at) {
                let all = self.named.entry(at).or_default();
                all.extend(elected.named(slot).filter(|named| !all.contains(named)).cloned());
            }
        }
    }

    /// The decision was deleted.
    pub(crate) fn deleted(&mut self) {
        self.deleted = true;
    }

    /// `ballot` enters leadership of `slot` in `term`.
    pub(crate) fn enters(&mut self, exclusive: bool, slot: usize, term: u64, ballot: &Ballot) -> Verdict {
        let named = self.named.get(&(slot, term)).map(Vec::as_slice).unwrap_or_default();
        if !named.iter().any(|named| named.ballot == *ballot) {
            return Err(format!("leads as decided: {ballot} leads in term {term}, which names {named:?}"));
        }
        let led = self.led.entry(slot).or_default();
        if term < *led && exclusive {
            return Err(format!("leads as decided: {ballot} leads in term {term} after term {led} was led"));
        }
        *led = term.max(*led);
        Ok(())
    }
}
