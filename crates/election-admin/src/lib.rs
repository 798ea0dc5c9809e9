#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod breadcrumbs;
mod change;
mod contests;
mod error;
mod force;
pub mod forget;
mod ghosts;
mod job_requests;
mod known;
pub mod moving;
mod observer;
pub mod orders;
mod outline;
mod problems;
pub mod record;
mod requests;
pub mod roster;
mod servers;

pub use breadcrumbs::{change_breadcrumbs, forget_breadcrumbs};
pub use change::Attempts;
pub use error::{AdminError, Hindrance, OpenRequest, Refusal};
pub use force::{Raised, force, raise_tokens, vacate};
pub use ghosts::{Ghost, remove_ghost};
pub use job_requests::{JobNews, JobRequests, Leading, StandingBy};
pub use known::{Known, KnownDecision};
pub use observer::{Decision, LeaderZnode, Observer, Snapshot};
pub use problems::{OldDecision, Problem};
pub use requests::{
    ELECTOR_PATIENCE, Withdrawal, ask, cancel, file, filed, filing, follow, hindrance, new_request, request,
};
pub use servers::{Disagreement, compare_servers};

pub use election_core::internals::{Forgotten, Layout, NotNow, ReadError, Released};
