//! No worker crashes.

use super::violation::Findings;
use crate::history::{Event, History};

/// ZooKeeper was not reachable in time; not now, try again.
const START_AGAIN: [i32; 2] = [69, 75];

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    for (number, line) in history.lines().iter().enumerate() {
        match &line.event {
            Event::Finished => findings.examined += 1,
            Event::Ended { member, code, asked } => {
                findings.examined += 1;
                let is_ordered = |code| START_AGAIN.contains(&code) || *asked && code == 0;
                if !code.is_some_and(is_ordered) {
                    let how = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                    findings.found(format!("the worker of {member} has ended by {how}"), vec![number]);
                }
            }
            _ => {}
        }
    }
    findings
}
