//! Measured values fluctuate: this keeps a ranking by them stable.

/// The difference of a value that a comparison by it notices.
/// Both apply to each candidate by itself, so that the order stays total. "As good as the best, within a tolerance"
/// would not be total: a candidate as good as the second best need not be as good as the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steadiness {
    /// Values in the same interval of this width are equal, so that the next comparisons decide. 0 and 1 distinguish
    /// all values.
    pub tolerance: u64,
    /// Another member must be better than the incumbent by more than this. With 0 the incumbent is compared like the
    /// others.
    pub margin: u64,
}

impl Steadiness {
    /// The grade of a candidate with this cost. No cost is worse than any.
    pub(crate) fn grade(self, cost: Option<u64>, is_incumbent: bool) -> i64 {
        const WORST: i64 = i64::MAX;
        let favoured = is_incumbent && self.margin > 0;
        let ahead = i64::from(favoured);
        let Some(cost) = cost else { return WORST - ahead };
        let counted = if favoured { cost.saturating_sub(self.margin) } else { cost };
        let interval = counted / self.tolerance.max(1);
        // Two grades for each interval: the incumbent, then the others.
        i64::try_from(interval).unwrap_or(WORST).min(WORST / 2 - 1) * 2 + 1 - ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(steadiness: Steadiness, incumbent: Option<u64>, other: Option<u64>) -> bool {
        steadiness.grade(other, false) < steadiness.grade(incumbent, true)
    }

    #[test]
    fn only_a_gain_above_the_margin_counts() {
        let steadiness = Steadiness { margin: 10, tolerance: 0 };
        let cases = [
            (Some(100), Some(91), false),
            (Some(100), Some(90), false),
            (Some(100), Some(89), true),
            (Some(5), Some(0), false),
            (Some(0), Some(0), false),
            (None, Some(1_000_000), true),
            (None, None, false),
            (Some(u64::MAX), None, false),
        ];
        for (incumbent, other, expected) in cases {
            assert_eq!(moves(steadiness, incumbent, other), expected, "{incumbent:?} {other:?}");
        }
        // A member as good as the incumbent, or as unknown, is after it, not equal to it.
        assert!(steadiness.grade(Some(100), true) < steadiness.grade(Some(90), false));
        assert!(steadiness.grade(None, true) < steadiness.grade(None, false));
    }

    #[test]
    fn without_a_margin_the_incumbent_is_one_of_many() {
        let steadiness = Steadiness::default();
        assert!(moves(steadiness, Some(100), Some(99)));
        assert_eq!(steadiness.grade(Some(7), true), steadiness.grade(Some(7), false));
        assert_eq!(steadiness.grade(None, true), steadiness.grade(None, false));
    }

    #[test]
    fn within_an_interval_all_are_equal() {
        let steadiness = Steadiness { tolerance: 5, margin: 0 };
        let grades = [0, 4, 5, 9, 10].map(|cost| steadiness.grade(Some(cost), false));
        assert!(grades[0] == grades[1] && grades[1] < grades[2]);
        assert!(grades[2] == grades[3] && grades[3] < grades[4]);
        assert!(steadiness.grade(Some(u64::MAX), false) < steadiness.grade(None, false));
    }

    /// A tolerance never makes a smaller gain than the margin count.
    #[test]
    fn both_together_move_nothing_within_the_margin() {
        for tolerance in 0..12 {
            let steadiness = Steadiness { tolerance, margin: 7 };
            for incumbent in 0..60_u64 {
                for other in 0..60_u64 {
                    let gain = incumbent.saturating_sub(other);
                    assert!(
                        gain > 7 || !moves(steadiness, Some(incumbent), Some(other)),
                        "{steadiness:?} {incumbent} {other}"
                    );
                    assert!(
                        gain < 7 + tolerance.max(1) || moves(steadiness, Some(incumbent), Some(other)),
                        "{steadiness:?} {incumbent} {other}"
                    );
                }
            }
        }
    }
}
