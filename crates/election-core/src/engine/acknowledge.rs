//! An operator has looked at what went wrong: takeovers and failures are forgotten.

use crate::record::{Elected, Failure, SiteFailure};

/// What an acknowledgement forgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// When takeovers that nobody ordered happened lately, in milliseconds since the Unix epoch.
    pub takeovers: Vec<u64>,
    /// The failures of members.
    pub failures: Vec<Failure>,
    /// The failures of sites; one that goes on is noticed anew.
    pub site_failures: Vec<SiteFailure>,
}

/// The decision without what is remembered against members and against moving, and what that
/// was; `None` if nothing is.
///
/// It stays the same term, and whoever leads leads on. Exclusions that are in force run out by
/// themselves: one can be part of taking a place by force.
pub fn acknowledge(elected: &Elected) -> Option<(Elected, Released)> {
    let mut next = elected.clone();
    next.attempts.clear();
    next.slot_attempts.clear();
    let released = Released {
        takeovers: elected.all_attempts().collect(),
        failures: std::mem::take(&mut next.failures),
        site_failures: std::mem::take(&mut next.site_failures),
    };
    (released != Released::default()).then_some((next, released))
}
