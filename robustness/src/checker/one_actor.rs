//! At most one member acts as leader of a slot.

use std::collections::BTreeMap;

use super::excuses::Overlaps;
use super::spans::{Span, spans};
use super::violation::Findings;
use crate::history::History;

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let overlaps = Overlaps::of(history);
    let mut latest: BTreeMap<_, Span<'_>> = BTreeMap::new();
    for span in spans(history) {
        findings.examined += 1;
        let Some(earlier) = latest.remove(&span.slot()) else {
            latest.insert(span.slot(), span);
            continue;
        };
        let may_act = || overlaps.excuse(&earlier.leadership.member, span.from, earlier.to);
        if span.from <= earlier.to && !may_act() {
            findings.found(
                format!(
                    "{} (token {}) acted until {} ms after {} (token {}) had begun to act",
                    earlier.leadership.member,
                    earlier.leadership.token,
                    (earlier.to - span.from) / 1_000_000,
                    span.leadership.member,
                    span.leadership.token,
                ),
                vec![span.lines[0], earlier.lines[1]],
            );
        }
        let last = if earlier.to > span.to { earlier } else { span };
        latest.insert(last.slot(), last);
    }
    findings
}
