//! What the job writes to: a store that checks tokens.

/// A store that refuses whatever is older than what it has accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    highest: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
}

impl Resource {
    /// The newest token that it has seen.
    pub(crate) fn newest(&self) -> u64 {
        self.highest
    }

    pub(crate) fn write(&mut self, token: u64) -> bool {
        let accepted = token >= self.highest;
        self.highest = self.highest.max(token);
        if accepted {
            self.accepted += 1;
        } else {
            self.refused += 1;
        }
        accepted
    }
}
