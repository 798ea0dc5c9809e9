//! The last step of every pipeline. It is not a [`Comparison`](crate::Comparison): a grade is a number, and this step
//! cannot be left out.

use std::cmp::Ordering;

use election_core::strategy::MemberRecord;

use crate::words;

/// The name of the stage.
pub(crate) const NAME: &str = "member-id";

/// A total order over everything that a ranking shows of a member.
/// Two members with one id cannot be registered at the same time. If a round has them nevertheless, the ballot, the
/// site and the other fields keep the order independent of that of the input.
pub(crate) fn order(a: &MemberRecord, b: &MemberRecord) -> Ordering {
    fn key(m: &MemberRecord) -> impl Ord + '_ {
        ((&m.member, &m.ballot, &m.site), m.priority, &m.software, &m.attributes)
    }
    key(a).cmp(&key(b))
}

pub(crate) fn reason(place: usize) -> String {
    format!("{} by member id", words::ordinal(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;

    #[test]
    fn member_then_ballot_then_site() {
        let sorted =
            [member("a", "east", 9), member("b", "east", 1), member("b", "east", 2), member("b", "west", 2)];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(order(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }
}
