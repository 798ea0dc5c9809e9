//! The engine in a model checker: every state that can be reached with a bounded number of faults, and of events out of
//! order.
//!
//! `docs/model.md` describes what is modelled, how time passes, and in which orders events happen.

mod calm;
mod canon;
mod election;
mod narrate;
mod process;
mod published;
mod runs;
mod server;
mod settings;
mod standby;
mod steps;
mod stopwatch;
mod world;

use runs::{MOST, chosen, hold, short};

#[test]
fn every_promise_holds() {
    hold(short(), MOST);
}

/// `cargo xtask model`.
#[test]
#[ignore = "takes half an hour"]
fn every_run() {
    let (settings, most) = chosen();
    hold(settings, most);
}
