//! No leader acts after its leader znode is gone.

use std::collections::BTreeMap;

use super::excuses::Overlaps;
use super::spans::spans;
use super::violation::Findings;
use crate::history::{Event, History};

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let mut released = BTreeMap::new();
    for (number, line) in history.lines().iter().enumerate() {
        if let Event::Released(leadership) = &line.event {
            released.insert(leadership, (line.at, number));
        }
    }
    let overlaps = Overlaps::of(history);
    for span in spans(history) {
        let Some((gone, number)) = released.get(span.leadership) else { continue };
        findings.examined += 1;
        let may_act = || overlaps.excuse(&span.leadership.member, *gone, span.to);
        if span.to > gone.saturating_add(history.tolerance()) && !may_act() {
            findings.found(
                format!(
                    "{} (token {}) acted {} ms after its leader znode was deleted",
                    span.leadership.member,
                    span.leadership.token,
                    (span.to - gone) / 1_000_000,
                ),
                vec![*number, span.lines[1]],
            );
        }
    }
    findings
}
