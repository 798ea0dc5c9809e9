//! Nobody is excluded for what another did: the one who is named is given its time
//! from the moment the place is free, or its own.
//!
//! The failure: one timer for a whole takeover excludes the new leader because the
//! old one was slow to stop (weak point V17 of the published algorithm).

use election_core::{
    Ballot,
    record::{Cause, Current, Elected},
};

use super::Verdict;

/// Whether the one who is named could have taken its place.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Chances {
    term: u64,
    named: Option<Ballot>,
    had: bool,
}

impl Chances {
    /// The decision or the place has changed.
    pub(crate) fn stands(&mut self, elected: &Elected, current: Option<&Current>) -> Verdict {
        let named = elected.named(0).map(|n| &n.ballot);
        let mut verdict = Ok(());
        if self.term != elected.term {
            let late = elected.cause == Cause::TakeoverFailed && elected.sentence.contains("did not");
            if let Some(before) = self.named.as_ref().filter(|_| late && !self.had) {
                verdict = Err(format!(
                    "blames the right one: {before} is excluded in term {}, and its place was never free",
                    elected.term
                ));
            }
            *self = Self { term: elected.term, named: named.cloned(), had: false };
        }
        self.had |= current.is_none_or(|c| Some(&c.ballot) == named);
        verdict
    }
}
