//! The views of an election: the same for the command line and the HTTP endpoints.

mod access;
mod changes;
mod cluster;
mod diagnosis;
mod explained;
mod history;
mod problems;
mod restartable;
mod simulated;
pub(crate) mod statuses;

pub(crate) use access::problem as access_problem;
pub use changes::Change;
pub use cluster::{Cluster, Member, MemberRole, OpenRequest, UnwellSite, absence};
pub(crate) use cluster::{is_absent, led};
pub use diagnosis::diagnose;
pub use explained::{Candidate, Explained, ExplainedSlot, hold_of, other_policy};
pub use history::History;
pub(crate) use problems::disagreement;
pub use problems::{GhostRow, ProblemRow};
#[cfg(test)]
pub(crate) use restartable::tests::{NOW_MS, snapshot as sample};
pub use restartable::{Hindrance, Restartable};
pub use simulated::{Simulated, SimulatedSlot, WhatIf};
pub use statuses::{PlannedStop, ProcessRow, StandbyRow};
