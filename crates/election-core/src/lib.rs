// Its example needs the runtime.
#![cfg_attr(feature = "runtime", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "runtime"), doc = "Leader election as a deterministic engine.")]
#![forbid(unsafe_code)]

pub mod calendar;
mod engine;
pub mod explain;
mod ids;
pub mod internals;
mod mirror;
mod paths;
pub mod record;
#[cfg(feature = "runtime")]
mod runtime;
mod slots;
pub mod strategy;
pub mod text;
mod time;

/// The pages elsewhere that describe this crate, so that their snippets are compiled.
#[cfg(all(doctest, feature = "runtime"))]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/from-curator.md")]
    struct FromCurator;
    #[doc = include_str!("../../../docs/from-kazoo.md")]
    struct FromKazoo;
}

pub use engine::{
    Confirm, Leftovers, Nomination, OnPause, Policy, Profile, QueueFormat, Reason, Recipe, Resumption, Role,
    SiteFailureLimit, Skipped, StopReason, TakeoverLimit, Unrest, fencing_token,
};
pub use ids::{Ballot, InvalidName, MemberId, SiteId};
pub use paths::Paths;
pub use record::Health;
#[cfg(feature = "runtime")]
pub use runtime::{
    AttributesTooLong, CampaignError, Candidate, Changes, Election, ElectionConfig, ElectionEvent,
    ElectionStatus, Ended, Failure, HandedOver, Handler, Latch, Leader, LeaderChange, Leaders, Leadership,
    MAX_ATTRIBUTES, RunError, StopBudgetTooLong, StopOrder, SwitchoverBlock,
};
pub use slots::Slots;
/// The sessions that elections run on, so that a program needs no crate beside this one.
#[cfg(feature = "runtime")]
pub use zk_session as session;
