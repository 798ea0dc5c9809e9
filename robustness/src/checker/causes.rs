//! Leadership moves only because something was broken, or because an operator asked for it.

use std::collections::BTreeMap;

use super::excuses::{Disturbance, disturbances, stalls};
use super::violation::Findings;
use crate::history::{Event, History};

/// For so many session timeouts a fault that was repaired still explains a move: members return, and are preferred again.
const TIMEOUTS: u64 = 5;
/// The causes that name an operator's command, and the commands. A request can be planned, and a standing order stays in force,
/// so the command can be given at any time before.
const ASKED: [(&str, &[&str]); 3] = [
    ("switchover", &["switchover", "drill", "evacuate"]),
    ("failover", &["failover", "drill", "evacuate"]),
    (STANDING_ORDER, &["drain", "maintenance", "fail-site", "prefer", "mode", "stay", "evacuate", "config"]),
];
/// The configuration can forbid to lead too, so a worker that was started again explains it.
const STANDING_ORDER: &str = "standing-order";
/// It comes when the policy allows it, which can be long after the fault that has caused the move before it.
const RETURN: &str = "better-candidate";
/// It ends the takeover that the decision before it has begun.
const TAKEOVER_FAILED: &str = "takeover-failed";
/// No move: the leader leads on.
const CALLED_OFF: &str = "called-off";

/// A decision about a slot.
struct Decision {
    at: u64,
    line: usize,
    /// It names no leader: the next one waits for a candidate.
    is_vacant: bool,
}

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let Some(setup) = history.setup() else { return findings };
    let timeout = setup.session_timeout_ms * 1_000_000;
    let grace = TIMEOUTS * timeout;
    let disturbances = disturbances(history);
    // A shorter one ends no session.
    let stalls: Vec<_> = stalls(history).into_iter().filter(|(from, to)| to - from >= timeout / 2).collect();
    let mut decisions: BTreeMap<_, Vec<Decision>> = BTreeMap::new();
    for (number, line) in history.lines().iter().enumerate() {
        let (job, slot, member, cause) = match &line.event {
            Event::Decided { job, slot, member, cause, .. } => (job, slot, member, cause),
            // Then the test ends the workers.
            Event::Finished => break,
            _ => continue,
        };
        let earlier = decisions.entry((job, *slot)).or_default();
        if cause == CALLED_OFF {
            earlier.pop();
            continue;
        }
        let before = earlier.last().map(|before| (before.at, before.line, before.is_vacant));
        earlier.push(Decision { at: line.at, line: number, is_vacant: member.is_none() });
        // The first one needs no cause.
        let Some((since, last, was_vacant)) = before else { continue };
        findings.examined += 1;
        let commands = ASKED.iter().find(|(asked, _)| asked == cause).map(|(_, verbs)| *verbs);
        let from = match cause.as_str() {
            TAKEOVER_FAILED => since.min(line.at.saturating_sub(grace)),
            cause if was_vacant || cause == RETURN => since.saturating_sub(grace),
            _ => line.at.saturating_sub(grace),
        };
        let needs_command = commands.is_some() && cause != STANDING_ORDER;
        let explains = |one: &Disturbance<'_>| {
            let is_asked = commands.zip(one.verb).is_some_and(|(verbs, verb)| verbs.contains(&verb));
            is_asked && one.from <= line.at || !needs_command && one.is_within(from, line.at)
        };
        let is_stalled =
            || !needs_command && stalls.iter().any(|(begun, ended)| *begun <= line.at && *ended >= from);
        if !disturbances.iter().any(explains) && !is_stalled() {
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
