//! Jobs and their guards, without an election.

#[path = "../job_support/mod.rs"]
mod job_support;

mod freeze;
mod frozen_disk;
mod hooks;
mod hung_disk;
mod lifecycle;
mod liveness;
mod lock;
mod measure;
mod memory;
mod ready;

/// The worker that tests kill and freeze: a process of this program.
#[test]
#[ignore = "a process of other tests"]
fn worker_process() {
    job_support::worker_process();
}
