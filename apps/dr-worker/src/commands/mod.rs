//! What operators do to an election, and what is checked before: the same for the command line and the HTTP endpoints.

pub(crate) mod contest;
pub(crate) mod drill;
mod election;
pub(crate) mod evacuation;
pub(crate) mod job_requests;
pub(crate) mod moves;
pub(crate) mod operation;
pub(crate) mod operations;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod requested;
pub(crate) mod servers;
mod sites;
pub(crate) mod standing;

pub(crate) use election::{Operator, Which, asker, which_job};
pub(crate) use sites::check_sites;
