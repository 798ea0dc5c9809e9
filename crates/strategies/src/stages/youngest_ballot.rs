use election_core::strategy::{MemberRecord, Round};

use crate::{
    stage::{Comparison, Stage, Standing},
    words,
};

/// The member that joined last goes first, by the sequence number of the ballot: while members are restarted one by
/// one, a restarted one.
#[derive(Clone, Copy, Debug, Default)]
pub struct YoungestBallot;

impl Stage for YoungestBallot {
    const NAME: &'static str = "youngest-ballot";
}

impl Comparison for YoungestBallot {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        // Reverses the order like `-`, without an overflow.
        !candidate.ballot.sequence()
    }

    fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        if standing.is_best() {
            "youngest ballot".to_owned()
        } else {
            format!("{} youngest ballot", words::ordinal(standing.place()))
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
        let members = [member("a", "east", 9), member("b", "east", 10), member("c", "east", 9)];
        assert_eq!(
            order(&Pipeline::new().compare(YoungestBallot), &View::of(members)),
            [
                "b: youngest ballot",
                "a: second youngest ballot; first by member id",
                "c: second youngest ballot; second by member id",
            ]
        );
    }
}
