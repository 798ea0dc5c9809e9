//! Access to the znodes of elections.

use super::super::{
    facts::Facts,
    finding::{Check, Found, Severity},
};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "access-refused",
        severity: Severity::Error,
        finds: "the credentials here may not read an election",
        why: "The elections can't be examined; a worker with these credentials can't join them.",
        action: "Give the workers' configuration with --config, or set the access lists (setAcl -R) to these credentials.",
        look: |facts, found| facts.refused.iter().for_each(|refused| found.add(refused.clone())),
    },
    Check {
        id: "open-access",
        severity: Severity::Warning,
        finds: "znodes have another access list than the configured one",
        why: "With open lists every client can change elections; with closed ones other workers can't join.",
        action: "Run the setAcl that the finding names, in zkCli.sh.",
        look: open,
    },
];

fn open(facts: &Facts, found: &mut Found) {
    let of_access =
        |e: &super::super::facts::ElectionFacts| e.problems.iter().find(|p| p.kind == "access").cloned();
    // The root and what is below it have the same cause.
    if let Some(problem) = facts.elections.iter().find_map(of_access) {
        found.with(Severity::Warning, problem.sentence);
    }
}
