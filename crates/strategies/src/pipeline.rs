//! Filters, then comparisons, then an order that is always total.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use election_core::{
    record::{Cause, MemberRecord},
    strategy::{Compared, Ground, Ranked, Ranking, Refused, Round, Strategy},
};

use crate::{
    stage::{Comparison, Filter, Standing},
    stages::{Healthy, NotExcluded, Priority, SiteHealthy, SiteOpen, member_id},
    whole::{Answer, Whole},
};

/// The reason of a candidate that had nobody to be compared with.
const ALONE: &str = "the only candidate";

/// Filters and comparisons in order: one way to rank.
///
/// A candidate is refused by the first filter that puts it out. Those that pass are
/// ordered by the first comparison; where it finds them equal, by the next; and
/// where all do, by member id, or by a strategy that is given ([`ranked_by`](Self::ranked_by)). That last
/// step can't be left out: there is no pipeline that leaves two members undecided, and none of stages
/// that depends on the order in which the candidates are given.
#[derive(Clone, Debug)]
pub struct Pipeline {
    filters: Vec<Arc<dyn Filter>>,
    comparisons: Vec<Arc<dyn Comparison>>,
    /// Instead of the member id.
    last: Option<Whole>,
}

/// A candidate on its way through the comparisons.
struct Contender<'a> {
    record: &'a MemberRecord,
    reasons: Vec<String>,
    compared: Vec<Compared>,
}

impl Contender<'_> {
    fn note(&mut self, (number, stage): (usize, &'static str), grade: i64, reason: String) {
        self.compared.push(Compared { stage, number, grade, reason: self.reasons.len() });
        self.reasons.push(reason);
    }
}

impl Pipeline {
    /// The mandatory filters, which put out whom no policy may let lead: members that are not
    /// [`Healthy`], have a [`Priority`] of 0 or less, or an exclusion in force ([`NotExcluded`]), and those of
    /// sites that have failed ([`SiteHealthy`]) or are drained ([`SiteOpen`]). No comparison: lowest member id
    /// first.
    ///
    /// What would be lost with a member only the job's owner can know: add a
    /// [`Limit`](crate::stages::Limit).
    #[expect(clippy::new_without_default, reason = "`default()` would not say what it begins with")]
    pub fn new() -> Self {
        Self::bare().filter(Healthy).filter(Priority).filter(NotExcluded).filter(SiteHealthy).filter(SiteOpen)
    }

    /// No stages at all, not even the mandatory filters: every member may lead, drained, unhealthy or
    /// excluded as it may be. A part of another strategy, or a test, may want that.
    pub fn bare() -> Self {
        Self { filters: Vec::new(), comparisons: Vec::new(), last: None }
    }

    /// Adds a filter behind the filters that are there.
    #[must_use]
    pub fn filter(mut self, stage: impl Filter + 'static) -> Self {
        self.filters.push(Arc::new(stage));
        self
    }

    /// Adds a comparison behind the comparisons that are there.
    #[must_use]
    pub fn compare(mut self, stage: impl Comparison + 'static) -> Self {
        self.comparisons.push(Arc::new(stage));
        self
    }

    /// Whom the comparisons leave equal is ordered by this strategy, not by member id.
    ///
    /// It is asked about those alone that pass every filter, once for each round. Its answer need
    /// not be right: whom it leaves out is refused, and whom it names besides is ignored. In explanations it has
    /// this name.
    #[must_use]
    pub fn ranked_by(mut self, name: &'static str, strategy: Arc<dyn Strategy>) -> Self {
        self.last = Some(Whole { name, strategy });
        self
    }

    /// The names of the stages in the order in which they are asked.
    pub fn stages(&self) -> impl Iterator<Item = &'static str> {
        let filters = self.filters.iter().map(|f| f.name());
        let comparisons = self.comparisons.iter().map(|c| c.name());
        let last = self.last.as_ref().map_or(member_id::NAME, |whole| whole.name);
        filters.chain(comparisons).chain([last])
    }

    pub(crate) fn comparisons(&self) -> impl Iterator<Item = &dyn Comparison> {
        self.comparisons.iter().map(|comparison| &**comparison)
    }

    /// Whether a strategy orders those that all comparisons leave equal.
    pub(crate) fn has_last(&self) -> bool {
        self.last.is_some()
    }

    /// Adds stages that are shared.
    pub(crate) fn with(
        mut self,
        filter: Option<Arc<dyn Filter>>,
        comparison: Option<Arc<dyn Comparison>>,
    ) -> Self {
        self.filters.extend(filter);
        self.comparisons.extend(comparison);
        self
    }

    /// Who passes every filter.
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
        self.filters.iter().filter_map(|filter| {
            Some(Refused {
                reason: filter.refuse(candidate, round)?,
                named: candidate.named(),
                stage: filter.name().to_owned(),
                ground: filter.ground(candidate),
            })
        })
    }

    /// What the filters have to say of one that passes; the strategy's is among its reasons.
    fn remarks<'a>(
        &'a self,
        attributes: &'a BTreeMap<String, String>,
        cause: Cause,
    ) -> impl Iterator<Item = String> + 'a {
        self.filters.iter().filter_map(move |filter| filter.remark(attributes, cause))
    }

    /// The losses that are accepted where this candidate, which passes, comes to lead.
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
        // With whom nothing is lost goes before those with whom a loss was accepted.
        let (safe, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|contender| self.losses(contender.record, round).is_empty());
        let mut groups = vec![safe, others];
        for (number, comparison) in self.comparisons.iter().enumerate() {
            let split = |group| split(number, &**comparison, group, round);
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
                Ranked { named: record.named(), reasons, compared }
            })
            .collect()
    }

    /// Orders those that no comparison could tell apart.
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
}

impl Strategy for Pipeline {
    fn rank(&self, round: &Round<'_>) -> Ranking {
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
            let by_stages = self.comparisons.iter().find_map(|c| c.worth_waiting(&electable, round));
            by_stages.or_else(|| answer.as_mut()?.worth_waiting.take())
        } else {
            None
        };
        Ranking { order: self.order(&electable, answer.as_ref(), round), refused, worth_waiting }
    }

    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let last = self.last.as_ref().and_then(|whole| whole.strategy.remark(attributes, cause));
        let all: Vec<_> = self.remarks(attributes, cause).chain(last).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// The order of those that are refused: the oldest ballot first. What comes after the
/// member id only matters for input that has a member twice.
fn by_ballot(a: &Refused, b: &Refused) -> Ordering {
    fn key(r: &Refused) -> impl Ord + '_ {
        let who = (&r.named.ballot, &r.named.member, &r.named.site);
        (who, &r.stage, &r.reason)
    }
    key(a).cmp(&key(b))
}

/// Splits candidates that were equal so far into groups that still are, best first.
fn split<'a>(
    number: usize,
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
        for contender in group {
            speak(number, comparison, contender, *grade, Standing { place, of }, round);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Notes down what a comparison has to say of a candidate, if it is worth saying.
fn speak(
    number: usize,
    comparison: &dyn Comparison,
    contender: &mut Contender<'_>,
    grade: i64,
    standing: Standing,
    round: &Round<'_>,
) {
    let record = contender.record;
    if !standing.is_tied() || comparison.speaks_when_tied(record, round) {
        contender.note((number, comparison.name()), grade, comparison.reason(record, standing, round));
    }
}

/// The last step: those that no comparison could tell apart.
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
