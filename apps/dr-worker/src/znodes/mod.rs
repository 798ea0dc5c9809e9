//! What only workers write: below an election overlays of the configuration, drills, and that a leader's program is halted;
//! beside the elections evacuations; and what a member publishes of its standby.

#[cfg(test)]
mod bounds_tests;
mod drill;
pub(crate) mod drills;
mod evacuation;
mod halted;
mod overlay;
pub(crate) mod overlays;
mod paths;
#[cfg(test)]
mod reference;
mod standby_report;

use election_core::internals::text::shorten;

pub use drill::{DrillAnswer, DrillMode, DrillOrder, DrillOutage, DrillProbes, DrillState, DrillStep};
pub use evacuation::{Evacuation, EvacuationLeader, EvacuationState, EvacuationStep};
pub use halted::{Halted, HaltedProgram};
pub use overlay::{NewOverlay, Overlay};
pub(crate) use paths::{PLANS, WorkerPaths};
pub(crate) use standby_report::{STANDBY_ATTRIBUTE, StandbyReport};

/// The beginning of a text, of this many bytes at most.
fn shortened(text: &str, most: usize) -> String {
    let mut text = text.to_owned();
    shorten(&mut text, most);
    text
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The children of an election that [`election_admin::forget`] finds beside its own.
pub(crate) const PARTS: [&str; 3] = ["config", "drill", "halted"];
