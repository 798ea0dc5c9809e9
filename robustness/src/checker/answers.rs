//! `/leader` answers 200 on one member at a time.

use std::collections::BTreeMap;

use super::excuses::Overlaps;
use super::violation::Findings;
use crate::history::{Answer, History, Outcome};

/// The answers 200 of one leadership. It has led at some time in each of them, so it has led from the end of the first to the
/// beginning of the last.
struct Seen {
    ended_first: (u64, usize),
    began_last: (u64, usize),
}

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let overlaps = Overlaps::of(history);
    let mut slots: BTreeMap<_, BTreeMap<_, Seen>> = BTreeMap::new();
    for operation in history.operations() {
        let Outcome::Ok(Answer::Status { code: 200, leadership: Some(leadership) }) = operation.outcome
        else {
            continue;
        };
        findings.examined += 1;
        let (ended, began) = ((operation.to, operation.line), (operation.from, operation.line));
        let slot = slots.entry((&leadership.job, leadership.slot)).or_default();
        let seen = slot
            .entry((leadership.token, leadership))
            .or_insert(Seen { ended_first: ended, began_last: began });
        seen.ended_first = seen.ended_first.min(ended);
        seen.began_last = seen.began_last.max(began);
    }
    for slot in slots.into_values() {
        let mut began_last: Option<((u64, usize), _)> = None;
        for ((_, leadership), seen) in &slot {
            if let Some(((began, older_line), older)) =
                began_last.filter(|((began, _), _)| *began > seen.ended_first.0)
                && !overlaps.excuse(older, seen.ended_first.0, began)
            {
                let late = (began - seen.ended_first.0) / 1_000_000;
                let (member, token) = (&leadership.member, leadership.token);
                findings.found(
                    format!("{older} answered 200 {late} ms after {member} had answered 200 with the newer token {token}"),
                    vec![seen.ended_first.1, older_line],
                );
            }
            if began_last.is_none_or(|(latest, _)| seen.began_last > latest) {
                began_last = Some((seen.began_last, &leadership.member));
            }
        }
    }
    findings
}
