//! Filters, then comparisons, then an order that is always total.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use election_core::{
    record::{Cause, MemberRecord},
    strategy::{Compared, Ground, Ranked, Ranking, Refused, Round, Strategy},
};

use crate::{
    stage::{Comparison, Filter, Standing},
    stages::member_id,
};

/// The reason of a candidate that had nobody to be compared with.
const ALONE: &str = "the only candidate";

/// Filters and comparisons in order: one way to rank.
///
/// A candidate is refused by the first filter that puts it out. Those that pass are
/// ordered by the first comparison; where it finds them equal, by the next; and
/// where all do, by member id. That last step can be neither left out nor replaced,
/// so there is no pipeline that leaves two members undecided, and none that depends
/// on the order in which the candidates are given.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    filters: Vec<Arc<dyn Filter>>,
    comparisons: Vec<Arc<dyn Comparison>>,
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
    /// A pipeline without stages: everybody may lead, lowest member id first.
    pub fn new() -> Self {
        Self::default()
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

    /// The names of the stages in the order in which they are asked.
    pub fn stages(&self) -> impl Iterator<Item = &'static str> {
        let filters = self.filters.iter().map(|f| f.name());
        let comparisons = self.comparisons.iter().map(|c| c.name());
        filters.chain(comparisons).chain([member_id::NAME])
    }

    pub(crate) fn comparisons(&self) -> impl Iterator<Item = &dyn Comparison> {
        self.comparisons.iter().map(|comparison| &**comparison)
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

    /// The losses that are accepted where this candidate, which passes, comes to lead.
    fn losses(&self, candidate: &MemberRecord, round: &Round<'_>) -> Vec<String> {
        let accepted = self.refusals(candidate, round).filter(|_| round.accepts_loss);
        accepted.map(|refused| format!("the loss is accepted: {}", refused.reason)).collect()
    }

    fn order(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Vec<Ranked> {
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
            .flat_map(|group| member_order(self.comparisons.len(), group))
            .map(|Contender { record, mut reasons, compared }| {
                match self.losses(record, round) {
                    none if none.is_empty() => reasons.extend(self.remark(&record.attributes, round.cause)),
                    losses => reasons.extend(losses),
                }
                Ranked { named: record.named(), reasons, compared }
            })
            .collect()
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
        refused.sort_by(by_ballot);
        let worth_waiting = if round.cause == Cause::Startup && !electable.is_empty() {
            self.comparisons.iter().find_map(|c| c.worth_waiting(&electable, round))
        } else {
            None
        };
        Ranking { order: self.order(&electable, round), refused, worth_waiting }
    }

    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let all: Vec<_> = self.filters.iter().filter_map(|filter| filter.remark(attributes, cause)).collect();
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
