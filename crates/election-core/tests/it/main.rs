//! The engine without a server: played from scripts, simulated from seeds, in crowds, and in a model checker.

mod crowd;
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "the model uses the rest"))]
mod invariants;
#[cfg(feature = "mutants")]
mod model;
mod script;
mod sim;
mod simulation;
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "the model uses the rest"))]
mod strategy;
mod transcripts;
#[allow(dead_code, reason = "the world of policies uses the rest")]
mod zookeeper;
