// Its example needs the shell.
#![cfg_attr(feature = "shell", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "shell"), doc = "Leader election as a deterministic engine.")]
#![forbid(unsafe_code)]

pub mod calendar;
pub mod engine;
pub mod ids;
pub mod paths;
pub mod record;
#[cfg(feature = "shell")]
pub mod shell;
pub mod strategy;
pub mod time;

/// What is said of this crate elsewhere, for its snippets to be compiled.
#[cfg(all(doctest, feature = "shell"))]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/from-curator.md")]
    struct FromCurator;
    #[doc = include_str!("../../../docs/from-kazoo.md")]
    struct FromKazoo;
}

pub use ids::{Ballot, MemberId, SiteId};
pub use time::{Now, Time};
