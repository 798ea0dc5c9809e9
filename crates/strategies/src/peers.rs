//! The members that could lead as well as the leader: what a [`FairShare`](crate::FairShare) plan may choose from.

use std::collections::BTreeSet;

use election_core::strategy::{Cause, MemberId, MemberRecord, Round, Strategy as _};

use crate::{
    Pipeline,
    stage::{Comparison, Stage as _},
    stages,
};

/// Stages that order members without preferring any. Members that only these distinguish are equally good.
const NO_PREFERENCE: [&str; 3] =
    [stages::Incumbent::NAME, stages::OldestBallot::NAME, stages::RoundRobin::NAME];

/// Stages that can favour the incumbent by a margin. The favour is no preference.
const FAVOURING: [&str; 2] = [stages::Latency::NAME, stages::Score::NAME];

impl Pipeline {
    /// The members that could lead instead of the incumbent of `round` without a loss: those that may lead by an
    /// operator's order, are as good as the incumbent in everything before the stage `fair-share`, and would keep
    /// leadership. The incumbent is one of them. Empty if the incumbent may not lead.
    ///
    /// The cause of `round` does not matter: the members are ranked for a [`Cause::Switchover`], and for a
    /// [`Cause::BetterCandidate`] to see which of them would keep leadership.
    pub fn peers(&self, round: &Round<'_>) -> BTreeSet<MemberId> {
        let planned = round.clone().with(|round| {
            (round.cause, round.failed, round.ordered, round.accepts_loss) =
                (Cause::Switchover, None, None, false);
        });
        let stays = |candidate: &&MemberRecord| {
            let round = round.clone().with(|round| {
                (round.cause, round.failed, round.ordered) = (Cause::BetterCandidate, None, None);
                round.incumbent = Some(&candidate.ballot);
            });
            let ranking = self.rank(&round);
            ranking.first().is_some_and(|first| first.named.ballot == candidate.ballot)
        };
        let equal = self.for_cause(planned.cause).equals(&planned);
        equal.into_iter().filter(stays).map(|candidate| candidate.member.clone()).collect()
    }

    /// The members that pass every filter and that no preference before the stage `fair-share` distinguishes from the
    /// incumbent. Where a strategy orders the rest it is the incumbent alone: what that prefers is unknown.
    fn equals<'a>(&self, round: &Round<'a>) -> Vec<&'a MemberRecord> {
        let preferences: Vec<_> = self
            .comparisons()
            .take_while(|(name, _)| *name != stages::Share::NAME)
            .filter(|(name, _)| !NO_PREFERENCE.contains(name))
            .collect();
        let without = round.clone().with(|round| round.incumbent = None);
        let grades = |candidate: &MemberRecord| -> Vec<i64> {
            let grade = |(name, stage): &(&'static str, &dyn Comparison)| {
                stage.grade(candidate, if FAVOURING.contains(name) { &without } else { round })
            };
            preferences.iter().map(grade).collect()
        };
        let may_lead = self.electable(round);
        let incumbent = may_lead.iter().find(|candidate| stages::is_incumbent(candidate, round));
        let Some(own) = incumbent.map(|incumbent| grades(incumbent)) else { return Vec::new() };
        let is_equal = |candidate: &&MemberRecord| {
            grades(candidate) == own && (!self.has_last() || stages::is_incumbent(candidate, round))
        };
        may_lead.into_iter().filter(is_equal).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AutoMoves, PolicySpec, SitePolicy, Steadiness,
        stages::{Missing, OldestBallot, Score, Share, Term},
        testing::{View, ballot, member, sites, unhealthy, with_attributes, with_priority},
    };

    fn peers(pipeline: &Pipeline, view: &View) -> Vec<String> {
        pipeline.peers(&view.round()).iter().map(ToString::to_string).collect()
    }

    fn two_sites(auto_moves: AutoMoves) -> (Pipeline, View) {
        let policy =
            PolicySpec::for_sites(sites(["east", "west"])).with(|policy| policy.auto_moves = auto_moves);
        let members = [
            member("east-1", "east", 1),
            member("east-2", "east", 2),
            member("west-1", "west", 3),
            unhealthy("east-3", "east", 4, "its disk is full"),
            with_priority("east-4", "east", 5, 0),
        ];
        (policy.pipeline(), View { incumbent: Some(ballot(1)), ..View::of(members) })
    }

    #[test]
    fn a_peer_is_in_the_same_site_and_may_lead() {
        for auto_moves in [AutoMoves::None, AutoMoves::All] {
            let (pipeline, mut view) = two_sites(auto_moves);
            assert_eq!(peers(&pipeline, &view), ["east-1", "east-2"]);
            // With another leader of that site it is the same.
            view.incumbent = Some(ballot(2));
            assert_eq!(peers(&pipeline, &view), ["east-1", "east-2"]);
        }
    }

    #[test]
    fn the_favour_of_the_incumbent_is_no_preference() {
        let term = Term {
            attribute: "cores".to_owned(),
            weight: 1,
            worst: 0.0,
            best: 10.0,
            missing: Missing::Worst,
        };
        let score = Score::new([term], Steadiness { margin: 200, tolerance: 50 }).unwrap();
        let pipeline = SitePolicy::default().fit().compare(score);
        let view = View::of(
            [("a", 1, "8"), ("b", 2, "8"), ("c", 3, "7")]
                .map(|(id, ballot, cores)| with_attributes(id, "east", ballot, [("cores", cores)])),
        );
        assert_eq!(peers(&pipeline, &view.led_by("a")), ["a", "b"]);
    }

    #[test]
    fn a_site_without_a_preference_has_none_apart() {
        let (_, view) = two_sites(AutoMoves::None);
        let pipeline = PolicySpec::default().pipeline();
        assert_eq!(peers(&pipeline, &view), ["east-1", "east-2", "west-1"]);
    }

    #[test]
    fn where_the_oldest_is_to_lead_nobody_is_as_good() {
        // The engine would move leadership back to the oldest: to and fro for ever.
        let (_, view) = two_sites(AutoMoves::All);
        let pipeline = SitePolicy::default().fit().compare(OldestBallot);
        assert_eq!(peers(&pipeline, &view), ["east-1"]);
    }

    #[test]
    fn a_leader_in_the_wrong_place_is_for_the_engine_to_move() {
        // East is better, and the engine is about to move leadership there.
        let (pipeline, mut view) = two_sites(AutoMoves::All);
        view.members.push(member("west-2", "west", 6));
        view.incumbent = Some(ballot(3));
        assert_eq!(peers(&pipeline, &view), [""; 0]);
        // By hand alone: in the west one is as good as the other.
        let (pipeline, _) = two_sites(AutoMoves::None);
        assert_eq!(peers(&pipeline, &view), ["west-1", "west-2"]);
    }

    #[test]
    fn an_incumbent_that_may_not_lead_has_no_peers() {
        let (pipeline, mut view) = two_sites(AutoMoves::None);
        view.control.drained = sites(["east"]);
        assert_eq!(peers(&pipeline, &view), [""; 0]);
        view.incumbent = None;
        assert_eq!(peers(&pipeline, &view), [""; 0]);
    }

    #[test]
    fn what_stands_behind_the_fair_share_is_no_preference() {
        let ranks = |pipeline: Pipeline| pipeline.when([Cause::BetterCandidate], kept());
        fn kept() -> Pipeline {
            SitePolicy::default().fit().compare(stages::Incumbent)
        }
        let (_, view) = two_sites(AutoMoves::None);
        let order = || SitePolicy { sites: sites(["east", "west"]), ..SitePolicy::default() }.site_order();
        let behind = SitePolicy::default().fit().compare(Share::of("orders")).compare(order());
        assert_eq!(peers(&ranks(behind), &view), ["east-1", "east-2", "west-1"]);
        let before = SitePolicy::default().fit().compare(order()).compare(Share::of("orders"));
        assert_eq!(peers(&ranks(before), &view), ["east-1", "east-2"]);
    }
}
