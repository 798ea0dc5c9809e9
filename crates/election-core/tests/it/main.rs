//! The engine without a server: played from scripts, simulated from seeds, in crowds, and in a model checker.

mod crowd;
mod invariants;
mod model;
mod mutations;
mod script;
mod sim;
mod simulation;
mod strategy;
mod transcripts;
#[allow(dead_code, reason = "the world of policies uses the rest")]
mod zookeeper;
