//! A term is decided once: there are never two decisions of one term with different leaders, terms only grow, and each
//! change adds one. After a decision was deleted, terms may be omitted.
//!
//! It depends on compare-and-set on `leader/elected`.

use std::collections::BTreeMap;

use election_core::internals::record::{Elected, Named};

use super::Verdict;

/// All decisions so far.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Decisions {
    named: BTreeMap<u64, Vec<Option<Named>>>,
    /// Terms may be left out, for a decision was deleted.
    leaps: bool,
}

impl Decisions {
    pub(crate) fn stands(&mut self, elected: &Elected) -> Verdict {
        let named: Vec<_> = elected.slots.iter().map(|slot| slot.named.clone()).collect();
        if let Some((last, _)) = self.named.last_key_value()
            && elected.term < *last
        {
            return Err(format!("one decision per term: term {} stands after term {last}", elected.term));
        }
        if let Some(known) = self.named.get(&elected.term) {
            if *known != named {
                let term = elected.term;
                return Err(format!("one decision per term: term {term} named {known:?}, and now {named:?}"));
            }
        } else if let Some((last, _)) = self.named.last_key_value()
            && elected.term != last + 1
            && !self.leaps
        {
            return Err(format!("one decision per term: term {} follows term {last}", elected.term));
        }
        self.named.insert(elected.term, named);
        Ok(())
    }

    /// The decision was deleted, and is written again as a member remembers it. It can be an older one, or the first,
    /// until a member that remembers a later one has published it.
    pub(crate) fn deleted(&mut self) {
        self.named.clear();
        self.leaps = true;
    }

    pub(crate) fn count(&self) -> usize {
        self.named.len()
    }
}
