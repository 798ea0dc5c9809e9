use election_core::{
    record::{Cause, MemberRecord, Previous},
    strategy::Round,
};

use super::{failed, is_closed};
use crate::stage::{Comparison, Standing};

/// After a failure, where a leader shuts down, and where all had left and are coming back: prefers that
/// leader's site, for moving to another one costs more than a restart beside it.
///
/// With any other cause all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameSite;

impl SameSite {
    /// The name of the stage.
    pub const NAME: &'static str = "same-site";
}

impl Comparison for SameSite {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(goes(round).is_some_and(|goes| goes.site != candidate.site))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let whose = match round.cause {
            cause if cause.is_failure() => "the failed leader's",
            Cause::Startup => "the last leader's",
            _ => "the leader's",
        };
        match goes(round) {
            Some(goes) if goes.site == candidate.site => format!("stays in {whose} site ({})", goes.site),
            Some(goes) => format!("leaves {whose} site ({})", goes.site),
            None => "no leader failed or shuts down".to_owned(),
        }
    }

    fn speaks_when_tied(&self, _: &MemberRecord, round: &Round<'_>) -> bool {
        goes(round).is_some()
    }

    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let site = &goes(round).filter(|last| !is_closed(&last.site, round))?.site;
        let leads = round.others.iter().any(|other| other.site == *site);
        let is_there = electable.iter().any(|candidate| candidate.site == *site);
        (!leads && !is_there)
            .then(|| format!("site {site} was led from last and none of its members can lead yet"))
    }
}

/// The leader that failed or shuts down, or led before all had left.
fn goes<'a>(round: &Round<'a>) -> Option<&'a Previous> {
    let as_planned = matches!(round.cause, Cause::LeaderShutdown | Cause::Startup);
    failed(round).or(round.previous.filter(|_| as_planned))
}

#[cfg(test)]
mod tests {
    use election_core::record::Cause;

    use super::*;
    use crate::{
        Pipeline,
        support::{View, member, order, previous},
    };

    #[test]
    fn a_leader_that_shuts_down_is_followed_in_its_site() {
        let view = View {
            cause: Cause::LeaderShutdown,
            previous: Some(previous("w-0", "west", 0)),
            ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)])
        };
        let expected = ["w-1: stays in the leader's site (west)", "e-1: leaves the leader's site (west)"];
        assert_eq!(order(&Pipeline::new().compare(SameSite), &view), expected);
    }

    #[test]
    fn the_same_site_goes_first_after_every_failure_and_only_then() {
        for cause in Cause::ALL {
            let view = View {
                cause,
                failed: Some(previous("w-0", "west", 0)),
                ..View::of([member("e-1", "east", 1), member("w-1", "west", 2)])
            };
            let expected = if cause.is_failure() {
                [
                    "w-1: stays in the failed leader's site (west)",
                    "e-1: leaves the failed leader's site (west)",
                ]
            } else {
                ["e-1: first by member id", "w-1: second by member id"]
            };
            assert_eq!(order(&Pipeline::new().compare(SameSite), &view), expected);
        }
    }
}
