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
//! In both cases the base of the tokens rises to the newest token, since zxids may have started again.
//!
//! What was seen remains the floor until a decision is above all of it: a decision of an ensemble that began anew says
//! nothing about the former one, however high its term is. Whether tokens would be too low is also seen without a decision:
//! the transactions of a session never go back, because a server refuses a client that has seen a later one than it has. So
//! once this member has created a znode on its session, the next token is above that transaction and the base. If the
//! newest token is above that, the base must rise to it.
//!
//! An application that keeps the newest term and token over a restart gives them to the next engine as its first floor.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::{
    engine::znode::{Known, Meta},
    ids::Ballot,
    record::{Elected, Remembered, limits::MAX_TOKEN_BASE},
};

/// What was seen, and may not be in ZooKeeper any more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// The latest decision, after the view has lost it, and the transaction that wrote it.
    pub(crate) decision: Option<Box<(Elected, i64)>>,
    /// The highest of all that was seen, except for what the decision in the view exceeds.
    floor: Remembered,
    /// The newest transaction of this session that is known, from the first znode on that this member has created on it.
    zxid: i64,
    /// The ballot with which this member joined, and whether it was the only one then.
    joined: Option<Box<(Ballot, bool)>>,
}

impl Memory {
    /// What was seen before this process.
    pub(crate) fn began_above(&mut self, term: u64, token: u64) {
        self.floor.term = self.floor.term.max(term);
        self.saw_token(Some(token));
    }

    /// A session has begun.
    pub(crate) fn forget_session(&mut self) {
        self.zxid = 0;
    }

    /// This member has created a znode on its session.
    pub(crate) fn created(&mut self, czxid: i64) {
        self.zxid = self.zxid.max(czxid);
    }

    /// The decision in the view is about to be replaced or forgotten.
    pub(crate) fn keep(&mut self, elected: &Known<Elected>) {
        let Known::Present(elected, meta) = elected else { return };
        self.floor = self.floor.or_newer(Remembered {
            term: elected.term,
            mzxid: meta.mzxid,
            token: 0,
            token_base: elected.token_base,
            last_request: None,
        });
        if self.decision.as_ref().is_none_or(|kept| kept.0.term <= elected.term) {
            self.floor.last_request = elected.last_request;
            self.decision = Some(Box::new((Elected::clone(elected), meta.mzxid)));
        }
    }

    /// The view has another decision. If it is above all that is remembered, only the tokens still count.
    pub(crate) fn compare(&mut self, elected: &Known<Elected>) {
        if let Known::Present(elected, meta) = elected
            && !self.remembered(elected.token_base).is_some_and(|r| r.is_newer_than(elected, meta.mzxid))
        {
            self.decision = None;
            let Remembered { token, token_base, .. } = self.floor;
            self.floor = Remembered { token, token_base, ..Remembered::default() };
        }
        self.learn(elected.meta());
    }

    /// A znode was read that may be newer than all that is known of this session.
    fn learn(&mut self, meta: Option<Meta>) {
        if let Some(meta) = meta.filter(|_| self.zxid > 0) {
            self.zxid = self.zxid.max(meta.mzxid);
        }
    }

    /// Whether the decision of this term is the one that is kept.
    pub(crate) fn has(&self, term: u64) -> bool {
        self.decision.as_ref().is_some_and(|kept| kept.0.term == term)
    }

    /// Records the first list of ballots that contains this own ballot, and whether it was the lowest.
    pub(crate) fn listed(&mut self, ballot: &Ballot, is_lowest: bool) {
        if self.joined.as_ref().is_none_or(|joined| joined.0 != *ballot) {
            self.joined = Some(Box::new((ballot.clone(), is_lowest)));
        }
    }

    /// Whether the member with this ballot left before this member joined, as all others did. Then it did not fail
    /// while others lived, and its site may return in a moment as well.
    pub(crate) fn left_with_all(&self, ballot: &Ballot) -> bool {
        self.joined.as_deref().is_some_and(|(mine, was_lowest)| *was_lowest && ballot < mine)
    }

    /// A token above the largest base could be followed by none.
    pub(crate) fn saw_token(&mut self, token: Option<u64>) {
        self.floor.token = self.floor.token.max(token.unwrap_or(0)).min(MAX_TOKEN_BASE);
    }

    /// A leadership is known by its leader znode, which this transaction has created, whether or not its record has the token.
    pub(crate) fn saw_leader(&mut self, meta: Meta, token: Option<u64>) {
        self.saw_token(token);
        self.learn(Some(meta));
    }

    /// The newest token that was seen, or the highest base of a decision that the view has lost.
    pub(crate) fn token(&self) -> u64 {
        self.floor.token.max(self.floor.token_base)
    }

    /// Whether the next token above this base could be one that was given out already.
    pub(crate) fn is_behind(&self, base: u64) -> bool {
        let next = u64::try_from(self.zxid).unwrap_or(0).saturating_add(base);
        self.zxid > 0 && next < self.floor.token
    }

    /// What is remembered and is not in ZooKeeper any more, as far as this member knows, if the decision has this base.
    pub(crate) fn remembered(&self, base: u64) -> Option<Remembered> {
        let Remembered { term, token, token_base, .. } = self.floor;
        let token = token.max(token_base);
        let token_base = if self.is_behind(base) { token } else { token_base };
        // The token of a leader that is there is no memory.
        (term > 0 || token_base > base).then_some(Remembered { token, token_base, ..self.floor })
    }
}

impl Hash for Memory {
    /// The transaction of the session counts only where a token is above it.
    fn hash<H: Hasher>(&self, to: &mut H) {
        let Self { decision, floor, zxid, joined } = self;
        let is_below = u64::try_from(*zxid).is_ok_and(|zxid| zxid < floor.token);
        (decision, floor, is_below.then_some(zxid), joined).hash(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, Given, Slot, VERSION};

    fn decision(term: u64, mzxid: i64, token_base: u64) -> Known<Elected> {
        let given = Given::at_once(term, Cause::Startup, String::new(), 0, None);
        let elected = crate::engine::tokens::raise_tokens(None, None, token_base.max(1), "ann", 0);
        let elected = elected.unwrap().unwrap();
        let elected =
            Elected { v: VERSION, term, slots: vec![Slot::new(None, given)], token_base, ..elected };
        Known::Present(elected.into(), Meta { version: 0, czxid: mzxid, mzxid, owner: 0 })
    }

    /// Whether the view's decision has to be followed by one above what is remembered, after each of these decisions.
    fn is_old(memory: &mut Memory, decisions: &[(u64, i64, u64)]) -> Vec<bool> {
        let mut view = Known::Absent;
        let mut read = |&(term, mzxid, base)| {
            memory.keep(&view);
            view = decision(term, mzxid, base);
            memory.compare(&view);
            let Known::Present(elected, meta) = &view else { return false };
            memory.remembered(base).is_some_and(|remembered| remembered.is_newer_than(elected, meta.mzxid))
        };
        decisions.iter().map(&mut read).collect()
    }

    #[test]
    fn a_later_decision_of_an_ensemble_that_began_anew_replaces_no_memory() {
        let mut memory = Memory::default();
        memory.saw_token(Some(905));
        let old = is_old(&mut memory, &[(5, 900, 0), (7, 10, 0), (8, 20, 0), (9, 30, 904), (10, 40, 905)]);
        assert_eq!(old, [false, true, true, true, false]);
        // Tokens above it are no reason to raise the base again.
        memory.saw_token(Some(905 + 50));
        assert_eq!(is_old(&mut memory, &[(10, 40, 905), (11, 60, 905), (12, 70, 905)]), [false; 3]);
    }

    #[test]
    fn a_token_of_a_former_process_counts_once_the_transactions_of_the_session_are_known() {
        let mut memory = Memory::default();
        memory.began_above(3, 905);
        assert_eq!(is_old(&mut memory, &[(3, 10, 0)]), [false]);
        memory.created(20);
        assert_eq!(is_old(&mut memory, &[(3, 10, 0), (3, 10, 880), (3, 10, 885)]), [true, true, false]);
        // The same ensemble: it was at 905 at least.
        let mut memory = Memory::default();
        memory.began_above(3, 905);
        memory.created(906);
        assert_eq!(is_old(&mut memory, &[(3, 10, 0), (2, 10, 0)]), [false, true]);
    }
}
