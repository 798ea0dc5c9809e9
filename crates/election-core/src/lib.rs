#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod engine;
pub mod ids;
pub mod paths;
pub mod record;
#[cfg(feature = "shell")]
pub mod shell;
pub mod strategy;
pub mod time;

pub use ids::{Ballot, MemberId, SiteId};
pub use time::{Now, Time};
