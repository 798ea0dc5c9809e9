//! A slot has an acting leader again within a few session timeouts.

use std::collections::BTreeMap;

use super::excuses::{Disturbance, disturbances, stalls};
use super::violation::Findings;
use crate::history::{Event, Excuse, History};

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let Some(setup) = history.setup() else { return findings };
    let bound = setup.session_timeout_ms * setup.leaderless_timeouts * 1_000_000;
    let (disturbances, stalls) = (disturbances(history), stalls(history));
    let mut latest = BTreeMap::new();
    for (number, line) in history.lines().iter().enumerate() {
        let slots: Vec<_> = match &line.event {
            Event::Lead(leadership) | Event::Act(leadership) => vec![(&leadership.job, leadership.slot)],
            Event::Finished => latest.keys().copied().collect(),
            _ => continue,
        };
        for slot in slots {
            findings.examined += 1;
            let Some((since, last)) = latest.insert(slot, (line.at, number)) else { continue };
            if line.at - since <= bound {
                continue;
            }
            let longest = calm(since, line.at, &disturbances, &stalls);
            if longest > bound {
                let (seconds, allowed) = (longest / 1_000_000_000, bound / 1_000_000_000);
                findings.found(
                    format!("for {seconds} s nobody led slot {} of {}, and nothing new was broken: {allowed} s are allowed", slot.1, slot.0),
                    vec![last, number],
                );
            }
        }
    }
    findings
}

/// The longest time between these two in which nothing new was broken, repaired or ordered, in which a leader can be
/// expected, less the stalls of the machine: a stall breaks nothing new.
fn calm(from: u64, to: u64, disturbances: &[Disturbance<'_>], stalls: &[(u64, u64)]) -> u64 {
    let changes = disturbances.iter().flat_map(|one| [one.from, one.to]);
    let mut moments: Vec<u64> = changes.filter(|at| (from..to).contains(at)).chain([from, to]).collect();
    moments.sort_unstable();
    let is_excused = |from: u64, to: u64| {
        let without = disturbances.iter().filter(|one| one.excuses(Excuse::NoLeader));
        without.into_iter().any(|one| one.from <= from && one.to >= to)
    };
    let parts =
        moments.windows(2).map(|part| (part[0], part[1])).filter(|(from, to)| !is_excused(*from, *to));
    parts
        .map(|(from, to)| {
            let within =
                stalls.iter().map(|(since, until)| (*until).min(to).saturating_sub((*since).max(from)));
            (to - from).saturating_sub(within.sum())
        })
        .max()
        .unwrap_or(0)
}
