//! Leadership moves by itself to another site only while a window is open, by the clock of
//! whoever decides.
//!
//! The failure: a failback at the worst hour of the day (weak point V23 of the published
//! algorithm).

use election_core::{
    calendar::Windows,
    record::{Cause, Elected, NEWEST},
};

use super::Verdict;

pub(crate) fn check(elected: &Elected, windows: &Windows) -> Verdict {
    // In an older format the same word stands for a standing order, which waits for nothing.
    if elected.cause != Cause::BetterCandidate || elected.v < NEWEST {
        return Ok(());
    }
    let slot = (0..elected.slots.len()).find(|slot| elected.term_of(*slot) == elected.term);
    let Some(named) = slot.and_then(|slot| elected.named(slot)) else { return Ok(()) };
    let leaves_a_site = elected.previous.as_ref().is_some_and(|previous| previous.site != named.site);
    if leaves_a_site && windows.open_from(elected.decided_at_ms) != elected.decided_at_ms {
        return Err(format!("elective moves in windows: term {}: {}", elected.term, elected.sentence));
    }
    Ok(())
}
