//! If the policy requires an operator's confirmation, leadership moves to another site automatically only after that.
//!
//! The failure: a failback while the preferred site is still under repair, which interrupts the service a second time.

use election_core::{
    config::Confirm,
    internals::record::{Cause, Control, Elected},
};

use super::Verdict;

/// Which moves an operator has ever confirmed: from which term, to which site.
#[derive(Debug, Default)]
pub(crate) struct ConfirmedMoves(Vec<(u64, String)>);

impl ConfirmedMoves {
    pub(crate) fn ordered(&mut self, control: &Control) {
        self.0.extend(control.confirmed.iter().map(|c| (c.term, c.site.to_string())));
    }

    pub(crate) fn decided(&self, elected: &Elected, confirm: Confirm) -> Verdict {
        // In an older format the same word means a standing order, which needs no confirmation.
        let asks = confirm == Confirm::CrossSite;
        if !asks || elected.cause() != Cause::BetterCandidate {
            return Ok(());
        }
        let slot = (0..elected.slots.len()).find(|slot| elected.term_of(*slot) == elected.term);
        let Some(named) = slot.and_then(|slot| elected.named(slot)) else { return Ok(()) };
        let leaves_a_site = elected
            .latest()
            .and_then(|given| given.previous.as_ref())
            .is_some_and(|previous| previous.site != named.site);
        let may = self.0.iter().any(|(term, site)| *term < elected.term && site == named.site.as_str());
        if leaves_a_site && !may {
            return Err(format!("elective moves confirmed: term {}: {}", elected.term, elected.sentence()));
        }
        Ok(())
    }
}
