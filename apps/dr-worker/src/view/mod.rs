//! What is shown of an election: the same for `list`, `history` and the HTTP endpoints.

mod access;
mod cluster;
mod explained;
mod history;
mod problems;
mod simulated;

pub(crate) use access::problem as access_problem;
pub use cluster::{
    Cluster, Leader, Member, MemberRole, OpenRequest, SlotRow, Standing, Unreadable, UnwellSite,
};
pub use explained::{
    AheadOf, Candidate, CurrentLeader, Explained, ExplainedSlot, InTheWay, NextStep, Proposed, hold_of,
    other_policy,
};
pub use history::{History, HistoryRow};
pub use problems::{GhostRow, ProblemRow};
pub use simulated::{Decision, Simulated, SimulatedSlot, WhatIf, Who};
