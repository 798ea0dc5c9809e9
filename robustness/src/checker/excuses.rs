//! When something was broken, and what the documents do not promise then.

use std::collections::BTreeMap;

use crate::history::{Call, Event, Excuse, History};

/// A time in which something was broken. An operator's command is a moment.
#[derive(Clone, Debug)]
pub(super) struct Disturbance<'a> {
    pub(super) from: u64,
    /// `u64::MAX` if it was never repaired.
    pub(super) to: u64,
    pub(super) excuses: &'a [Excuse],
    /// The command of an operator.
    pub(super) verb: Option<&'a str>,
}

/// All faults, stalls and commands of operators.
pub(super) fn disturbances(history: &History) -> Vec<Disturbance<'_>> {
    let mut all: Vec<Disturbance<'_>> = Vec::new();
    let mut open = BTreeMap::new();
    for line in history.lines() {
        let (from, to, excuses, verb) = match &line.event {
            Event::Fault { fault, excuses, .. } => {
                open.insert(*fault, all.len());
                (line.at, u64::MAX, &excuses[..], None)
            }
            Event::Healed { fault } => {
                if let Some(known) = open.remove(fault) {
                    all[known].to = line.at;
                }
                continue;
            }
            Event::Stall { ms } => (line.at.saturating_sub(ms * 1_000_000), line.at, &[][..], None),
            Event::Invoke { call: Call::Operator { verb, excuses, .. }, .. } => {
                (line.at, line.at, &excuses[..], Some(verb.as_str()))
            }
            _ => continue,
        };
        all.push(Disturbance { from, to, excuses, verb });
    }
    all
}

impl Disturbance<'_> {
    /// Whether it lasted at some time between these two.
    pub(super) fn is_within(&self, from: u64, to: u64) -> bool {
        self.from <= to && self.to >= from
    }

    pub(super) fn excuses(&self, excuse: Excuse) -> bool {
        self.excuses.contains(&excuse)
    }
}
