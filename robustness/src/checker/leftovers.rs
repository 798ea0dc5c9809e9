//! Nothing of a worker or a job runs after its end.

use super::violation::Findings;
use crate::history::{Event, History};

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    for (number, line) in history.lines().iter().enumerate() {
        match &line.event {
            Event::Finished => findings.examined += 1,
            Event::Left { pid, command } => {
                findings.examined += 1;
                findings.found(format!("process {pid} still runs: {command}"), vec![number]);
            }
            _ => {}
        }
    }
    findings
}
