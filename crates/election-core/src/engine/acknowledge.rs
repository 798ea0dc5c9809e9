//! An operator has looked at what went wrong: takeovers and failures are forgotten.

use crate::record::{Elected, Failure, SiteFailure};

/// What an acknowledgement forgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// When takeovers that nobody ordered happened lately, in milliseconds since the Unix epoch.
    pub takeovers: Vec<u64>,
    /// When leadership moved for standing orders lately.
    pub obeyed: Vec<u64>,
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
        obeyed: std::mem::take(&mut next.obeyed).into_values().flatten().collect(),
        failures: std::mem::take(&mut next.failures),
        site_failures: std::mem::take(&mut next.site_failures),
    };
    (released != Released::default()).then_some((next, released))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record as _;

    #[test]
    fn what_counts_against_moving_is_forgotten_and_the_rest_stays() {
        let decision = r#"{"v":1,"term":4,"slots":[null],"attempts":[5],"slot_attempts":{"1":[6]},"obeyed":{"0":[7]},
            "failures":[{"member":"a","at_ms":8,"cause":"work-failed"}],"cause":"startup","sentence":"","decided_by":"e",
            "decided_at_ms":0}"#;
        let elected = Elected::decode("/elected", decision.as_bytes()).unwrap();
        let (next, released) = acknowledge(&elected).unwrap();
        assert_eq!((released.takeovers, released.obeyed), (vec![5, 6], vec![7]));
        assert_eq!((released.failures.len(), next.term), (1, 4));
        assert_eq!(acknowledge(&next), None);
    }
}
