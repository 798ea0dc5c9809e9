//! Leadership moves to another site automatically only while a window is open, by the elector's clock.
//!
//! The failure: a failback at the worst hour of the day (weak point V23 of the published
//! algorithm).

use election_core::internals::{
    calendar::Windows,
    record::{Cause, Elected},
};

use super::Verdict;

pub(crate) fn check(elected: &Elected, windows: &Windows) -> Verdict {
    let Some(slot) = elected.slots.iter().find(|slot| slot.given.term == elected.term) else { return Ok(()) };
    let (given, Some(named)) = (&slot.given, &slot.named) else { return Ok(()) };
    if given.cause != Cause::BetterCandidate {
        return Ok(());
    }
    let leaves_a_site = given.previous.as_ref().is_some_and(|previous| previous.site != named.site);
    if leaves_a_site && windows.open_from(given.decided_at_ms) != given.decided_at_ms {
        return Err(format!("elective moves in windows: term {}: {}", elected.term, elected.sentence()));
    }
    Ok(())
}
