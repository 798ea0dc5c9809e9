//! No leader acts after its leader znode is gone.

use std::collections::BTreeMap;

use super::excuses::disturbances;
use super::spans::spans;
use super::violation::Findings;
use crate::history::{Event, Excuse, History};

/// The servers' times are in milliseconds, rounded down.
const ROUNDED: u64 = 2_000_000;

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let mut released = BTreeMap::new();
    for (number, line) in history.lines().iter().enumerate() {
        if let Event::Released(leadership) = &line.event {
            released.insert(leadership, (line.at, number));
        }
    }
    let disturbances = disturbances(history);
    for span in spans(history) {
        let Some((gone, number)) = released.get(span.leadership) else { continue };
        findings.examined += 1;
        let is_excused = || {
            let meanwhile = disturbances.iter().filter(|one| one.is_within(span.from, *gone));
            meanwhile.into_iter().any(|one| one.excuses(Excuse::Overlap))
        };
        if span.to > gone + ROUNDED && !is_excused() {
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
