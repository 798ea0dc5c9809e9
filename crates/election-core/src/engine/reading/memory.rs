//! The decisions that this member has seen, for the case that the decision is deleted or the ensemble returns to an
//! older state.
//!
//! Terms and tokens never decrease: a resource that refuses older tokens would refuse every later leader. So each
//! member keeps the latest decision and the newest token that it has seen. While the decision that it reads is
//! missing or older, it reports this memory in its record, and the elector uses the latest memory of all members:
//! - A missing decision is written again as it was remembered, so that no leader is disturbed. If only its number is
//!   known, the first decision exceeds that number.
//! - A decision that is older than what any member remembers is followed by a term above all of it.
//!
//! In both cases the base of the tokens rises to the newest token, since zxids may have started again. If every
//! member was restarted meanwhile, the memory is lost.

use serde::{Deserialize, Serialize};

use crate::{
    engine::znode::Known,
    ids::Ballot,
    record::{Elected, Remembered},
};

/// What was seen, and may not be in ZooKeeper any more.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(in crate::engine) struct Memory {
    /// The latest decision, after the view has lost it, and the transaction that wrote it.
    pub(in crate::engine) decision: Option<Box<(Elected, i64)>>,
    /// The highest base of the tokens in any earlier decision of the view. A later term need not include it: its
    /// elector may not have known it.
    token_base: u64,
    /// The newest token that was seen.
    token: u64,
    /// The ballot with which this member joined, and whether it was the only one then.
    joined: Option<Box<(Ballot, bool)>>,
}

impl Memory {
    /// The decision in the view is about to be replaced or forgotten.
    pub(in crate::engine) fn keep(&mut self, elected: &Known<Elected>) {
        let Known::Present(elected, meta) = elected else { return };
        self.token_base = self.token_base.max(elected.token_base);
        if self.decision.as_ref().is_none_or(|kept| kept.0.term <= elected.term) {
            self.decision = Some(Box::new((Elected::clone(elected), meta.mzxid)));
        }
    }

    /// The view has another decision: a remembered decision that is not newer is dropped.
    pub(in crate::engine) fn compare(&mut self, elected: &Known<Elected>) {
        if let (Some(remembered), Known::Present(elected, meta)) = (self.remembered(), elected)
            && !remembered.is_newer_than(elected, meta.mzxid)
        {
            self.decision = None;
        }
    }

    /// Whether the decision of this term is the one that is kept.
    pub(in crate::engine) fn has(&self, term: u64) -> bool {
        self.decision.as_ref().is_some_and(|kept| kept.0.term == term)
    }

    /// Records the first list of ballots that contains this own ballot, and whether it was the lowest.
    pub(in crate::engine) fn listed(&mut self, ballot: &Ballot, is_lowest: bool) {
        if self.joined.as_ref().is_none_or(|joined| joined.0 != *ballot) {
            self.joined = Some(Box::new((ballot.clone(), is_lowest)));
        }
    }

    /// Whether the member with this ballot left before this member joined, as all others did. Then it did not fail
    /// while others lived, and its site may return in a moment as well.
    pub(in crate::engine) fn left_with_all(&self, ballot: &Ballot) -> bool {
        self.joined.as_deref().is_some_and(|(mine, was_lowest)| *was_lowest && ballot < mine)
    }

    pub(in crate::engine) fn saw_token(&mut self, token: Option<u64>) {
        self.token = self.token.max(token.unwrap_or(0));
    }

    /// What is remembered and is not in ZooKeeper any more, as far as this member knows.
    pub(in crate::engine) fn remembered(&self) -> Option<Remembered> {
        let (elected, mzxid) = &**self.decision.as_ref()?;
        Some(Remembered {
            term: elected.term,
            mzxid: *mzxid,
            token: self.token.max(self.token_base),
            token_base: self.token_base,
            last_request: elected.last_request,
        })
    }
}
