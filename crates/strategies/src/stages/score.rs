use std::collections::BTreeMap;

use election_core::strategy::{MemberRecord, Round};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::is_incumbent;
use crate::{
    stage::{Comparison, Filter, Stage, Standing},
    steadiness::Steadiness,
    types::bounded,
    words,
};

/// The full score.
const FULL: u64 = 1000;

/// One score of 0 to 1000 from weighted attributes; the highest goes first. As a filter it refuses members without a
/// mandatory attribute.
/// Each attribute is a number. Its points depend on its place between the worst and the best value that the policy
/// declares; values beyond these count like them. So the points do not depend on the other candidates, and one more
/// candidate changes nothing among the others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "a table such as { attributes = { cores = { worst = 0, best = 16 } } }")]
pub struct Score {
    #[serde(default, deserialize_with = "bounded::<_, _, 0, 1000>")]
    tolerance: u64,
    #[serde(default, deserialize_with = "bounded::<_, _, 0, 1000>")]
    margin: u64,
    #[serde(rename = "attributes", deserialize_with = "read_terms")]
    terms: Vec<Term>,
}

fn read_terms<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Term>, D::Error> {
    let terms = BTreeMap::<String, Term>::deserialize(from)?;
    let terms = terms.into_iter().map(|(attribute, term)| Term { attribute, ..term });
    Score::new(terms, Steadiness::default()).map(|score| score.terms).map_err(D::Error::custom)
}

/// One attribute of a [`Score`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    expecting = "a table such as { worst = 0, best = 16 }, with the values with no points and with all points"
)]
pub struct Term {
    /// The attribute's name.
    #[serde(skip)]
    pub attribute: String,
    /// Its weight among the others; with 0 it is not used.
    #[serde(default = "usual_weight", deserialize_with = "bounded::<_, _, 0, 1_000_000>")]
    pub weight: u32,
    /// The value with no points, and all values beyond it.
    pub worst: f64,
    /// The value with all points. Lower than the worst if less is better.
    pub best: f64,
    /// The points without a value, or with one that is not a number.
    #[serde(default)]
    pub missing: Missing,
}

fn usual_weight() -> u32 {
    1
}

/// The points of a member without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Missing {
    /// Those of the worst.
    #[default]
    Worst,
    /// Halfway between worst and best.
    Middle,
    /// None: only the other attributes count.
    Ignored,
    /// The member may not lead.
    Refused,
}

/// Why a [`Score`] cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreError {
    /// No attribute counts.
    #[error("no attribute counts: at least one must have a weight above 0")]
    Nothing,
    /// The worst and the best value of this attribute are equal or not numbers.
    #[error("{0}: worst and best must be two different numbers")]
    NoRange(String),
}

impl Term {
    fn value(&self, candidate: &MemberRecord) -> Option<f64> {
        let text = candidate.attributes.get(&self.attribute)?;
        text.trim().parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// The points of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        ((value - self.worst) / (self.best - self.worst)).clamp(0.0, 1.0)
    }

    fn words(&self, candidate: &MemberRecord) -> String {
        // One phrase among others that are joined by commas.
        let attribute = words::quote(&self.attribute).replace(',', "");
        match self.value(candidate) {
            Some(value) => format!("{attribute} {value}"),
            None if candidate.attributes.contains_key(&self.attribute) => {
                format!("{attribute} is not a number")
            }
            None => format!("{attribute} is missing"),
        }
    }
}

impl Stage for Score {
    const NAME: &'static str = "score";
}

impl Score {
    /// By these attributes. The steadiness is in points of 1000.
    ///
    /// # Errors
    /// No attribute counts, or a term's worst and best are equal or not numbers.
    pub fn new(terms: impl IntoIterator<Item = Term>, steadiness: Steadiness) -> Result<Self, ScoreError> {
        let Steadiness { tolerance, margin } = steadiness;
        let terms: Vec<_> = terms.into_iter().filter(|term| term.weight > 0).collect();
        if terms.is_empty() {
            return Err(ScoreError::Nothing);
        }
        for term in &terms {
            let width = term.best - term.worst;
            if !width.is_finite() || width == 0.0 {
                return Err(ScoreError::NoRange(term.attribute.clone()));
            }
        }
        Ok(Self { tolerance, margin, terms })
    }

    /// Whether an attribute is mandatory, so that it is a filter as well.
    pub(crate) fn refuses(&self) -> bool {
        self.terms.iter().any(|term| term.missing == Missing::Refused)
    }

    /// The points of a candidate.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "from 0 to 1000"
    )]
    fn points(&self, candidate: &MemberRecord) -> u64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for term in &self.terms {
            let share = match (term.value(candidate), term.missing) {
                (Some(value), _) => term.share(value),
                (None, Missing::Worst | Missing::Refused) => 0.0,
                (None, Missing::Middle) => 0.5,
                (None, Missing::Ignored) => continue,
            };
            sum += share * f64::from(term.weight);
            weights += f64::from(term.weight);
        }
        if weights == 0.0 {
            return 0;
        }
        (sum / weights * FULL as f64).round() as u64
    }
}

impl Filter for Score {
    fn refuse(&self, candidate: &MemberRecord, _: &Round<'_>) -> Option<String> {
        let lacks = |term: &&Term| term.missing == Missing::Refused && term.value(candidate).is_none();
        self.terms.iter().find(lacks).map(|term| term.words(candidate))
    }
}

impl Comparison for Score {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        let lost = FULL.saturating_sub(self.points(candidate));
        let steadiness = Steadiness { tolerance: self.tolerance, margin: self.margin };
        steadiness.grade(Some(lost), is_incumbent(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String {
        let points = self.points(candidate);
        let values: Vec<_> = self.terms.iter().map(|term| term.words(candidate)).collect();
        let values = values.join(" and ");
        let margin = match self.margin {
            0 => String::new(),
            _ if !is_incumbent(candidate, round) => String::new(),
            margin => format!(" with {margin} more as the incumbent"),
        };
        let which = if standing.is_best() { "best score" } else { "score" };
        format!("{which} {points} of {FULL}{margin} ({values})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order, with_attributes},
    };

    fn term(attribute: &str, weight: u32, worst: f64, best: f64, missing: Missing) -> Term {
        Term { attribute: attribute.to_owned(), weight, worst, best, missing }
    }

    fn score(terms: &[Term]) -> Score {
        Score::new(terms.iter().cloned(), Steadiness::default()).unwrap()
    }

    fn of(attributes: &[(&str, &str)]) -> MemberRecord {
        with_attributes("a", "east", 1, attributes.iter().copied())
    }

    #[test]
    fn a_value_counts_by_where_it_lies_between_worst_and_best() {
        let cores = score(&[term("cores", 1, 0.0, 16.0, Missing::Worst)]);
        let lag = score(&[term("lag", 1, 10.0, 0.0, Missing::Worst)]);
        for (value, points) in [("-3", 0), ("0", 0), ("4", 250), (" 8.0 ", 500), ("16", 1000), ("1e9", 1000)]
        {
            assert_eq!(cores.points(&of(&[("cores", value)])), points, "{value}");
        }
        for (value, points) in [("0", 1000), ("2.5", 750), ("10", 0), ("11", 0), ("-1", 1000)] {
            assert_eq!(lag.points(&of(&[("lag", value)])), points, "less is better: {value}");
        }
    }

    #[test]
    fn weights_count_beside_each_other() {
        let both = score(&[
            term("cores", 3, 0.0, 10.0, Missing::Worst),
            term("disk", 1, 0.0, 10.0, Missing::Worst),
            term("colour", 0, 0.0, 10.0, Missing::Worst),
        ]);
        assert_eq!(both.points(&of(&[("cores", "10"), ("disk", "0")])), 750);
        assert_eq!(both.points(&of(&[("cores", "0"), ("disk", "10"), ("colour", "10")])), 250);
    }

    #[test]
    fn a_missing_value_counts_by_its_rule() {
        let with = |missing| {
            score(&[term("cores", 1, 0.0, 10.0, Missing::Worst), term("disk", 1, 0.0, 10.0, missing)])
        };
        for no_number in
            [&[("cores", "8")][..], &[("cores", "8"), ("disk", "big")], &[("cores", "8"), ("disk", "NaN")]]
        {
            let member = of(no_number);
            assert_eq!(with(Missing::Worst).points(&member), 400);
            assert_eq!(with(Missing::Middle).points(&member), 650);
            assert_eq!(with(Missing::Ignored).points(&member), 800);
            let view = View::default();
            assert_eq!(with(Missing::Worst).refuse(&member, &view.round()), None);
            assert!(with(Missing::Refused).refuse(&member, &view.round()).is_some());
        }
        let ignored = score(&[term("disk", 1, 0.0, 10.0, Missing::Ignored)]);
        assert_eq!(ignored.points(&member("a", "east", 1)), 0);
    }

    fn cores(steadiness: Steadiness) -> Pipeline {
        let term = term("cores", 1, 0.0, 10.0, Missing::Worst);
        Pipeline::new().compare(Score::new([term], steadiness).unwrap())
    }

    fn two(a: &str, b: &str, incumbent: Option<u32>) -> View {
        View {
            incumbent: incumbent.map(ballot),
            ..View::of([
                with_attributes("a", "east", 1, [("cores", a)]),
                with_attributes("b", "east", 2, [("cores", b)]),
            ])
        }
    }

    #[test]
    fn the_highest_goes_first_and_the_values_are_said() {
        assert_eq!(
            order(&cores(Steadiness::default()), &two("some", "8", Some(1))),
            ["b: best score 800 of 1000 (cores 8)", "a: score 0 of 1000 (cores is not a number)"]
        );
    }

    #[test]
    fn the_incumbent_stays_until_the_gain_is_above_the_margin() {
        let margin = cores(Steadiness { margin: 100, tolerance: 0 });
        assert_eq!(
            order(&margin, &two("7", "8", Some(1))),
            [
                "a: best score 700 of 1000 with 100 more as the incumbent (cores 7)",
                "b: score 800 of 1000 (cores 8)",
            ]
        );
        assert!(order(&margin, &two("7", "8.01", Some(1)))[0].starts_with("b: best score 801"));
        assert!(order(&margin, &two("7", "8", None))[0].starts_with("b: best score 800"));
    }

    #[test]
    fn within_the_tolerance_what_comes_behind_decides() {
        let coarse = cores(Steadiness { margin: 0, tolerance: 250 });
        assert_eq!(order(&coarse, &two("8", "9", None))[0], "a: first by member id");
        assert!(order(&coarse, &two("7", "8", None))[0].starts_with("b: best score 800"));
    }

    #[test]
    fn a_score_that_says_nothing_can_not_be_made() {
        let make = |terms: &[Term]| Score::new(terms.iter().cloned(), Steadiness::default()).unwrap_err();
        assert_eq!(make(&[]), ScoreError::Nothing);
        assert_eq!(make(&[term("x", 0, 0.0, 1.0, Missing::Worst)]), ScoreError::Nothing);
        for (worst, best) in [(1.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (f64::MIN, f64::MAX)] {
            let error = make(&[term("x", 1, worst, best, Missing::Worst)]);
            assert_eq!(error, ScoreError::NoRange("x".to_owned()), "{worst} {best}");
            assert!(error.to_string().contains("x: worst and best"), "{error}");
        }
    }
}
