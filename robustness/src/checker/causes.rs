//! Leadership moves only because something was broken, or because an operator asked for it.

use std::collections::BTreeMap;

use super::excuses::{Disturbance, disturbances};
use super::violation::Findings;
use crate::history::{Event, History};

/// For so many session timeouts a fault that was repaired still explains a move: members return, and are preferred again.
const TIMEOUTS: u64 = 5;
/// The causes that name an operator's command, and the commands.
const ASKED: [(&str, &[&str]); 3] = [
    ("switchover", &["switchover"]),
    ("failover", &["failover"]),
    ("standing-order", &["drain", "maintenance", "fail-site", "prefer", "mode"]),
];

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let Some(setup) = history.setup() else { return findings };
    let grace = TIMEOUTS * setup.session_timeout_ms * 1_000_000;
    let disturbances = disturbances(history);
    let mut latest = BTreeMap::new();
    for (number, line) in history.lines().iter().enumerate() {
        let Event::Decided { job, slot, member, cause, .. } = &line.event else { continue };
        // The first one needs no cause.
        let Some((since, last)) = latest.insert((job, *slot), (line.at, number)) else { continue };
        findings.examined += 1;
        let commands = ASKED.iter().find(|(asked, _)| asked == cause).map(|(_, verbs)| *verbs);
        let explains = |one: &&Disturbance<'_>| match (commands, one.verb) {
            (Some(verbs), Some(verb)) => verbs.contains(&verb),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let within = |one: &&Disturbance<'_>| one.is_within(since.saturating_sub(grace), line.at);
        if !disturbances.iter().filter(within).any(|one| explains(&one)) {
            let named = member.as_deref().unwrap_or("nobody");
            let missing = commands.map_or_else(
                || "nothing was broken or ordered".to_owned(),
                |verbs| format!("no operator had ordered {}", verbs.join(" or ")),
            );
            findings.found(
                format!("{named} was named with the cause {cause}, and {missing}"),
                vec![last, number],
            );
        }
    }
    findings
}
