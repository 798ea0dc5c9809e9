//! The model checker finds a failure without each rule.

// As the modules of the model name it.
extern crate election_mutants as election_core;

#[allow(dead_code, reason = "the simulation uses the rest")]
#[path = "../it/invariants/mod.rs"]
mod invariants;
#[allow(dead_code, reason = "`build.rs` uses the rest")]
mod mutations;
#[allow(dead_code, reason = "the simulation uses the rest")]
#[path = "../it/strategy.rs"]
mod strategy;
#[allow(dead_code, reason = "the simulation uses the rest")]
#[path = "../it/zookeeper.rs"]
mod zookeeper;

/// That of election-core's tests, on the mutated engine.
#[path = "../it/model"]
mod model {
    mod calm;
    mod canon;
    mod election;
    #[path = "../../mutants/mutants.rs"]
    mod mutants;
    mod narrate;
    mod process;
    mod runs;
    mod server;
    mod settings;
    mod standby;
    mod steps;
    mod stopwatch;
    mod world;
}
