//! Jobs and their guards, with real processes.

#[path = "../support/mod.rs"]
mod support;

mod freeze;
mod frozen_disk;
mod group;
mod hung_disk;
mod lifecycle;
mod liveness;
mod lock;
mod memory;
mod program;
mod ready;
mod roles;

/// The worker that tests kill and freeze: a process of this program.
#[test]
#[ignore = "a process of other tests"]
fn worker_process() {
    support::worker_process();
}
