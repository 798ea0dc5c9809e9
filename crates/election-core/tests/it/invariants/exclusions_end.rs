//! Exclusions end, and name an incarnation.
//!
//! An exclusion that outlives its cause locks a repaired member out; one kept in a
//! process's memory is forgotten with it (the published algorithm has both faults).

use election_core::internals::record::Elected;

use super::Verdict;

/// No exclusion ends later than one span from now, by the wall clock of its author.
pub(crate) fn check(elected: &Elected, unix_ms: u64, exclusion_ms: u64, clock_error_ms: u64) -> Verdict {
    let latest = unix_ms + exclusion_ms + clock_error_ms;
    match elected.exclusions.iter().find(|e| e.until_ms > latest) {
        None => Ok(()),
        Some(e) => Err(format!(
            "exclusions end: that of {} lasts {} ms longer than it may",
            e.ballot,
            e.until_ms - latest
        )),
    }
}
