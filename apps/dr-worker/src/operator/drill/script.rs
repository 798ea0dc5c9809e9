//! What a drill does, and who takes part.

use std::time::Duration;

use crate::znodes::DrillMode;
use election_core::{config::MemberId, internals::record::Target};

use super::seen::Leader;

/// What the drill does, and who takes part.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) job: String,
    pub(super) mode: DrillMode,
    /// Who may take over.
    pub(super) to: Target,
    /// The leader at the beginning.
    pub(super) from: Leader,
    /// The members that must agree, and carry it out.
    pub(super) carriers: Vec<MemberId>,
    /// Whether the job is moved back.
    pub(super) back: bool,
    /// How long the new leader serves before the drill goes on.
    pub(super) stay: Duration,
    /// How long the drill may take.
    pub(super) limit: Duration,
    /// How long the members may take to agree.
    pub(super) agree_within: Duration,
    /// How long they probe before something happens.
    pub(super) baseline: Duration,
    /// When it began, in milliseconds since the Unix epoch.
    pub(super) started_ms: u64,
}
