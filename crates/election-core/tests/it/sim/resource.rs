//! What the job writes to: a store that checks tokens.

use std::collections::BTreeMap;

/// A store that refuses an older token than it has accepted for the same slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    highest: BTreeMap<usize, u64>,
    /// The highest token of each slot before it failed over.
    forgotten: BTreeMap<usize, u64>,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl Resource {
    /// The newest token that it has seen.
    pub(crate) fn newest(&self) -> u64 {
        self.highest.values().chain(self.forgotten.values()).copied().max().unwrap_or(0)
    }

    /// It fails over to a copy that knows no token.
    pub(crate) fn forget(&mut self) {
        for (slot, highest) in std::mem::take(&mut self.highest) {
            let forgotten = self.forgotten.entry(slot).or_default();
            *forgotten = highest.max(*forgotten);
        }
    }

    /// Whether it may accept this token although it had accepted a newer one before.
    pub(crate) fn has_forgotten(&self, slot: usize, token: u64) -> bool {
        self.forgotten.get(&slot).is_some_and(|forgotten| token < *forgotten)
    }

    pub(crate) fn write(&mut self, slot: usize, token: u64) -> bool {
        let highest = self.highest.entry(slot).or_default();
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        if accepted {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
        accepted
    }
}
