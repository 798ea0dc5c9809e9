use election_core::strategy::{MemberRecord, Round};

use crate::{
    stage::{Comparison, Stage, Standing},
    words,
};

/// After a failure: members with fewer recent failures go first.
/// Failures are counted by member id, so that a restart does not clear them. The engine decides how long they are
/// remembered (`election_core::config::Policy::penalty_window`).
#[derive(Clone, Copy, Debug, Default)]
pub struct FewerFailures;

impl Stage for FewerFailures {
    const NAME: &'static str = "fewer-failures";
}

impl FewerFailures {
    fn failures<'a>(candidate: &'a MemberRecord, round: &Round<'a>) -> impl Iterator<Item = &'a str> {
        let counts = round.cause.is_failure();
        let all = round.trouble.failures.iter().filter(move |_| counts);
        all.filter(|failure| failure.member == candidate.member).map(|failure| failure.cause.as_str())
    }
}

impl Comparison for FewerFailures {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::try_from(Self::failures(candidate, round).count()).unwrap_or(i64::MAX)
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let count = Self::failures(candidate, round).count();
        let last =
            Self::failures(candidate, round).last().map(|cause| words::quote(&cause.replace(',', " ")));
        match (count, last) {
            (0, _) | (_, None) => "has not failed lately".to_owned(),
            (1, Some(last)) => format!("has failed once lately ({last})"),
            (count, Some(last)) => format!("has failed {count} times lately (at last {last})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::{Cause, MemberFailure};

    use super::*;
    use crate::{
        Pipeline,
        testing::{NOW_MS, View, member, order},
    };

    fn view(cause: Cause) -> View {
        let members = [member("e-1", "east", 7), member("e-2", "east", 2), member("w-1", "west", 3)];
        let mut view = View { cause, ..View::of(members) };
        let failure =
            |id: &str, cause: &str| MemberFailure::new(id.parse().unwrap(), cause.to_owned(), 1, NOW_MS);
        view.trouble.failures = vec![
            failure("e-1", "work-failed"),
            failure("e-2", "unhealthy"),
            failure("e-1", "takeover-failed"),
        ];
        view
    }

    /// The new ballot of e-1 does not clear its failures.
    #[test]
    fn who_has_failed_more_often_comes_later_after_a_failure_and_only_then() {
        for cause in Cause::ALL {
            let expected = if cause.is_failure() {
                [
                    "w-1: has not failed lately",
                    "e-2: has failed once lately (unhealthy)",
                    "e-1: has failed 2 times lately (at last takeover-failed)",
                ]
            } else {
                ["e-1: first by member id", "e-2: second by member id", "w-1: third by member id"]
            };
            let got = order(&Pipeline::new().compare(FewerFailures), &view(cause));
            assert_eq!(got, expected, "{cause}");
        }
    }
}
