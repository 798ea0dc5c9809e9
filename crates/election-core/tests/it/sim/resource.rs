//! What the job writes to: a store that checks tokens.

use std::collections::BTreeMap;

/// A store that refuses an older token than it has accepted for the same slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    highest: BTreeMap<usize, u64>,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl Resource {
    /// The newest token that it has seen.
    pub(crate) fn newest(&self) -> u64 {
        self.highest.values().copied().max().unwrap_or(0)
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
