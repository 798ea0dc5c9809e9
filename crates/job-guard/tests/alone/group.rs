//! A job of several processes whose worker or guards fail.

use std::time::Duration;

use crate::support::{
    STUBBORN, STUBBORN_PROCESSES, Tree, Worker, WorkerSetup, guards_of, name_of, send, wait_for,
};
use boot_time::BootTime;
use job_guard::{StateLock, sweep};
use nix::sys::signal::{Signal, kill};

const LEASE: Duration = Duration::from_secs(3);

const THREE: &[(&str, &str)] = &[("db", STUBBORN), ("app", STUBBORN), ("proxy", STUBBORN)];

/// A worker that runs three stubborn trees.
fn three(tree: &Tree) -> Worker {
    let mut setup = WorkerSetup::new(tree, "");
    (setup.lease, setup.processes, setup.lock_dir) = (LEASE, THREE, Some(tree.dir.path()));
    let worker = setup.start();
    wait_for("all processes of all of them", || tree.living().len() >= 3 * STUBBORN_PROCESSES);
    worker
}

#[test]
fn a_killed_worker_leaves_none_of_them() {
    let tree = Tree::new();
    let mut worker = three(&tree);
    let guards = guards_of(worker.pid());
    assert_eq!(guards.len(), 3);
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of all", || tree.is_gone());
    wait_for("the end of the guards", || guards.iter().all(|guard| name_of(*guard).is_none()));
}

#[test]
fn a_frozen_worker_loses_all_of_them_before_the_lease_ends() {
    let tree = Tree::new();
    let worker = three(&tree);
    worker.signal(Signal::SIGSTOP);
    wait_for("the end of the lease", || BootTime::now() >= worker.lease_until());
    assert_eq!(tree.living(), [], "they outlived the lease");
    worker.signal(Signal::SIGCONT);
    worker.expect("finished job orders was ended because its lease was not renewed");
}

#[test]
fn a_killed_guard_takes_its_process_with_it_and_the_job_ends() {
    for at in 0..3 {
        let tree = Tree::new();
        let worker = three(&tree);
        kill(guards_of(worker.pid())[at], Signal::SIGKILL).expect("a living guard");
        // It may not be restarted.
        worker.expect("finished job orders has failed: process ");
        assert!(tree.is_gone() && guards_of(worker.pid()).is_empty());
    }
}

#[test]
fn a_frozen_guard_saves_none_of_them_from_the_end_of_the_lease() {
    let tree = Tree::new();
    let mut worker = three(&tree);
    let guard = guards_of(worker.pid())[1];
    send(guard, Signal::SIGSTOP);
    worker.tell("starve -");
    worker.expect("starving");
    worker.expect("finished job orders was ended because its lease was not renewed");
    assert!(tree.is_gone());
}

#[test]
fn what_is_left_when_the_worker_and_all_guards_are_killed_is_ended_by_the_next_worker() {
    let tree = Tree::new();
    let mut worker = three(&tree);
    let guards = guards_of(worker.pid());
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        guards.iter().for_each(|guard| send(*guard, signal));
        worker.signal(signal);
    }
    worker.wait();
    wait_for("the end of the guards", || guards.iter().all(|guard| name_of(*guard).is_none()));
    let lock = StateLock::acquire(tree.dir.path(), "east-1").expect("the lock is free");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let by = BootTime::now() + Duration::from_secs(20);
    runtime.block_on(sweep(&crate::support::names().lock(lock), &[], by)).expect("all are ended");
    assert!(tree.is_gone());
}
