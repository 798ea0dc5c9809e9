//! What this member has seen decided, for when the decision is deleted or the ensemble goes back to
//! an older state.
//!
//! Terms and tokens never go back: a resource that refuses older tokens would refuse every later
//! leader. So each member keeps the latest decision and the newest token that it has seen. While the
//! decision that it reads is missing or older, it says so in its record, and the elector goes by the
//! latest memory of all:
//! - A decision that is missing is written again as it was remembered, so that no leader is
//!   disturbed; where only its number is known, the first decision is above that.
//! - One that is older than what any member remembers is followed by a term above all of it.
//!
//! In both cases the base of the tokens rises to the newest token, for zxids may have begun anew.
//! If every member was restarted meanwhile, the memory is lost.

use super::{
    Engine,
    elector::Facts,
    rules::Rule,
    tokens::{Above, above},
    view::{Known, Meta},
};
use crate::{
    ids::Ballot,
    record::{Current, Elected, Remembered},
};

/// What was seen, and may stand nowhere any more.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Memory {
    /// The latest decision, once the view has it no more, and the transaction that wrote it.
    decision: Option<(Elected, i64)>,
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
    pub(super) fn keep(&mut self, elected: &Known<Elected>) {
        let Known::Present(elected, meta) = elected else { return };
        self.token_base = self.token_base.max(elected.token_base);
        if self.decision.as_ref().is_none_or(|(kept, _)| kept.term <= elected.term) {
            self.decision = Some((elected.clone(), meta.mzxid));
        }
    }

    /// The view has another decision: what it is not older than need not be kept.
    pub(super) fn compare(&mut self, elected: &Known<Elected>) {
        if let (Some(remembered), Known::Present(elected, meta)) = (self.remembered(), elected)
            && !remembered.is_newer_than(elected, meta.mzxid)
        {
            self.decision = None;
        }
    }

    /// Whether this term's decision is the one that is kept.
    pub(super) fn has(&self, term: u64) -> bool {
        self.decision.as_ref().is_some_and(|(kept, _)| kept.term == term)
    }

    /// Listed all ballots with this own one, which is the lowest or not: what counts is the first time.
    pub(super) fn listed(&mut self, ballot: &Ballot, is_lowest: bool) {
        if self.joined.as_ref().is_none_or(|(known, _)| known != ballot) {
            self.joined = Some((ballot.clone(), is_lowest));
        }
    }

    /// Whether the one with this ballot left before this member joined, as all others did: it did not fail beside
    /// them, and its site may be back in a moment as well.
    pub(super) fn left_with_all(&self, ballot: &Ballot) -> bool {
        self.joined.as_ref().is_some_and(|(mine, was_lowest)| *was_lowest && ballot < mine)
    }

    pub(super) fn saw_token(&mut self, token: Option<u64>) {
        self.token = self.token.max(token.unwrap_or(0));
    }

    /// What is remembered that stands nowhere any more, as far as this member knows.
    fn remembered(&self) -> Option<Remembered> {
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

impl Engine {
    /// The latest that it has seen decided, while the decision is missing or older than that.
    pub fn remembers(&self) -> Option<Remembered> {
        let remembered = self.memory.remembered().filter(|_| self.rules.keep(Rule::MemoryShared))?;
        match &self.view.elected {
            Known::Absent => Some(remembered),
            Known::Present(elected, meta) => {
                Some(remembered).filter(|remembered| remembered.is_newer_than(elected, meta.mzxid))
            }
            Known::Unread | Known::Unreadable(..) => None,
        }
    }
}

impl Facts<'_> {
    /// The latest that anybody remembers.
    fn remembered(&self) -> Option<Remembered> {
        let members = self.members.iter().filter_map(|member| member.remembers);
        let own = self.memory.and_then(Memory::remembered);
        members.chain(own).reduce(Remembered::or_newer).filter(|_| self.rules.keep(Rule::Remembered))
    }

    /// There is no decision: what was remembered of the last one, to be written again.
    pub(super) fn restored(&self) -> Option<Elected> {
        let latest = self.latest()?;
        let (decision, _) = self.memory?.decision.as_ref()?;
        (decision.term >= latest.term)
            .then(|| Elected { token_base: decision.token_base.max(latest.token), ..decision.clone() })
    }

    /// There is no decision: what the first one is to be above.
    pub(super) fn latest(&self) -> Option<Remembered> {
        // While there is one, a successor's place may be ahead of it.
        let in_office = |current: &Current| Remembered {
            term: current.term,
            mzxid: 0,
            token: current.fencing_token.unwrap_or(0),
            token_base: 0,
            last_request: None,
        };
        let places = self.places.iter().filter_map(|place| place.record().map(in_office));
        self.remembered().into_iter().chain(places).reduce(Remembered::or_newer)
    }

    /// The next decision, where the one that stands is older than what somebody remembers.
    pub(super) fn caught_up(&self, elected: &Elected, meta: Meta) -> Option<Elected> {
        let remembered = self.remembered().filter(|r| r.is_newer_than(elected, meta.mzxid))?;
        let sentence = format!(
            "the decision of term {} is older than what members have seen (term {}, fencing token {}): all go on \
             above that",
            elected.term, remembered.term, remembered.token
        );
        let elected =
            Elected { last_request: self.decided_up_to().max(remembered.last_request), ..elected.clone() };
        Some(above(
            &elected,
            Above {
                term: remembered.term,
                token_base: elected.token_base.max(remembered.token),
                sentence,
                by: self.me.as_str(),
                unix_ms: self.now.unix_ms,
            },
        ))
    }
}
