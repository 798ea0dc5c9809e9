//! `--dry-run`: who would lead after a command, and why, by the elector's own code. Nothing is written.

use election_admin::Snapshot;
use serde::Serialize;

use super::{
    output::{self, Output},
    simulate::slot_lines,
};
use crate::{
    commands::Operator,
    error::Error,
    view::{Candidate, Explained, ExplainedSlot, Simulated, WhatIf},
    wall::unix_ms,
};

/// What is printed as JSON.
#[derive(Serialize)]
struct DryRunReport<'a> {
    /// The command.
    dry_run: &'a str,
    /// What the elector would do next.
    next: &'a str,
    /// Of a move: the orders that `explain` shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    orders: Vec<SlotOrders<'a>>,
    #[serde(flatten)]
    simulated: &'a Simulated,
}

/// The orders in which members follow, of a slot.
#[derive(Serialize)]
struct SlotOrders<'a> {
    slot: usize,
    if_lost: &'a [Candidate],
    switchover: &'a [Candidate],
}

/// Shows what follows from a snapshot as the command `what` would make it. Of a move also the orders from which it chooses.
pub(super) fn show(
    operator: &Operator,
    job: &str,
    what: &str,
    changed: &Snapshot,
    is_move: bool,
    how: Output,
) -> Result<(), Error> {
    let (config, at) = (&operator.config, unix_ms());
    let mut simulated = Simulated::new(job, changed, WhatIf::default(), config, config, at);
    let explained = Explained::new(job, changed, config, at);
    let next = explained.next.sentence.as_str();
    let slots = || explained.slots.iter().filter(|_| is_move);
    if how == Output::Json {
        return output::print_json(&DryRunReport {
            dry_run: what,
            next,
            orders: slots()
                .map(|ExplainedSlot { slot, if_lost, switchover, .. }| SlotOrders {
                    slot: *slot,
                    if_lost,
                    switchover,
                })
                .collect(),
            simulated: &simulated,
        });
    }
    let mut lines = vec![format!("{job}: dry run of {what}; nothing is written")];
    let several = simulated.slots.len() > 1;
    for slot in slots() {
        let about = if several { format!("slot {}: ", slot.slot) } else { String::new() };
        lines.extend(slot.order_lines().into_iter().map(|line| format!("  {about}{line}")));
    }
    // Otherwise a decision or an obstacle has the reason.
    if simulated.unchanged && simulated.slots.iter().all(|slot| slot.obstacles.is_empty()) {
        lines.push(format!("  now: {next}"));
    }
    for slot in &mut simulated.slots {
        // It is asked after the command, and about other moves.
        slot.question = None;
    }
    for slot in &simulated.slots {
        lines.extend(slot_lines(&simulated.election, slot, several));
    }
    lines.extend(simulated.notes.iter().map(|note| format!("  {note}")));
    output::print_text(&lines.join("\n"))
}
