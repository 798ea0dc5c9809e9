//! A decision about one slot does not affect another: it leaves all other slots unchanged, and no leader stops because
//! of a decision that left its slot unchanged. A member has one slot at most.
//!
//! It depends on the term that each slot keeps for itself. The failure: one of several leaders is lost, and the work of
//! all of them is restarted.

use std::collections::BTreeMap;

use election_core::{
    internals::record::{Cause, Elected},
    status::Ballot,
};

use super::Verdict;

/// A slot as a decision left it: since which term, and for whom.
type Stand = (u64, Option<Ballot>);

/// All decisions so far, by term.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Slots {
    stands: BTreeMap<u64, Vec<Stand>>,
    /// The decisions from before a deletion. Earlier terms may follow later ones there.
    deleted: Vec<Vec<Stand>>,
}

fn stands(elected: &Elected) -> Vec<Stand> {
    let stand = |slot| (elected.term_of(slot), elected.named(slot).map(|n| n.ballot.clone()));
    (0..elected.slots.len()).map(stand).collect()
}

/// A leader stops because its znode is gone; is it?
pub(crate) fn loses(host: usize, is_there: bool) -> Verdict {
    if is_there {
        return Err(format!(
            "others undisturbed: host {host} takes its leader znode for lost, and it is there"
        ));
    }
    Ok(())
}

impl Slots {
    /// A decision was written.
    pub(crate) fn decided(&mut self, elected: &Elected) -> Verdict {
        let (term, now) = (elected.term, stands(elected));
        for (slot, named) in elected.leaders() {
            if elected.slot_of(&named.ballot) != Some(slot) {
                return Err(format!("others undisturbed: term {term} names {} for two slots", named.member));
            }
        }
        let before =
            self.stands.range(..term).next_back().map(|(_, before)| before.clone()).unwrap_or_default();
        let kept = before.len().min(now.len());
        let touched: Vec<_> = (0..kept).filter(|slot| before[*slot] != now[*slot]).collect();
        let decided_in = |slot: usize| elected.given(slot).map(|given| given.decided_in());
        if let Some(slot) = touched.iter().find(|slot| decided_in(**slot) != Some(term)) {
            return Err(format!(
                "others undisturbed: term {term} has slot {slot} as {:?}, and it was {:?}",
                now[*slot], before[*slot]
            ));
        }
        let most = if elected.cause() == Cause::SlotsChanged { 0 } else { 1 };
        // Tokens that are raised are raised for all.
        let all = elected.cause() == Cause::TokensRaised;
        if !before.is_empty() && touched.len() > most && !all {
            return Err(format!(
                "others undisturbed: term {term} changes the slots {touched:?}: {}",
                elected.sentence()
            ));
        }
        self.stands.insert(term, now);
        Ok(())
    }

    /// The decision was deleted: the next one begins again.
    pub(crate) fn deleted(&mut self) {
        self.deleted.extend(std::mem::take(&mut self.stands).into_values());
    }

    /// A leader of `slot`, decided in `term`, stops because it is no longer named. A leader that continues from a
    /// former session also stops when its present `own` ballot is named.
    pub(crate) fn stops(&self, slot: usize, term: u64, ballot: &Ballot, own: Option<&Ballot>) -> Verdict {
        let mine = Some((term, Some(ballot.clone())));
        let anew = |stands: &[Stand]| {
            own.is_some_and(|own| own != ballot && stands.iter().any(|s| s.1.as_ref() == Some(own)))
        };
        let since = if self.deleted.is_empty() { term } else { 0 };
        let all = self.stands.range(since..).map(|(_, stands)| stands);
        if all.chain(&self.deleted).any(|stands| stands.get(slot) != mine.as_ref() || anew(stands)) {
            return Ok(());
        }
        Err(format!(
            "others undisturbed: {ballot} stops leading slot {slot}, which has been its own ever since term {term}"
        ))
    }
}
