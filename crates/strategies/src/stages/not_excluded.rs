use election_core::strategy::{MemberRecord, Round, utc};

use crate::{
    stage::{Filter, Stage},
    words,
};

/// Refuses members whose ballot is excluded, until the exclusion ends.
/// An exclusion applies to one incarnation: the same member with another ballot, for example after a repair and a
/// restart, passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotExcluded;

impl Stage for NotExcluded {
    const NAME: &'static str = "not-excluded";
}

impl Filter for NotExcluded {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        let exclusion = round
            .exclusions
            .iter()
            .filter(|e| e.ballot == candidate.ballot && e.holds_at(round.unix_ms))
            // Of several exclusions the one that ends last, whatever their order.
            .max_by_key(|e| (e.until_ms, &e.reason))?;
        let until = utc(exclusion.until_ms);
        Some(match words::quote(&exclusion.reason) {
            reason if reason.is_empty() => format!("excluded until {until}"),
            reason => format!("excluded until {until}: {reason}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW_MS, View, exclusion, member};

    #[test]
    fn only_an_exclusion_of_this_ballot_that_has_not_ended_counts() {
        let until = |ms| Some(format!("excluded until {}: takeover failed", utc(ms)));
        let cases = [
            (vec![], None),
            (vec![exclusion(1, NOW_MS + 1000)], until(NOW_MS + 1000)),
            (vec![exclusion(1, NOW_MS + 1)], until(NOW_MS + 1)),
            // `until` itself is free again.
            (vec![exclusion(1, NOW_MS)], None),
            (vec![exclusion(1, NOW_MS - 1)], None),
            // Another incarnation's.
            (vec![exclusion(2, NOW_MS + 1000)], None),
            (
                vec![exclusion(1, NOW_MS + 9000), exclusion(1, NOW_MS + 60_000), exclusion(1, NOW_MS - 9000)],
                until(NOW_MS + 60_000),
            ),
        ];
        for (exclusions, refusal) in cases {
            let view = View { exclusions, ..View::default() };
            let got = NotExcluded.refuse(&member("east-1", "east", 1), &view.round());
            assert_eq!(got, refusal, "{:?}", view.exclusions);
        }
    }

    #[test]
    fn the_end_is_a_date_that_can_be_read_later() {
        let view = View { exclusions: vec![exclusion(1, NOW_MS + 300_000)], ..View::default() };
        assert_eq!(
            NotExcluded.refuse(&member("east-1", "east", 1), &view.round()).as_deref(),
            Some("excluded until 2026-11-05T14:35:00Z: takeover failed")
        );
    }
}
