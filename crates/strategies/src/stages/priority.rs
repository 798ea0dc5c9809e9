use election_core::strategy::{Ground, MemberRecord, Round};

use crate::stage::{Comparison, Filter, Stage, Standing};

/// As a filter it refuses a priority of 0 or less. As a comparison the higher priority goes first.
/// A member that an operator names ([`Round::ordered`](election_core::strategy::Round::ordered)) passes, and leads
/// until it is lost or moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Priority;

impl Stage for Priority {
    const NAME: &'static str = "priority";
}

impl Filter for Priority {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        let named = round.ordered == Some(&candidate.ballot);
        (candidate.priority <= 0 && !named).then(|| {
            let priority = candidate.priority;
            format!("priority {priority}: never leads unless an operator names it")
        })
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        Ground::Order
    }
}

impl Comparison for Priority {
    fn grade(&self, candidate: &MemberRecord, _: &Round<'_>) -> i64 {
        // Reverses the order like `-`, without an overflow at the lowest number.
        !candidate.priority
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, _: &Round<'_>) -> String {
        let priority = candidate.priority;
        if standing.is_best() {
            format!("highest priority ({priority})")
        } else {
            format!("priority {priority}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, order, with_priority},
    };

    #[test]
    fn zero_or_less_never_leads() {
        let cases = [(i64::MIN, true), (-1, true), (0, true), (1, false), (i64::MAX, false)];
        for (priority, out) in cases {
            let candidate = with_priority("east-1", "east", 1, priority);
            let refusal = Priority.refuse(&candidate, &View::default().round());
            assert_eq!(refusal.is_some(), out, "{priority}: {refusal:?}");
        }
    }

    #[test]
    fn an_operator_can_name_it_and_nobody_else_gets_through_by_that() {
        let candidate = with_priority("east-1", "east", 1, 0);
        let view = |sequence| View { ordered: Some(ballot(sequence)), ..View::default() };
        assert_eq!(Priority.refuse(&candidate, &view(1).round()), None);
        assert!(Priority.refuse(&candidate, &view(2).round()).is_some());
    }

    #[test]
    fn higher_goes_first() {
        let view = View::of([
            with_priority("a", "east", 1, i64::MIN),
            with_priority("b", "east", 2, 5),
            with_priority("c", "east", 3, i64::MAX),
            with_priority("d", "east", 4, i64::MIN + 1),
        ]);
        assert_eq!(
            order(&Pipeline::bare().compare(Priority), &view),
            [
                "c: highest priority (9223372036854775807)",
                "b: priority 5",
                "d: priority -9223372036854775807",
                "a: priority -9223372036854775808",
            ]
        );
    }
}
