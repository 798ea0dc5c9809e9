#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod pipeline;
mod rules;
mod site_policy;
mod stage;
pub mod stages;
mod words;

pub use pipeline::Pipeline;
pub use rules::Rules;
pub use site_policy::{Failback, OnLeaderFailure, PolicyError, SitePolicy, Spread};
pub use stage::{Comparison, Filter, Standing};

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
