//! What stands in `leader/current` is of the session that made it.
//!
//! The failure: READY is written onto the place of the next leader (weak point V25 of
//! the published algorithm), which then looks like somebody else's.

use election_core::record::Current;

use super::Verdict;

/// `writer` is the member whose session owns the place that says `current`.
pub(crate) fn check(current: &Current, writer: Option<&str>) -> Verdict {
    match writer {
        Some(writer) if writer != current.member.as_str() => Err(format!(
            "place is its owner's: {} stands in the place that the session of {writer} owns",
            current.member
        )),
        _ => Ok(()),
    }
}
