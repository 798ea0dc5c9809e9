//! An operator's commands to elections: read them, file requests, change standing orders, and force steps.
//!
//! A function that takes a [`Session`](zk_session::Session) waits until that is [active](zk_session::Session::active), which
//! can take as long as no server answers: bound it by a timeout. After that, each of its operations ends within the operation
//! timeout of the session, and what ZooKeeper refuses is an error at once. [`JobRequests`] is for a leader: it tries again
//! until the session is closed.

mod breadcrumbs;
mod contests;
pub mod drills;
mod error;
mod force;
pub mod forget;
mod ghosts;
mod job_requests;
mod observer;
pub mod orders;
mod outline;
pub mod overlays;
mod problems;
mod requests;
pub mod roster;
mod servers;

pub use breadcrumbs::{change_breadcrumbs, forget_breadcrumbs};
pub use error::OperatorError;
pub use force::{Raised, force, raise_tokens, vacate};
pub use ghosts::{Ghost, remove_ghost};
pub use job_requests::{JobNews, JobRequests, Leading};
pub use observer::{Decision, LeaderZnode, Observer, Snapshot};
pub use problems::{OldDecision, Problem};
pub use requests::{
    ELECTOR_PATIENCE, Withdrawal, ask, cancel, file, filed, follow, hindrance, new_request, request,
};
pub use servers::{Disagreement, compare_servers};

pub use crate::{
    engine::{Forgotten, Released},
    runtime::{ReadError, layout::Layout},
};
