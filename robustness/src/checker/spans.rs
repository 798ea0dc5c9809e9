//! When each leadership has acted.

use std::collections::BTreeMap;

use crate::history::{Event, History, Leadership};

/// From the first act of a leadership to its last.
#[derive(Clone, Debug)]
pub(super) struct Span<'a> {
    pub(super) leadership: &'a Leadership,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The lines of both.
    pub(super) lines: [usize; 2],
}

/// All leaderships that have acted, in the order of their first acts.
pub(super) fn spans(history: &History) -> Vec<Span<'_>> {
    let mut known: BTreeMap<&Leadership, usize> = BTreeMap::new();
    let mut all: Vec<Span<'_>> = Vec::new();
    for (number, line) in history.lines().iter().enumerate() {
        let (Event::Lead(leadership) | Event::Act(leadership) | Event::End(leadership)) = &line.event else {
            continue;
        };
        let at = *known.entry(leadership).or_insert(all.len());
        if at == all.len() {
            all.push(Span { leadership, from: line.at, to: line.at, lines: [number; 2] });
        }
        (all[at].to, all[at].lines[1]) = (line.at, number);
    }
    all
}

impl<'a> Span<'a> {
    /// Of which job, and which of its slots.
    pub(super) fn slot(&self) -> (&'a str, u64) {
        (&self.leadership.job, self.leadership.slot)
    }
}
