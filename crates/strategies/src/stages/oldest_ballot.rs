use election_core::strategy::{MemberRecord, Round};

use crate::{
    stage::{Comparison, Stage, Standing},
    words,
};

/// The member that joined first goes first, by the sequence number of the ballot.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestBallot;

impl Stage for OldestBallot {
    const NAME: &'static str = "oldest-ballot";
}

impl Comparison for OldestBallot {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        candidate.ballot.sequence()
    }

    fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        if standing.is_best() {
            "oldest ballot".to_owned()
        } else {
            format!("{} oldest ballot", words::ordinal(standing.place()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order},
    };

    #[test]
    fn by_sequence_number_and_equal_ones_by_member_id() {
        let view = View::of([
            member("a", "east", 10),
            member("b", "east", 9),
            member("d", "east", 2),
            member("c", "east", 2),
        ]);
        assert_eq!(
            order(&Pipeline::new().compare(OldestBallot), &view),
            [
                "c: oldest ballot; first by member id",
                "d: oldest ballot; second by member id",
                "b: second oldest ballot",
                "a: third oldest ballot",
            ]
        );
    }
}
