use election_core::strategy::{Cause, MemberRecord, Round, SiteId};

use super::{failed, is_closed};
use crate::stage::{Comparison, Stage, Standing};

/// After a failure, when a leader shuts down, and when all members had left and return: prefers that leader's site,
/// because a move to another site costs more than a restart in the same one. For a better candidate it prefers the
/// incumbent's site.
///
/// With any other cause all are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameSite;

impl Stage for SameSite {
    const NAME: &'static str = "same-site";
}

impl Comparison for SameSite {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(site(round).is_some_and(|site| *site != candidate.site))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let whose = match round.cause {
            cause if cause.is_failure() => "the failed leader's",
            Cause::Startup => "the last leader's",
            _ => "the leader's",
        };
        match site(round) {
            Some(site) if *site == candidate.site => format!("stays in {whose} site ({site})"),
            Some(site) => format!("leaves {whose} site ({site})"),
            None => "no leader failed or is shutting down".to_owned(),
        }
    }

    fn speaks_when_tied(&self, _: &MemberRecord, round: &Round<'_>) -> bool {
        site(round).is_some()
    }

    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let site = site(round).filter(|site| !is_closed(site, round))?;
        let leads = round.others.iter().any(|other| other.site == *site);
        let is_there = electable.iter().any(|candidate| candidate.site == *site);
        (!leads && !is_there)
            .then(|| format!("site {site} had the last leader and none of its members can lead yet"))
    }
}

/// The site of the leader that failed, shuts down, led before all members left, or leads.
fn site<'a>(round: &Round<'a>) -> Option<&'a SiteId> {
    if round.cause == Cause::BetterCandidate {
        let leads = |candidate: &&MemberRecord| round.incumbent == Some(&candidate.ballot);
        // One ballot is one member's. If it were not, the order of the candidates would not matter either.
        return round.candidates.iter().filter(leads).map(|leader| &leader.site).min();
    }
    let as_planned = matches!(round.cause, Cause::LeaderShutdown | Cause::Startup);
    failed(round).or(round.previous.filter(|_| as_planned)).map(|last| &last.site)
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order, previous},
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
    fn where_a_better_one_is_looked_for_the_site_is_the_incumbents() {
        let view = View {
            cause: Cause::BetterCandidate,
            incumbent: Some(ballot(2)),
            ..View::of([member("e-1", "east", 1), member("w-1", "west", 2), member("w-2", "west", 3)])
        };
        let expected = [
            "w-1: stays in the leader's site (west); first by member id",
            "w-2: stays in the leader's site (west); second by member id",
            "e-1: leaves the leader's site (west)",
        ];
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
