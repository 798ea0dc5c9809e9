//! A leader against a standing order is replaced, and once: leadership moves to where the order allows it, and
//! unchanged orders do not cause a second move.
//!
//! The failures: leadership stays in a site that is being shut down; preference without hysteresis flaps
//! (metallb/metallb#800).

use std::collections::BTreeMap;

use election_core::internals::record::{Cause, Elected};

use super::Verdict;

/// The most such moves of one slot after the last order: one with the present knowledge, one by a successor that was in
/// the line before, and one that follows from it.
const MOST: u32 = 3;

/// The moves for standing orders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Obeyed {
    term: u64,
    total: u64,
    /// By slot, since the orders were given that last.
    since: Option<BTreeMap<usize, u32>>,
}

impl Obeyed {
    /// From now on there are no more orders.
    pub(crate) fn last_order(&mut self) {
        self.since = Some(BTreeMap::new());
    }

    /// The decision has changed.
    pub(crate) fn decided(&mut self, elected: &Elected) -> Verdict {
        if elected.term == self.term || elected.cause() != Cause::StandingOrder {
            self.term = elected.term;
            return Ok(());
        }
        self.term = elected.term;
        self.total += 1;
        let slot = (0..elected.slots.len()).find(|slot| elected.term_of(*slot) == elected.term);
        let Some((slot, named)) = slot.and_then(|slot| Some((slot, elected.named(slot)?))) else {
            return Err(format!("standing orders: term {} names nobody", elected.term));
        };
        // Here it is sites that orders are about.
        if elected
            .latest()
            .and_then(|given| given.previous.as_ref())
            .is_some_and(|previous| previous.site == named.site)
        {
            let why = format!("term {} leaves no site: {}", elected.term, elected.sentence());
            return Err(format!("standing orders: {why}"));
        }
        let Some(since) = &mut self.since else { return Ok(()) };
        let count = since.entry(slot).or_default();
        *count += 1;
        if *count > MOST {
            return Err(format!(
                "standing orders: slot {slot} moves to and fro, now in term {}",
                elected.term
            ));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.total
    }
}
