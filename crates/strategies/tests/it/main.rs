//! The strategies, alone and under the engine.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod fair_share;
mod flapping;
mod own;
mod properties;
mod purity;
mod spec;
mod transcripts;
