#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod fair_share;
pub mod meter;
mod needs;
pub mod other_jobs;
mod own;
mod peers;
mod pipeline;
pub mod published;
pub mod registry;
pub mod settings;
mod site_policy;
pub mod spec;
mod stage;
pub mod stages;
mod steadiness;
pub mod testing;
mod types;
mod whole;
mod words;

pub use fair_share::FairShare;
pub use own::{OwnStage, OwnStrategy};
pub use pipeline::Pipeline;
pub use registry::Registry;
pub use settings::SpecError;
pub use site_policy::{AutoMoves, BelowSiteMinimum, OnLeaderFailure, SitePolicy, SlotSpread};
pub use spec::PolicySpec;
pub use stage::{Comparison, Filter, Stage, Standing};
pub use steadiness::Steadiness;
