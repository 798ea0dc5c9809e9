//! Each leadership has a fencing token of its own, higher than that of each leadership before it.

use std::collections::BTreeMap;

use super::spans::{Span, spans};
use super::violation::Findings;
use super::witnessed::first_terms;
use crate::history::{Event, History, Leadership};

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let acquired: BTreeMap<&Leadership, usize> = history
        .lines()
        .iter()
        .enumerate()
        .filter_map(|(number, line)| match &line.event {
            Event::Acquired(leadership) => Some((leadership, number)),
            _ => None,
        })
        .collect();
    let first_terms = first_terms(history);
    let mut owners: BTreeMap<_, Span<'_>> = BTreeMap::new();
    let mut highest: BTreeMap<_, Span<'_>> = BTreeMap::new();
    for span in spans(history) {
        findings.examined += 1;
        let Leadership { job, member, token, term, .. } = span.leadership;
        let at = span.lines[0];
        if let Some(other) = owners.insert((job, *token), span.clone()) {
            let also = &other.leadership.member;
            findings.found(
                format!("{member} and {also} have led with one token, {token}"),
                vec![other.lines[0], at],
            );
        } else if first_terms.get(job.as_str()).is_some_and(|first| term > first)
            && !acquired.contains_key(span.leadership)
        {
            let of = format!("{member} has led in term {term} with token {token}");
            findings.found(format!("{of}, and the servers know no such leader znode"), vec![at]);
        } else if let Some(before) =
            highest.get(&span.slot()).filter(|before| before.leadership.token > *token)
        {
            let earlier = format!("{} had led with {}", before.leadership.member, before.leadership.token);
            findings.found(
                format!("{member} began to lead with token {token} after {earlier}"),
                vec![before.lines[0], at],
            );
        }
        let known = highest.entry(span.slot()).or_insert_with(|| span.clone());
        if known.leadership.token < *token {
            *known = span;
        }
    }
    findings
}
