use std::collections::BTreeMap;

use election_core::strategy::{Cause, Ground, MemberRecord, Round};

use serde::Deserialize;

use crate::{
    needs::Needs,
    stage::{Filter, Stage},
    words,
};

/// A limit on a value that grows with the possible loss, such as how far a replica lags: refuses members above it,
/// whatever the cause. The incumbent has all data already.
/// If all members are above the limit, none is elected until a value falls, or until an operator accepts the loss for
/// one move ([`Round::accepts_loss`]).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    expecting = "a table such as { attribute = \"lag\", at_most = 10 }, with the highest value of a new leader"
)]
pub struct Limit {
    attribute: String,
    at_most: f64,
    #[serde(default)]
    missing: Unknown,
}

/// A member whose value is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Unknown {
    #[default]
    Refused,
    Passes,
}

impl Stage for Limit {
    const NAME: &'static str = "limit";
}

impl Limit {
    /// This attribute, a number, must be at most `at_most`. A missing value or one that is not a number is above any
    /// limit. A limit of NaN refuses all members.
    pub fn new(attribute: impl Into<String>, at_most: f64) -> Self {
        Self { attribute: attribute.into(), at_most, missing: Unknown::Refused }
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs { limited: [self.attribute.clone()].into(), ..Needs::default() }
    }

    /// Lets members pass whose value is unknown.
    #[must_use]
    pub fn unknown_passes(self) -> Self {
        Self { missing: Unknown::Passes, ..self }
    }
}

impl Filter for Limit {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        (round.incumbent != Some(&candidate.ballot)).then(|| self.refuse_successor(&candidate.attributes))?
    }

    fn refuse_successor(&self, attributes: &BTreeMap<String, String>) -> Option<String> {
        let (attribute, most) = (words::quote(&self.attribute), self.at_most);
        let text = attributes.get(&self.attribute);
        let value = text.and_then(|text| text.trim().parse().ok()).filter(|value: &f64| !value.is_nan());
        match (value, text) {
            (Some(value), _) if value <= most => None,
            (Some(value), _) => Some(format!("{attribute} is {value} and the limit is {most}")),
            (None, _) if self.missing == Unknown::Passes => None,
            (None, None) => Some(format!("{attribute} is missing and may be above {most}")),
            (None, Some(_)) => Some(format!("{attribute} is not a number and may be above {most}")),
        }
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        Ground::Loss
    }

    fn remark(&self, attributes: &BTreeMap<String, String>, _: Cause) -> Option<String> {
        let (attribute, most) = (words::quote(&self.attribute), self.at_most);
        Some(match attributes.get(&self.attribute) {
            Some(value) => format!("{attribute} {} of at most {most}", words::quote(value)),
            None => format!("{attribute} is not known"),
        })
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::{Health, Strategy as _};

    use super::*;

    use crate::{
        Pipeline,
        stages::{Healthy, Priority},
        testing::{View, ballot, order, with_attributes},
    };

    fn refusal(limit: &Limit, cause: Cause, incumbent: Option<u32>, lag: Option<&str>) -> Option<String> {
        let member = with_attributes("a", "east", 1, lag.map(|lag| ("lag", lag)));
        let view = View { cause, incumbent: incumbent.map(ballot), ..View::default() };
        limit.refuse(&member, &view.round())
    }

    #[test]
    fn who_lags_too_far_is_out() {
        let limit = Limit::new("lag", 10.0);
        let lost = |lag| refusal(&limit, Cause::LeaderLost, None, lag);
        for fine in ["0", "-1", "10", " 9.5 "] {
            assert_eq!(lost(Some(fine)), None, "{fine}");
        }
        let words = "lag is 10.5 and the limit is 10";
        assert_eq!(lost(Some("10.5")).as_deref(), Some(words));
        assert!(lost(Some("inf")).is_some());
        assert_eq!(lost(None).as_deref(), Some("lag is missing and may be above 10"));
        for none in ["", "much", "NaN"] {
            let words = "lag is not a number and may be above 10";
            assert_eq!(lost(Some(none)).as_deref(), Some(words), "{none}");
        }
    }

    #[test]
    fn whatever_leadership_moves_for_only_the_incumbent_is_let_pass() {
        let limit = Limit::new("lag", 10.0);
        for cause in Cause::ALL {
            assert!(refusal(&limit, cause, None, Some("11")).is_some(), "{cause}");
            assert_eq!(refusal(&limit, cause, Some(1), Some("11")), None, "{cause}");
        }
    }

    #[test]
    fn an_operator_can_accept_the_loss_and_nothing_else() {
        let strategy = Pipeline::new().filter(Healthy).filter(Limit::new("lag", 10.0)).filter(Priority);
        let lags = |id, number, lag| with_attributes(id, "east", number, [("lag", lag)]);
        let unwell = Health::Unhealthy { reason: "no disk".to_owned() };
        let mut view = View::of([
            lags("a", 1, "11"),
            lags("b", 2, "12").with(|m| m.priority = 0),
            lags("c", 3, "13").with(|m| m.health = unwell),
            lags("d", 4, "4"),
        ]);
        view.cause = Cause::Failover;
        assert_eq!(order(&strategy, &view), ["d: the only candidate; lag 4 of at most 10"]);
        view.accepts_loss = true;
        assert_eq!(
            order(&strategy, &view),
            ["d: lag 4 of at most 10", "a: the loss is accepted: lag is 11 and the limit is 10",]
        );
        let refused = strategy.rank(&view.round()).refused;
        let stages: Vec<_> = refused.iter().map(|r| (r.stage.as_str(), r.ground)).collect();
        assert_eq!(stages, [("priority", Ground::Order), ("healthy", Ground::State)]);
    }

    #[test]
    fn what_may_be_lost_is_said_of_whoever_leads() {
        let limit = Limit::new("lag", 10.0).unknown_passes();
        let lag = |value: &str| [("lag".to_owned(), value.to_owned())].into();
        assert_eq!(limit.remark(&lag("9.5"), Cause::LeaderLost).as_deref(), Some("lag 9.5 of at most 10"));
        assert_eq!(limit.remark(&BTreeMap::new(), Cause::Suspected).as_deref(), Some("lag is not known"));
        assert_eq!(limit.remark(&lag("9.5"), Cause::Switchover).as_deref(), Some("lag 9.5 of at most 10"));

        let strategy = Pipeline::new().filter(limit);
        let held_back = |lag: Option<&str>| {
            let lag = lag.map(|lag| ("lag".to_owned(), lag.to_owned())).into_iter().collect();
            strategy.holds_back(&lag, Cause::LeaderLost)
        };
        assert_eq!((held_back(Some("10")), held_back(None)), (None, None));
        assert_eq!(held_back(Some("11")).as_deref(), Some("lag is 11 and the limit is 10"));
        let view =
            View { cause: Cause::LeaderLost, ..View::of([with_attributes("a", "east", 1, [("lag", "3")])]) };
        assert_eq!(order(&strategy, &view), ["a: the only candidate; lag 3 of at most 10"]);
    }

    #[test]
    fn the_unknown_can_be_let_pass_and_what_is_known_to_lag_not() {
        let limit = Limit::new("lag", 10.0).unknown_passes();
        let lost = |lag| refusal(&limit, Cause::LeaderLost, None, lag);
        assert_eq!(lost(None), None);
        assert_eq!(lost(Some("much")), None);
        assert!(lost(Some("11")).is_some());
        assert!(refusal(&Limit::new("lag", f64::NAN), Cause::LeaderLost, None, Some("0")).is_some());
    }
}
