use election_core::strategy::{MemberRecord, Round};

use super::failed;
use crate::stage::{Comparison, Stage, Standing};

/// After a failure: the incarnation that failed comes last.
/// It can be alive and fit, for example when an operator forces leadership away from it; if it were first, leadership
/// would not move. It is not refused: if no other member is left, it leads again.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailedLast;

impl Stage for FailedLast {
    const NAME: &'static str = "failed-last";
}

impl FailedLast {
    fn is_failed(candidate: &MemberRecord, round: &Round<'_>) -> bool {
        failed(round).is_some_and(|failed| failed.ballot == candidate.ballot)
    }
}

impl Comparison for FailedLast {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(Self::is_failed(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let not = if Self::is_failed(candidate, round) { "" } else { "not " };
        format!("{not}the leader that failed")
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        Self::is_failed(candidate, round)
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

    fn view(cause: Cause) -> View {
        View {
            cause,
            failed: Some(previous("e-1", "east", 1)),
            ..View::of([member("e-1", "east", 1), member("e-2", "east", 2)])
        }
    }

    #[test]
    fn the_failed_incarnation_comes_last_after_every_failure_and_only_then() {
        for cause in Cause::ALL {
            let expected = if cause.is_failure() {
                ["e-2: not the leader that failed", "e-1: the leader that failed"]
            } else {
                ["e-1: first by member id", "e-2: second by member id"]
            };
            let got = order(&Pipeline::new().compare(FailedLast), &view(cause));
            assert_eq!(got, expected, "{cause}");
        }
    }

    #[test]
    fn a_restart_of_the_same_member_is_somebody_else() {
        let mut view = view(Cause::LeaderLost);
        view.members[0] = member("e-1", "east", 7);
        assert_eq!(
            order(&Pipeline::new().compare(FailedLast), &view),
            ["e-1: first by member id", "e-2: second by member id"]
        );
    }
}
