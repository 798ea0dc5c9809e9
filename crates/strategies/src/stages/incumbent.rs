use election_core::strategy::{MemberRecord, Round};

use super::is_incumbent;
use crate::stage::{Comparison, Stage, Standing};

/// The elected or leading member goes first: leadership does not move without need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incumbent;

impl Stage for Incumbent {
    const NAME: &'static str = "incumbent";
}

impl Comparison for Incumbent {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(!is_incumbent(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let words = if is_incumbent(candidate, round) { "incumbent" } else { "not the incumbent" };
        words.to_owned()
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        is_incumbent(candidate, round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order},
    };

    #[test]
    fn the_incumbent_goes_first_by_ballot() {
        let cases = [
            (None, ["a: first by member id", "b: second by member id"]),
            (Some(2), ["b: incumbent", "a: not the incumbent"]),
            (Some(1), ["a: incumbent", "b: not the incumbent"]),
            // Another incarnation of a member: no candidate, so no incumbent.
            (Some(9), ["a: first by member id", "b: second by member id"]),
        ];
        for (incumbent, expected) in cases {
            let view = View {
                incumbent: incumbent.map(ballot),
                ..View::of([member("a", "east", 1), member("b", "west", 2)])
            };
            let got = order(&Pipeline::new().compare(Incumbent), &view);
            assert_eq!(got, expected, "{incumbent:?}");
        }
    }
}
