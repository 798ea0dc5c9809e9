use election_core::strategy::{MemberRecord, Round};

use super::failed;
use crate::stage::{Comparison, Stage, Standing};

/// After a failure: prefers all other sites to the failed leader's, because the cause can affect the whole site. It
/// refuses no member: if only that site is left, it leads again.
/// If the cause is not a failure, all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtherSite;

impl Stage for OtherSite {
    const NAME: &'static str = "other-site";
}

impl Comparison for OtherSite {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(failed(round).is_some_and(|failed| failed.site == candidate.site))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        match failed(round) {
            Some(failed) if failed.site == candidate.site => {
                format!("same site as the failed leader's ({})", failed.site)
            }
            Some(failed) => format!("another site than the failed leader's ({})", failed.site),
            None => "no leader failed".to_owned(),
        }
    }

    fn speaks_when_tied(&self, _: &MemberRecord, round: &Round<'_>) -> bool {
        failed(round).is_some()
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order, previous},
    };

    fn pipeline() -> Pipeline {
        Pipeline::new().compare(OtherSite)
    }

    #[test]
    fn another_site_goes_first_after_every_failure_and_only_then() {
        for cause in Cause::ALL {
            let view = View {
                cause,
                failed: Some(previous("e-0", "east", 0)),
                ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)])
            };
            let expected = if cause.is_failure() {
                [
                    "w-1: another site than the failed leader's (east)",
                    "e-1: same site as the failed leader's (east)",
                ]
            } else {
                ["e-1: first by member id", "w-1: second by member id"]
            };
            assert_eq!(order(&pipeline(), &view), expected, "{cause}");
        }
    }

    #[test]
    fn falls_back_to_the_same_site_and_says_so() {
        let view = View {
            cause: Cause::LeaderLost,
            failed: Some(previous("e-0", "east", 0)),
            ..View::of([member("e-1", "east", 1)])
        };
        assert_eq!(
            order(&pipeline(), &view),
            ["e-1: the only candidate; same site as the failed leader's (east)"]
        );
    }

    #[test]
    fn says_so_too_when_everybody_stands_elsewhere() {
        let view = View {
            cause: Cause::LeaderLost,
            failed: Some(previous("e-0", "east", 0)),
            ..View::of([member("w-1", "west", 1), member("w-2", "west", 2)])
        };
        assert_eq!(
            order(&pipeline(), &view)[0],
            "w-1: another site than the failed leader's (east); first by member id"
        );
    }

    #[test]
    fn a_failure_without_a_known_leader_changes_nothing() {
        let view =
            View { cause: Cause::Failover, ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)]) };
        assert_eq!(order(&pipeline(), &view), ["e-1: first by member id", "w-1: second by member id"]);
    }
}
