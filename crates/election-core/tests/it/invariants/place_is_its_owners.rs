//! The record in `leader/current` is from the session that created it.
//!
//! The failure: READY is written to the leader znode of the next leader (weak point V25 of the published algorithm),
//! which then appears to belong to another member.

use election_core::internals::record::Current;

use super::Verdict;

/// `writer` is the member whose session owns the leader znode with the record `current`.
pub(crate) fn check(current: &Current, writer: Option<&str>) -> Verdict {
    match writer {
        Some(writer) if writer != current.member.as_str() => Err(format!(
            "place is its owner's: {} stands in the place that the session of {writer} owns",
            current.member
        )),
        _ => Ok(()),
    }
}
