// Its example needs the runtime.
#![cfg_attr(feature = "runtime", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "runtime"), doc = "Leader election as a deterministic engine.")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod calendar;
mod engine;
mod ids;
pub mod internals;
mod mirror;
mod paths;
mod record;
#[cfg(feature = "runtime")]
mod runtime;
mod slots;
pub mod strategy;
mod text;
mod time;

pub use paths::Paths;
#[cfg(feature = "runtime")]
pub use runtime::{Candidate, Election, ElectionConfig, Handler, Latch, Leaders, Leadership};
/// The sessions that elections run on, so that a program needs no crate beside this one.
#[cfg(feature = "runtime")]
pub use zk_session as session;

/// What an `ElectionConfig` consists of: the member, the recipe, and the policy.
pub mod config {
    pub use crate::{
        calendar::Windows,
        engine::{
            Confirm, Leftovers, OnPause, Policy, Profile, QueueFormat, Recipe, SiteFailureLimit,
            TakeoverLimit,
        },
        ids::{MemberId, SiteId},
    };
}

/// What the calls of a `Handler` take and return.
pub mod handler {
    #[cfg(feature = "runtime")]
    pub use crate::runtime::{ElectionEvent, Failure, StopOrder};
    pub use crate::{
        engine::{Appointment, StopReason},
        record::{Cause, Current, Phases},
    };
}

/// What a program learns about an election and its leaders, and reports about its member.
pub mod status {
    #[cfg(feature = "runtime")]
    pub use crate::runtime::{Changes, ElectionStatus, HandedOver, Leader, LeaderChange, SwitchoverBlock};
    pub use crate::{
        engine::{Reason, Resumption, Role, Skipped},
        ids::Ballot,
        record::{Current, Elected, Health, RoundTrips},
        slots::Slots,
    };
}

/// Why a call was refused, a wait ended, or a member's part in an election is over.
pub mod errors {
    #[cfg(feature = "runtime")]
    pub use crate::runtime::{
        AttributesTooLong, CampaignError, Ended, MAX_ATTRIBUTES, RunError, StopBudgetTooLong,
    };
    pub use crate::{engine::Unrest, ids::InvalidName};
}
