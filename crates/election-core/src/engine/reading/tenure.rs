//! The memory of which leaders were seen, for each slot.
//!
//! Without it, a leader that is gone could not be distinguished from a member that is named and has not acquired
//! leadership yet. It uses the term in which the slot was decided, so that a decision about another slot does not
//! change it.

use crate::{engine::znode::Known, ids::Ballot, record::Current};

/// What this member has seen of the leader znode of one slot.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Tenure {
    /// The term and ballot that this member itself has seen in the leader znode. A new holder,
    /// another term or a new session clears it.
    seen: Option<(u64, Ballot)>,
    /// The term and ballot whose leader znode was seen to have become free.
    vanished: Option<(u64, Ballot)>,
    /// When the leader znode was seen to be free, in milliseconds since the Unix epoch.
    pub(super) free_since_ms: Option<u64>,
}

impl Tenure {
    /// Updates the memory after the view has changed. `decided` is the term of the slot, and the member that is named
    /// for it.
    pub(super) fn look(
        &mut self,
        decided: Option<(u64, Option<&Ballot>)>,
        leader: &Known<Current>,
        unix_ms: u64,
    ) {
        let is_named = |term: u64, ballot: &Ballot| decided == Some((term, Some(ballot)));
        match (leader, decided) {
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
            // It is held, and its holder is not known.
            (Known::Unreadable(..), _) => *self = Self::default(),
            _ => {}
        }
        self.vanished = self.vanished.take().filter(|(term, ballot)| is_named(*term, ballot));
    }

    /// Clears the memory: at the end of the session, and if the ensemble returned to an older state, in which terms
    /// are given out again.
    pub(super) fn forget(&mut self) {
        (self.seen, self.vanished) = (None, None);
    }

    /// Whether this leader was seen in this term, and its leader znode has become free since.
    pub(super) fn has_vanished(&self, term: u64, ballot: &Ballot) -> bool {
        self.vanished.as_ref().is_some_and(|(t, b)| *t == term && b == ballot)
    }
}
