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

/// Leaves the processor to the tests beside this one, which measure time: this thread and those that it starts compute
/// for a minute.
fn give_way() {
    let _ = rustix::process::nice(19);
}
