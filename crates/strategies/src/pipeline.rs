//! Filters, then comparisons, then an order that is always total; and other pipelines for certain causes.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use election_core::strategy::{
    Cause, Compared, Ground, MemberRecord, Ranked, Ranking, Refused, Round, Strategy,
};

use crate::{
    stage::{Comparison, Filter, Stage, Standing},
    stages::{Healthy, NotExcluded, Priority, SiteHealthy, SiteOpen, member_id},
    whole::{Answer, Whole},
};

/// The reason for a candidate without a competitor.
const ALONE: &str = "the only candidate";

/// A strategy of stages: filters, then comparisons.
///
/// The first filter that refuses a candidate decides. The candidates that pass are ordered by the first comparison,
/// equal ones by the next, and candidates that all comparisons find equal by member id or by a given strategy
/// ([`ranked_by`](Self::ranked_by)). The last step cannot be left out: no pipeline leaves two members undecided, and
/// the order of the candidates in the round never matters.
///
/// For certain causes another pipeline can rank ([`when`](Self::when)).
#[derive(Clone, Debug)]
pub struct Pipeline {
    filters: Vec<NamedStage<dyn Filter>>,
    comparisons: Vec<NamedStage<dyn Comparison>>,
    /// Instead of the member id.
    last: Option<Whole>,
    /// Rank instead of the stages for these causes.
    rules: Vec<(Vec<Cause>, Pipeline)>,
}

/// A stage with its name.
type NamedStage<S> = (&'static str, Arc<S>);

/// A candidate on its way through the comparisons.
struct Contender<'a> {
    record: &'a MemberRecord,
    reasons: Vec<String>,
    compared: Vec<Compared>,
}

impl Contender<'_> {
    fn note(&mut self, (number, stage): (usize, &'static str), grade: i64, reason: String) {
        self.compared.push(Compared::new(stage, number, grade, self.reasons.len()));
        self.reasons.push(reason);
    }
}

impl Pipeline {
    /// A pipeline with the mandatory filters. They refuse members that are not [`Healthy`], have a [`Priority`] of 0 or
    /// less or an exclusion in force ([`NotExcluded`]), or are in a site that has failed ([`SiteHealthy`]) or is
    /// drained, or that are being serviced ([`SiteOpen`]). Without a comparison the lowest member id is first.
    ///
    /// Only the job's owner knows which data would be lost with a member: add a [`Limit`](crate::stages::Limit).
    #[expect(clippy::new_without_default, reason = "`default()` would not say what it begins with")]
    pub fn new() -> Self {
        Self::bare().filter(Healthy).filter(Priority).filter(NotExcluded).filter(SiteHealthy).filter(SiteOpen)
    }

    /// A pipeline without stages and without the mandatory filters: every member may lead, even if it is drained,
    /// unhealthy or excluded. It is for parts of other strategies and for tests.
    pub const fn bare() -> Self {
        Self { filters: Vec::new(), comparisons: Vec::new(), last: None, rules: Vec::new() }
    }

    /// Adds a filter after the present filters.
    #[must_use]
    pub fn filter<S: Stage + Filter + 'static>(mut self, stage: S) -> Self {
        self.filters.push((S::NAME, Arc::new(stage)));
        self
    }

    /// Adds a comparison after the present comparisons.
    #[must_use]
    pub fn compare<S: Stage + Comparison + 'static>(mut self, stage: S) -> Self {
        self.comparisons.push((S::NAME, Arc::new(stage)));
        self
    }

    /// Candidates that the comparisons find equal are ordered by this strategy instead of by member id.
    ///
    /// It is asked once in each round, about the candidates that pass every filter. A wrong answer does no harm: a
    /// candidate that it leaves out is refused, and a member that is no candidate is ignored. Explanations show this
    /// name.
    #[must_use]
    pub fn ranked_by(mut self, name: &'static str, strategy: Arc<dyn Strategy>) -> Self {
        self.last = Some(Whole { name, strategy });
        self
    }

    /// For these causes `pipeline` ranks, and none of the stages here is asked. Where two calls name the same cause, the
    /// first one decides.
    #[must_use]
    pub fn when(mut self, causes: impl IntoIterator<Item = Cause>, pipeline: Self) -> Self {
        self.rules.push((causes.into_iter().collect(), pipeline));
        self
    }

    /// As [`when`](Self::when), before all present rules.
    pub(crate) fn ahead(mut self, causes: impl IntoIterator<Item = Cause>, pipeline: Self) -> Self {
        self.rules.insert(0, (causes.into_iter().collect(), pipeline));
        self
    }

    /// The pipeline that ranks for this cause: one that was given to [`when`](Self::when), or this one.
    pub fn for_cause(&self, cause: Cause) -> &Self {
        let rule = self.rules.iter().find(|(causes, _)| causes.contains(&cause));
        rule.map_or(self, |(_, pipeline)| pipeline.for_cause(cause))
    }

    /// The names of its own stages, in the order in which they are asked.
    pub fn stages(&self) -> impl Iterator<Item = &'static str> {
        let filters = self.filters.iter().map(|(name, _)| *name);
        let comparisons = self.comparisons.iter().map(|(name, _)| *name);
        let last = self.last.as_ref().map_or(member_id::NAME, |whole| whole.name);
        filters.chain(comparisons).chain([last])
    }

    pub(crate) fn comparisons(&self) -> impl Iterator<Item = (&'static str, &dyn Comparison)> {
        self.comparisons.iter().map(|(name, comparison)| (*name, &**comparison))
    }

    /// Whether a strategy orders the candidates that all comparisons find equal.
    pub(crate) fn has_last(&self) -> bool {
        self.last.is_some()
    }

    /// Adds stages that are shared.
    pub(crate) fn with(
        mut self,
        name: &'static str,
        filter: Option<Arc<dyn Filter>>,
        comparison: Option<Arc<dyn Comparison>>,
    ) -> Self {
        self.filters.extend(filter.map(|filter| (name, filter)));
        self.comparisons.extend(comparison.map(|comparison| (name, comparison)));
        self
    }

    /// The candidates that pass every filter.
    pub(crate) fn electable<'a>(&self, round: &Round<'a>) -> Vec<&'a MemberRecord> {
        round.candidates.iter().filter(|candidate| self.refusal(candidate, round).is_none()).collect()
    }

    fn refusal(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<Refused> {
        self.refusals(candidate, round)
            .find(|refused| !(round.accepts_loss && refused.ground == Ground::Loss))
    }

    fn refusals<'a>(
        &'a self,
        candidate: &'a MemberRecord,
        round: &'a Round<'_>,
    ) -> impl Iterator<Item = Refused> + 'a {
        self.filters.iter().filter_map(|(name, filter)| {
            let reason = filter.refuse(candidate, round)?;
            Some(Refused::new(candidate.named(), *name, reason).on(filter.ground(candidate)))
        })
    }

    /// The remarks of the filters about a candidate that passes. Those of the last strategy are among its reasons.
    fn remarks<'a>(
        &'a self,
        attributes: &'a BTreeMap<String, String>,
        cause: Cause,
    ) -> impl Iterator<Item = String> + 'a {
        self.filters.iter().filter_map(move |(_, filter)| filter.remark(attributes, cause))
    }

    /// The losses that are accepted if this candidate, which passes, becomes the leader.
    fn losses(&self, candidate: &MemberRecord, round: &Round<'_>) -> Vec<String> {
        let accepted = self.refusals(candidate, round).filter(|_| round.accepts_loss);
        accepted.map(|refused| format!("the loss is accepted: {}", refused.reason)).collect()
    }

    fn order(&self, electable: &[&MemberRecord], answer: Option<&Answer>, round: &Round<'_>) -> Vec<Ranked> {
        let contender = |record| Contender { record, reasons: Vec::new(), compared: Vec::new() };
        let mut all: Vec<_> = electable.iter().copied().map(contender).collect();
        if let [only] = &mut all[..] {
            only.reasons.push(ALONE.to_owned());
        }
        // Candidates without a loss go first.
        let (safe, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|contender| self.losses(contender.record, round).is_empty());
        let mut groups = vec![safe, others];
        for (number, (name, comparison)) in self.comparisons.iter().enumerate() {
            let split = |group| split((number, name), &**comparison, group, round);
            groups = groups.into_iter().flat_map(split).collect();
        }
        groups
            .into_iter()
            .flat_map(|group| self.last_step(group, answer))
            .map(|Contender { record, mut reasons, compared }| {
                match self.losses(record, round) {
                    none if none.is_empty() => reasons.extend(self.remarks(&record.attributes, round.cause)),
                    losses => reasons.extend(losses),
                }
                Ranked::new(record.named(), reasons).with_compared(compared)
            })
            .collect()
    }

    /// Orders the candidates that all comparisons find equal.
    fn last_step<'a>(&self, mut group: Vec<Contender<'a>>, answer: Option<&Answer>) -> Vec<Contender<'a>> {
        let number = self.comparisons.len();
        let (Some(whole), Some(answer)) = (&self.last, answer) else { return member_order(number, group) };
        group.sort_by_key(|contender| answer.rank_of(contender.record));
        for Contender { record, reasons, compared } in &mut group {
            let (why, of) = answer.reasons(whole, record, reasons.len(), number);
            reasons.extend(why);
            compared.extend(of);
        }
        group
    }

    /// Ranks by its own stages.
    fn rank_here(&self, round: &Round<'_>) -> Ranking {
        let mut electable = Vec::new();
        let mut refused = Vec::new();
        for candidate in round.candidates {
            match self.refusal(candidate, round) {
                Some(refusal) => refused.push(refusal),
                None => electable.push(candidate),
            }
        }
        let mut answer = self.last.as_ref().map(|whole| whole.ask(&electable, round));
        if let Some(answer) = &mut answer {
            electable.retain(|candidate| answer.rank_of(candidate).is_some());
            refused.append(&mut answer.refused);
        }
        refused.sort_by(by_ballot);
        let worth_waiting = if round.cause == Cause::Startup && !electable.is_empty() {
            let by_stages = self.comparisons.iter().find_map(|(_, c)| c.worth_waiting(&electable, round));
            by_stages.or_else(|| answer.as_mut()?.worth_waiting.take())
        } else {
            None
        };
        Ranking::new(self.order(&electable, answer.as_ref(), round), refused)
            .with_worth_waiting(worth_waiting)
    }
}

impl Strategy for Pipeline {
    fn rank(&self, round: &Round<'_>) -> Ranking {
        self.for_cause(round.cause).rank_here(round)
    }

    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let here = self.for_cause(cause);
        let last = here.last.as_ref().and_then(|whole| whole.strategy.remark(attributes, cause));
        let all: Vec<_> = here.remarks(attributes, cause).chain(last).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    fn holds_back(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let here = self.for_cause(cause);
        let of_last = || here.last.as_ref()?.strategy.holds_back(attributes, cause);
        here.filters.iter().find_map(|(_, filter)| filter.refuse_successor(attributes)).or_else(of_last)
    }
}

/// The order of refused candidates: oldest ballot first. What follows the member id matters only if the input has a
/// member twice.
fn by_ballot(a: &Refused, b: &Refused) -> Ordering {
    fn key(r: &Refused) -> impl Ord + '_ {
        let who = (&r.named.ballot, &r.named.member, &r.named.site);
        (who, &r.stage, &r.reason)
    }
    key(a).cmp(&key(b))
}

/// Splits candidates that were equal so far into groups of equal ones, best first. Each has the reason, if it mattered.
fn split<'a>(
    stage: (usize, &'static str),
    comparison: &dyn Comparison,
    group: Vec<Contender<'a>>,
    round: &Round<'_>,
) -> Vec<Vec<Contender<'a>>> {
    let mut graded: Vec<_> =
        group.into_iter().map(|contender| (comparison.grade(contender.record, round), contender)).collect();
    graded.sort_by_key(|(grade, _)| *grade);

    let mut groups: Vec<(i64, Vec<Contender<'a>>)> = Vec::new();
    for (grade, contender) in graded {
        match groups.last_mut() {
            Some((last, group)) if *last == grade => group.push(contender),
            _ => groups.push((grade, vec![contender])),
        }
    }
    let of = groups.len();
    for (place, (grade, group)) in groups.iter_mut().enumerate() {
        let standing = Standing { place, of };
        for contender in group {
            let record = contender.record;
            if !standing.is_tied() || comparison.speaks_when_tied(record, round) {
                contender.note(stage, *grade, comparison.reason(record, standing, round));
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The last step: by member id.
fn member_order(number: usize, mut group: Vec<Contender<'_>>) -> Vec<Contender<'_>> {
    if group.len() > 1 {
        group.sort_by(|a, b| member_id::order(a.record, b.record));
        for (place, contender) in group.iter_mut().enumerate() {
            let grade = i64::try_from(place).unwrap_or(i64::MAX);
            contender.note((number, member_id::NAME), grade, member_id::reason(place));
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        stages::OldestBallot,
        testing::{View, member, order, unhealthy},
    };

    #[test]
    fn the_first_rule_that_names_the_cause_decides() {
        let strategy = Pipeline::bare()
            .when([Cause::Startup], Pipeline::bare().filter(Healthy))
            .when([Cause::Startup, Cause::LeaderLost], Pipeline::bare().compare(OldestBallot));
        let stages = |cause| strategy.for_cause(cause).stages().collect::<Vec<_>>();
        assert_eq!(stages(Cause::Startup), ["healthy", "member-id"]);
        assert_eq!(stages(Cause::LeaderLost), ["oldest-ballot", "member-id"]);
        assert_eq!(stages(Cause::Switchover), ["member-id"]);
    }

    #[test]
    fn a_rule_of_a_rule_ranks_as_well() {
        let inner = Pipeline::bare().when([Cause::Startup], Pipeline::bare().filter(Healthy));
        let strategy = Pipeline::bare().when([Cause::Startup, Cause::LeaderLost], inner);
        let view =
            View::of([unhealthy("a", "east", 1, "no disk"), member("b", "east", 2), member("c", "east", 3)]);
        assert_eq!(order(&strategy, &view).len(), 2);
        assert_eq!(order(&strategy, &view.because(Cause::LeaderLost)).len(), 3);
    }
}
