use election_core::strategy::{MemberRecord, Round};

use crate::{
    stage::{Comparison, Stage, Standing},
    words,
};

/// The member that joined first goes first, by the sequence number of the ballot.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldestBallot;

/// The member that joined last goes first, by the sequence number of the ballot: while members are restarted one by
/// one, a restarted one.
#[derive(Clone, Copy, Debug, Default)]
pub struct YoungestBallot;

impl Stage for OldestBallot {
    const NAME: &'static str = "oldest-ballot";
}

impl Stage for YoungestBallot {
    const NAME: &'static str = "youngest-ballot";
}

impl Comparison for OldestBallot {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        candidate.ballot.sequence()
    }

    fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        reason("oldest", standing)
    }
}

impl Comparison for YoungestBallot {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        // Reverses the order like `-`, without an overflow.
        !candidate.ballot.sequence()
    }

    fn reason(&self, _: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        reason("youngest", standing)
    }
}

fn reason(which: &str, standing: Standing) -> String {
    match standing.place() {
        0 => format!("{which} ballot"),
        place => format!("{} {which} ballot", words::ordinal(place)),
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
    fn the_oldest_by_sequence_number_and_equal_ones_by_member_id() {
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

    #[test]
    fn the_youngest_by_sequence_number_and_equal_ones_by_member_id() {
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
