//! `--dry-run`: who would lead after a command, and why, by the elector's own code. Nothing is written.

use election_core::operator::Snapshot;
use serde::Serialize;

use super::{
    election::Operator,
    output::{self, Output},
    simulate::slot_lines,
};
use crate::{
    error::Error,
    view::{Explained, Simulated, WhatIf},
    wall::unix_ms,
};

/// The argument of every command that can be tried.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct DryRun {
    /// Only show who would lead then, and why.
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    /// The command.
    dry_run: &'a str,
    /// What the elector would do next.
    next: &'a str,
    #[serde(flatten)]
    simulated: &'a Simulated,
}

/// Shows what follows from a snapshot as the command `what` would make it.
pub(super) fn show(
    operator: &Operator,
    job: &str,
    what: &str,
    changed: &Snapshot,
    how: Output,
) -> Result<(), Error> {
    let config = &operator.config;
    let (policy, strategy) = (config.engine_of(job), config.policy_of(job).strategy());
    let (now, at) = ((&policy, &*strategy), unix_ms());
    let mut simulated = Simulated::new(job, changed, WhatIf::default(), now, now, at);
    let explained = Explained::new(job, changed, &policy, &*strategy, at);
    let next = explained.next.sentence.as_str();
    if how == Output::Json {
        return output::print_json(&Shown { dry_run: what, next, simulated: &simulated });
    }
    let mut lines = vec![format!("{job}: dry run of {what}; nothing is written")];
    let several = simulated.slots.len() > 1;
    // Otherwise a decision or an obstacle has the reason.
    if simulated.unchanged && simulated.slots.iter().all(|slot| slot.obstacles.is_empty()) {
        lines.push(format!("  now: {next}"));
    }
    for slot in &mut simulated.slots {
        // It is asked after the command, and about other moves.
        slot.question = None;
    }
    for slot in &simulated.slots {
        lines.extend(slot_lines(slot, several));
    }
    lines.extend(simulated.notes.iter().map(|note| format!("  {note}")));
    output::print_text(&lines.join("\n"))
}
