//! What this member has seen decided, for when the decision is deleted or the ensemble goes back to
//! an older state.
//!
//! Terms and tokens never go back: a resource that refuses older tokens would refuse every later
//! leader. So each member keeps the latest decision and the newest token that it has seen. While the
//! decision that it reads is missing or older, it reports it in its record, and the elector goes by the
//! latest memory of all:
//! - A decision that is missing is written again as it was remembered, so that no leader is
//!   disturbed; where only its number is known, the first decision is above that.
//! - One that is older than what any member remembers is followed by a term above all of it.
//!
//! In both cases the base of the tokens rises to the newest token, for zxids may have begun anew.
//! If every member was restarted meanwhile, the memory is lost.

use crate::{
    engine::znode::Known,
    ids::Ballot,
    record::{Elected, Remembered},
};

/// What was seen, and may not be in ZooKeeper any more.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct Memory {
    /// The latest decision, once the view has it no more, and the transaction that wrote it.
    pub(in crate::engine) decision: Option<(Elected, i64)>,
    /// The highest base of the tokens in any decision of the view before. A later term does not bring it along: who
    /// decided that may have known nothing of it.
    token_base: u64,
    /// The newest token that was seen.
    token: u64,
    /// The ballot with which this member joined, and whether it was the only one then.
    joined: Option<(Ballot, bool)>,
}

impl Memory {
    /// The decision in the view is about to be replaced or forgotten.
    pub(in crate::engine) fn keep(&mut self, elected: &Known<Elected>) {
        let Known::Present(elected, meta) = elected else { return };
        self.token_base = self.token_base.max(elected.token_base);
        if self.decision.as_ref().is_none_or(|(kept, _)| kept.term <= elected.term) {
            self.decision = Some((elected.clone(), meta.mzxid));
        }
    }

    /// The view has another decision: what it is not older than need not be kept.
    pub(in crate::engine) fn compare(&mut self, elected: &Known<Elected>) {
        if let (Some(remembered), Known::Present(elected, meta)) = (self.remembered(), elected)
            && !remembered.is_newer_than(elected, meta.mzxid)
        {
            self.decision = None;
        }
    }

    /// Whether this term's decision is the one that is kept.
    pub(in crate::engine) fn has(&self, term: u64) -> bool {
        self.decision.as_ref().is_some_and(|(kept, _)| kept.term == term)
    }

    /// Listed all ballots with this own one, which is the lowest or not: what counts is the first time.
    pub(in crate::engine) fn listed(&mut self, ballot: &Ballot, is_lowest: bool) {
        if self.joined.as_ref().is_none_or(|(known, _)| known != ballot) {
            self.joined = Some((ballot.clone(), is_lowest));
        }
    }

    /// Whether the one with this ballot left before this member joined, as all others did: it did not fail beside
    /// them, and its site may be back in a moment as well.
    pub(in crate::engine) fn left_with_all(&self, ballot: &Ballot) -> bool {
        self.joined.as_ref().is_some_and(|(mine, was_lowest)| *was_lowest && ballot < mine)
    }

    pub(in crate::engine) fn saw_token(&mut self, token: Option<u64>) {
        self.token = self.token.max(token.unwrap_or(0));
    }

    /// What is remembered and not in ZooKeeper any more, as far as this member knows.
    pub(in crate::engine) fn remembered(&self) -> Option<Remembered> {
        let (elected, mzxid) = self.decision.as_ref()?;
        Some(Remembered {
            term: elected.term,
            mzxid: *mzxid,
            token: self.token.max(self.token_base),
            token_base: self.token_base,
            last_request: elected.last_request,
        })
    }
}
