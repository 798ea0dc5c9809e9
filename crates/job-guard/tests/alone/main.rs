//! Jobs whose worker is killed or frozen. Their own program, in which one test runs at a time: the orphans of one test look
//! like those of another.

#[path = "../support/mod.rs"]
mod support;

mod group;
mod roles;
mod trees;
mod worker_faults;

/// The worker that tests kill and freeze: a process of this program.
#[test]
#[ignore = "a process of other tests"]
fn worker_process() {
    support::worker_process();
}
