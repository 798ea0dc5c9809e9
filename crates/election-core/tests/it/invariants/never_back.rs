//! Leadership does not return to a site that has failed too often recently, unless an operator requests it or no other
//! member is left. A return followed by one more failure costs two moves.

use election_core::{
    config::Policy,
    internals::{
        explain::barred_sites,
        record::{Cause, Elected},
    },
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

    /// The decision has changed. A later version of the same term may remember more.
    pub(crate) fn decided(&mut self, elected: &Elected, policy: &Policy) -> Verdict {
        if std::mem::replace(&mut self.term, elected.term) == elected.term {
            Ok(())
        } else {
            check(elected, policy)
        }
    }
}

/// The elector's record alone shows a return: it contains the failures and the named members. A successor steps in by
/// its position in the line, which may be older than the last failure.
fn check(elected: &Elected, policy: &Policy) -> Verdict {
    let Some(slot) = elected.slots.iter().find(|slot| slot.given.term == elected.term) else { return Ok(()) };
    let (given, Some(named)) = (&slot.given, &slot.named) else { return Ok(()) };
    let asked = matches!(given.cause, Cause::Switchover | Cause::Failover);
    let allowed = ["being first in line", "was in line", "no other member was left"];
    // A long sentence is cut, and its reason with it.
    let is_cut = given.sentence.ends_with('…');
    if asked || is_cut || allowed.iter().any(|word| given.sentence.contains(word)) {
        return Ok(());
    }
    let goes_back = given.previous.as_ref().is_some_and(|previous| previous.site != named.site);
    let moves = matches!(given.cause, Cause::BetterCandidate | Cause::SiteFailed | Cause::Unhealthy);
    let mut barred = barred_sites(policy, Some(elected), given.decided_at_ms).into_iter();
    match barred.find(|barred| goes_back && moves && barred.site == named.site) {
        Some(barred) => Err(format!(
            "never back: term {} goes back to {} which has failed {}: {}",
            elected.term, barred.site, barred.why, given.sentence
        )),
        None => Ok(()),
    }
}
