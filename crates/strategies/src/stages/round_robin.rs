use std::cmp::Ordering;

use election_core::strategy::{MemberRecord, Round};

use super::{Incumbent, keeps};
use crate::stage::{Comparison, Stage, Standing};

/// Leadership moves to the next member in the order of member ids: the members after the last leader go first, then
/// those before it, then the last leader itself, restarted or not.
/// It starts no move: for a better candidate the incumbent goes first. Within each of the three groups the next stage
/// decides; put it last, so that this is the member id.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Stage for RoundRobin {
    const NAME: &'static str = "round-robin";
}

impl Comparison for RoundRobin {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        if keeps(round) {
            return Incumbent.grade(candidate, round);
        }
        match round.previous.map(|previous| candidate.member.cmp(&previous.member)) {
            None | Some(Ordering::Greater) => 0,
            Some(Ordering::Less) => 1,
            Some(Ordering::Equal) => 2,
        }
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String {
        if keeps(round) {
            return Incumbent.reason(candidate, standing, round);
        }
        match round.previous.map(|previous| (previous, candidate.member.cmp(&previous.member))) {
            None => "no member has led yet".to_owned(),
            Some((previous, Ordering::Greater)) => format!("its turn comes after {}", previous.member),
            Some((previous, Ordering::Less)) => format!("its turn comes a round after {}", previous.member),
            Some((_, Ordering::Equal)) => "it led last".to_owned(),
        }
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        !keeps(round) && self.grade(candidate, round) == 2
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order, previous},
    };

    fn three(cause: Cause) -> View {
        View { cause, ..View::of([member("b", "east", 1), member("a", "west", 2), member("c", "east", 3)]) }
    }

    fn first(view: &View) -> String {
        let order = order(&Pipeline::new().compare(RoundRobin), view);
        order[0].split(':').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn it_goes_round() {
        for cause in [Cause::LeaderLost, Cause::Switchover, Cause::MemberJoined, Cause::Failover] {
            for (before, next) in [("a", "b"), ("b", "c"), ("c", "a"), ("bb", "c"), ("z", "a")] {
                let view = View { previous: Some(previous(before, "east", 9)), ..three(cause) };
                assert_eq!(first(&view), next, "after {before}, {cause}");
            }
        }
        assert_eq!(first(&three(Cause::Startup)), "a");
    }

    #[test]
    fn the_reasons_name_who_led_last() {
        let view = View { previous: Some(previous("b", "east", 1)), ..three(Cause::LeaderLost) };
        assert_eq!(
            order(&Pipeline::new().compare(RoundRobin), &view),
            ["c: its turn comes after b", "a: its turn comes a round after b", "b: it led last"]
        );
    }

    #[test]
    fn everybody_has_had_its_turn_after_one_round() {
        let mut view = three(Cause::Switchover);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let next = first(&view);
            view.previous = Some(previous(&next, "east", 9));
            turns.push(next);
        }
        assert_eq!(turns.concat(), "abcabc");
    }

    #[test]
    fn it_moves_nobody_that_may_stay() {
        for cause in [Cause::BetterCandidate, Cause::TokensRaised] {
            let view =
                View { incumbent: Some(ballot(3)), previous: Some(previous("c", "east", 3)), ..three(cause) };
            assert_eq!(first(&view), "c");
        }
    }
}
