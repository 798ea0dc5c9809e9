//! Who could lead as well as the leader: what a [`FairShare`](crate::FairShare) plan may choose from.

use std::collections::BTreeSet;

use election_core::{
    MemberId,
    record::{Cause, MemberRecord},
    strategy::{Round, Strategy as _},
};

use crate::{Pipeline, Rules, stages};

/// Stages that make an order where there is no preference. They keep nobody from leading
/// instead of another one.
const NO_PREFERENCE: [&str; 3] =
    [stages::Incumbent::NAME, stages::OldestBallot::NAME, stages::RoundRobin::NAME];

impl Rules {
    /// Who could lead instead of the incumbent of `round` with nothing lost by it: who may lead by
    /// an order, stands as well as the incumbent in all that goes before the stage `fair-share`, and
    /// would be left in office once there. The incumbent is among them. Nobody, where the
    /// incumbent may not lead at all.
    ///
    /// Whatever the cause of `round`, it is asked for a [`Cause::Switchover`], and whether it would last
    /// for a [`Cause::BetterCandidate`].
    pub fn peers(&self, round: &Round<'_>) -> BTreeSet<MemberId> {
        let planned = Round {
            cause: Cause::Switchover,
            failed: None,
            ordered: None,
            accepts_loss: false,
            ..round.clone()
        };
        let stays = |candidate: &&MemberRecord| {
            let ballot = Some(&candidate.ballot);
            let round = Round {
                cause: Cause::BetterCandidate,
                failed: None,
                incumbent: ballot,
                ordered: None,
                ..round.clone()
            };
            self.rank(&round).first().is_some_and(|first| first.named.ballot == candidate.ballot)
        };
        let equal = self.pipeline(planned.cause).equals(&planned);
        equal.into_iter().filter(stays).map(|candidate| candidate.member.clone()).collect()
    }
}

impl Pipeline {
    /// Who passes every filter, and is told apart from the incumbent by no preference before
    /// the stage `fair-share`. Where a strategy orders the rest it is the incumbent alone: there
    /// is no telling what that prefers.
    fn equals<'a>(&self, round: &Round<'a>) -> Vec<&'a MemberRecord> {
        let preferences: Vec<_> = self
            .comparisons()
            .take_while(|stage| stage.name() != stages::Share::NAME)
            .filter(|stage| !NO_PREFERENCE.contains(&stage.name()))
            .collect();
        let grades = |candidate: &MemberRecord| -> Vec<i64> {
            preferences.iter().map(|stage| stage.grade(candidate, round)).collect()
        };
        let may_lead = self.electable(round);
        let incumbent = may_lead.iter().find(|candidate| round.incumbent == Some(&candidate.ballot));
        let Some(own) = incumbent.map(|incumbent| grades(incumbent)) else { return Vec::new() };
        let is_incumbent = |candidate: &MemberRecord| round.incumbent == Some(&candidate.ballot);
        let is_equal = |candidate: &&MemberRecord| {
            grades(candidate) == own && (!self.has_last() || is_incumbent(candidate))
        };
        may_lead.into_iter().filter(is_equal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AutoMoves, SitePolicy,
        stages::{OldestBallot, Share},
        testing::{View, ballot, member, sites, unhealthy, with_priority},
    };

    fn peers(rules: &Rules, view: &View) -> Vec<String> {
        rules.peers(&view.round()).iter().map(ToString::to_string).collect()
    }

    fn two_sites(auto_moves: AutoMoves) -> (Rules, View) {
        let policy = SitePolicy { sites: sites(["east", "west"]), auto_moves, ..SitePolicy::default() };
        let members = [
            member("east-1", "east", 1),
            member("east-2", "east", 2),
            member("west-1", "west", 3),
            unhealthy("east-3", "east", 4, "its disk is full"),
            with_priority("east-4", "east", 5, 0),
        ];
        (policy.rules(), View { incumbent: Some(ballot(1)), ..View::of(members) })
    }

    #[test]
    fn a_peer_stands_in_the_same_site_and_may_lead() {
        for auto_moves in [AutoMoves::None, AutoMoves::All] {
            let (rules, mut view) = two_sites(auto_moves);
            assert_eq!(peers(&rules, &view), ["east-1", "east-2"]);
            // With another leader of that site it is the same.
            view.incumbent = Some(ballot(2));
            assert_eq!(peers(&rules, &view), ["east-1", "east-2"]);
        }
    }

    #[test]
    fn a_site_without_a_preference_has_none_apart() {
        let (_, view) = two_sites(AutoMoves::None);
        let rules = SitePolicy::default().rules();
        assert_eq!(peers(&rules, &view), ["east-1", "east-2", "west-1"]);
    }

    #[test]
    fn where_the_oldest_is_to_lead_nobody_is_as_good() {
        // The engine would move leadership back to the oldest: to and fro for ever.
        let (_, view) = two_sites(AutoMoves::All);
        let rules = Rules::new(SitePolicy::default().fit().compare(OldestBallot));
        assert_eq!(peers(&rules, &view), ["east-1"]);
    }

    #[test]
    fn a_leader_in_the_wrong_place_is_for_the_engine_to_move() {
        // East is better, and the engine is about to move leadership there.
        let (rules, mut view) = two_sites(AutoMoves::All);
        view.members.push(member("west-2", "west", 6));
        view.incumbent = Some(ballot(3));
        assert_eq!(peers(&rules, &view), [""; 0]);
        // By hand alone: in the west one is as good as the other.
        let (rules, _) = two_sites(AutoMoves::None);
        assert_eq!(peers(&rules, &view), ["west-1", "west-2"]);
    }

    #[test]
    fn an_incumbent_that_may_not_lead_has_no_peers() {
        let (rules, mut view) = two_sites(AutoMoves::None);
        view.control.drained = sites(["east"]);
        assert_eq!(peers(&rules, &view), [""; 0]);
        view.incumbent = None;
        assert_eq!(peers(&rules, &view), [""; 0]);
    }

    #[test]
    fn what_stands_behind_the_fair_share_is_no_preference() {
        let rules = |pipeline: Pipeline| Rules::new(pipeline).when([Cause::BetterCandidate], kept());
        fn kept() -> Pipeline {
            SitePolicy::default().fit().compare(stages::Incumbent)
        }
        let (_, view) = two_sites(AutoMoves::None);
        let order = || SitePolicy { sites: sites(["east", "west"]), ..SitePolicy::default() }.site_order();
        let behind = SitePolicy::default().fit().compare(Share::of("orders")).compare(order());
        assert_eq!(peers(&rules(behind), &view), ["east-1", "east-2", "west-1"]);
        let before = SitePolicy::default().fit().compare(order()).compare(Share::of("orders"));
        assert_eq!(peers(&rules(before), &view), ["east-1", "east-2"]);
    }
}
