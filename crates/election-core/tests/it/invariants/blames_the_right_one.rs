//! No member is excluded for another's failure: the time of the named member begins when the leader znode is free, or
//! is its own.
//!
//! The failure: one timer for a whole takeover excludes the new leader because the
//! old one was slow to stop (weak point V17 of the published algorithm).

use election_core::{
    internals::record::{Cause, Current, Elected},
    status::Ballot,
};

use super::Verdict;

/// Whether the member that is named for a slot could have created its leader znode.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Chances {
    term: u64,
    named: Option<Ballot>,
    had: bool,
}

impl Chances {
    /// The decision or the leader znode has changed.
    pub(crate) fn stands(&mut self, slot: usize, elected: &Elected, current: Option<&Current>) -> Verdict {
        let named = elected.named(slot).map(|n| &n.ballot);
        let Some(given) = elected.given(slot) else { return Ok(()) };
        let mut verdict = Ok(());
        if self.term != given.term {
            let late = given.cause == Cause::TakeoverFailed && given.sentence.contains("did not");
            if let Some(before) = self.named.as_ref().filter(|_| late && !self.had) {
                verdict = Err(format!(
                    "blames the right one: {before} is excluded in term {}, and its place was never free",
                    given.term
                ));
            }
            *self = Self { term: given.term, named: named.cloned(), had: false };
        }
        self.had |= current.is_none_or(|c| Some(&c.ballot) == named);
        verdict
    }
}
