//! Who takes over in a term is the incarnation that this term's decision names, and
//! terms in office only grow.
//!
//! The failures: a restarted process takes a decision about its predecessor for its
//! own (weak point V7 of the published algorithm); a leader that was superseded while
//! it waited takes over under the old decision (V22, etcd-io/etcd#11456). Where the place
//! of somebody alive may be taken, a process that stood still between reading the decision
//! and acting on it can be late; then the resource refuses it.

use std::collections::BTreeMap;

use election_core::{
    Ballot,
    record::{Elected, Named},
};

use super::Verdict;

/// Who was named in each term, and the latest term that was led.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Mandates {
    named: BTreeMap<u64, Option<Named>>,
    led: u64,
}

impl Mandates {
    pub(crate) fn decided(&mut self, elected: &Elected) {
        self.named.entry(elected.term).or_insert_with(|| elected.named(0).cloned());
    }

    /// `ballot` enters leadership in `term`.
    pub(crate) fn enters(&mut self, exclusive: bool, term: u64, ballot: &Ballot) -> Verdict {
        let named = self.named.get(&term).cloned().flatten();
        if named.as_ref().map(|n| &n.ballot) != Some(ballot) {
            return Err(format!("leads as decided: {ballot} leads in term {term}, which names {named:?}"));
        }
        if term < self.led && exclusive {
            let led = self.led;
            return Err(format!("leads as decided: {ballot} leads in term {term} after term {led} was led"));
        }
        self.led = self.led.max(term);
        Ok(())
    }
}
