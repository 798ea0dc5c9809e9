//! What operators do to an election, and what is checked before: the same for the command line and the HTTP endpoints.

pub(crate) mod contest;
pub(crate) mod drill;
mod election;
pub(crate) mod job_requests;
pub(crate) mod moves;
pub(crate) mod plan;
pub(crate) mod servers;
mod sites;
pub(crate) mod standing;

pub(crate) use election::{Operator, asker};
pub(crate) use sites::check_sites;

/// Whether this is the id of a request. It becomes part of a path.
pub(crate) fn is_request_id(text: &str) -> bool {
    let number = text.strip_prefix("r-").unwrap_or_default();
    let number = number.strip_prefix('-').unwrap_or(number);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}
