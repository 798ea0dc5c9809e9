//! A site that has failed too often lately is not gone back to, unless an operator asks for it
//! or nobody else is left: to go back and fail once more costs two moves.

use election_core::{
    engine::{Policy, barred_sites},
    record::{Cause, Elected},
};

use super::Verdict;

/// The latest term.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NeverBack {
    term: u64,
}

impl NeverBack {
    /// The ensemble was restored from a copy with a decision of this term, which was judged when it was made.
    pub(crate) fn restored(&mut self, term: u64) {
        self.term = term;
    }

    /// The decision has changed. What is written later in the same term may remember more.
    pub(crate) fn decided(&mut self, elected: &Elected, policy: &Policy) -> Verdict {
        if std::mem::replace(&mut self.term, elected.term) == elected.term {
            Ok(())
        } else {
            check(elected, policy)
        }
    }
}

/// What the elector writes says by itself whether it goes back: the failures stand beside
/// who is named. A successor steps in as it was put in line, maybe before the last failure.
fn check(elected: &Elected, policy: &Policy) -> Verdict {
    let asked = matches!(elected.cause, Cause::Switchover | Cause::Failover);
    let stepped_in =
        elected.sentence.contains("being first in line") || elected.sentence.contains("was in line");
    let last = elected.sentence.contains("nobody else was left");
    if asked || stepped_in || last {
        return Ok(());
    }
    let fresh = (0..elected.slots.len()).find(|slot| elected.term_of(*slot) == elected.term);
    let Some(named) = fresh.and_then(|slot| elected.named(slot)) else { return Ok(()) };
    let goes_back = elected.previous.as_ref().is_some_and(|previous| previous.site != named.site);
    let moves = matches!(elected.cause, Cause::BetterCandidate | Cause::SiteFailed | Cause::Unhealthy);
    let mut barred = barred_sites(policy, Some(elected), elected.decided_at_ms).into_iter();
    match barred.find(|barred| goes_back && moves && barred.site == named.site) {
        Some(barred) => Err(format!(
            "never back: term {} goes back to {} which has failed {}: {}",
            elected.term, barred.site, barred.why, elected.sentence
        )),
        None => Ok(()),
    }
}
