//! The promises, and the functions that check each of them against a history.

mod answers;
mod causes;
mod excuses;
mod gaps;
mod leftovers;
mod one_actor;
mod releases;
mod requests;
mod spans;
mod store;
mod tokens;
mod violation;
mod witnessed;
mod workers;

use std::fmt::Write as _;

use serde_json::json;

pub use violation::{Check, Findings, Violation};

use crate::history::{Event, History};

/// All checks.
pub const CHECKS: [Check; 10] = [
    Check {
        name: "one-actor",
        promise: "At most one member acts as leader of a slot.",
        run: one_actor::check,
    },
    Check {
        name: "ends-with-its-znode",
        promise: "No leader acts after its leader znode is gone.",
        run: releases::check,
    },
    Check {
        name: "tokens-grow",
        promise: "Each leadership has a fencing token of its own, higher than that of each leadership before it.",
        run: tokens::check,
    },
    Check {
        name: "store-is-fenced",
        promise: "A store that checks tokens keeps every write that it has acknowledged, in one order, and accepts none \
                  of an older leadership after one of a newer.",
        run: store::check,
    },
    Check {
        name: "requests-once",
        promise: "A request of an operator is begun at most once, and what the operator was told of it is true.",
        run: requests::check,
    },
    Check {
        name: "one-answers-200",
        promise: "/leader answers 200 on one member at a time.",
        run: answers::check,
    },
    Check {
        name: "leader-in-time",
        promise: "While the servers and a member can work, a slot has an acting leader again within a few session timeouts.",
        run: gaps::check,
    },
    Check {
        name: "moves-have-causes",
        promise: "Leadership moves only because something was broken, or because an operator asked for it.",
        run: causes::check,
    },
    Check {
        name: "nothing-left",
        promise: "Nothing of a worker or a job runs after its end.",
        run: leftovers::check,
    },
    Check {
        name: "no-crash",
        promise: "A worker ends because it was asked to, or with an exit code that says to start it again: 69 or 75.",
        run: workers::check,
    },
];

/// What was found about each promise.
#[derive(Clone, Debug)]
pub struct Report {
    findings: Vec<(Check, Findings)>,
    /// The records of the servers that could not be read.
    unread: usize,
}

impl Report {
    /// Checks a history.
    #[must_use]
    pub fn of(history: &History) -> Self {
        let unread = history.lines().iter().filter(|line| matches!(line.event, Event::Unread { .. }));
        let findings = CHECKS.into_iter().map(|check| (check, (check.run)(history))).collect();
        Self { findings, unread: unread.count() }
    }

    /// Whether every promise has held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The names of the promises that were broken.
    pub fn broken(&self) -> impl Iterator<Item = &'static str> + '_ {
        let broken = self.findings.iter().filter(|(_, findings)| !findings.violations.is_empty());
        broken.map(|(check, _)| check.name)
    }

    /// The names of the checks that had nothing to look at.
    pub fn idle(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.findings.iter().filter(|(_, findings)| findings.examined == 0).map(|(check, _)| check.name)
    }

    /// How many records of the servers could not be read, so no check knows them.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// The report as JSON: `held`, how many records of the servers are `unread`, and the `checks` with their violations and the
    /// lines that show them.
    #[must_use]
    pub fn json(&self, history: &History) -> serde_json::Value {
        let checks = self.findings.iter().map(|(check, findings)| {
            let violations = findings.violations.iter().map(|violation| {
                let lines = violation.lines.iter().map(|number| &history.lines()[*number]);
                json!({ "sentence": violation.sentence, "lines": lines.collect::<Vec<_>>() })
            });
            json!({
                "name": check.name,
                "promise": check.promise,
                "examined": findings.examined,
                "violations": violations.collect::<Vec<_>>(),
            })
        });
        json!({ "held": self.held(), "unread": self.unread, "checks": checks.collect::<Vec<_>>() })
    }

    /// The report as text: each promise that was broken with the lines that show it, then `held` or `broken`.
    #[must_use]
    pub fn text(&self, history: &History) -> String {
        let mut text = String::new();
        for (check, findings) in &self.findings {
            let verdict = match (findings.violations.is_empty(), findings.examined) {
                (false, _) => "BROKEN",
                (true, 0) => "nothing to check",
                (true, _) => "held",
            };
            let _ = writeln!(text, "{}: {verdict} ({} examined)", check.name, findings.examined);
            if !findings.violations.is_empty() {
                let _ = writeln!(text, "  {}", check.promise);
            }
            for violation in &findings.violations {
                let _ = writeln!(text, "  - {}", violation.sentence);
                for number in &violation.lines {
                    let line = serde_json::to_string(&history.lines()[*number]).unwrap_or_default();
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
        if self.unread > 0 {
            let _ = writeln!(text, "records of the servers that can't be read: {}", self.unread);
        }
        let _ = writeln!(text, "{}", if self.held() { "held" } else { "broken" });
        text
    }
}
