//! A program that gets a deadline while it runs, and whose worker or guard then fails.

use std::time::Duration;

use crate::support::{STUBBORN, STUBBORN_PROCESSES, Tree, Worker, WorkerSetup, name_of, wait_for};
use boot_time::BootTime;
use nix::sys::signal::{Signal, kill};

const LEASE: Duration = Duration::from_secs(2);

/// A worker with a program that has no deadline.
fn unarmed(tree: &Tree) -> Worker {
    let mut setup = WorkerSetup::new(tree, STUBBORN);
    (setup.lease, setup.unarmed) = (LEASE, true);
    let worker = setup.start();
    wait_for("all of the program's processes", || tree.living().len() >= STUBBORN_PROCESSES);
    worker
}

fn armed(tree: &Tree) -> Worker {
    let mut worker = unarmed(tree);
    worker.tell("arm leader");
    worker.expect("armed");
    worker
}

#[test]
fn a_program_without_a_deadline_outlives_a_frozen_worker_and_not_a_killed_one() {
    let tree = Tree::new();
    let mut worker = unarmed(&tree);
    worker.signal(Signal::SIGSTOP);
    let end = BootTime::now() + 2 * LEASE;
    wait_for("the end of any lease", || {
        assert!(!tree.is_gone(), "it has no lease");
        BootTime::now() > end
    });
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the program", || tree.is_gone());
}

#[test]
fn once_it_is_armed_a_frozen_worker_loses_its_program_before_the_lease_ends() {
    let tree = Tree::new();
    let worker = armed(&tree);
    worker.signal(Signal::SIGSTOP);
    wait_for("the end of the program", || tree.is_gone());
    let (now, until) = (BootTime::now(), worker.lease_until());
    assert!(now < until, "it outlived the lease by {:?}", now.duration_since(until));
    worker.signal(Signal::SIGCONT);
    worker.expect("finished job orders was ended because its lease was not renewed");
}

#[test]
fn a_worker_that_is_killed_while_the_role_changes_leaves_no_process() {
    let tree = Tree::new();
    let mut worker = armed(&tree);
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the program", || tree.is_gone());
}

#[test]
fn a_guard_that_is_killed_while_the_role_changes_takes_the_program_with_it_and_it_is_not_restarted() {
    let tree = Tree::new();
    let worker = armed(&tree);
    kill(worker.guard(), Signal::SIGKILL).expect("a living guard");
    wait_for("the end of the program", || tree.is_gone());
    worker.expect("finished job orders ended while it changed its role");
}

#[test]
fn a_guard_that_does_not_confirm_the_deadline_arms_nothing_and_the_stop_ends_the_tree() {
    let tree = Tree::new();
    let mut worker = unarmed(&tree);
    let guard = worker.guard();
    kill(guard, Signal::SIGSTOP).expect("a living guard");
    worker.tell("arm leader");
    worker.expect("not armed its guard has not confirmed the deadline");
    worker.tell("stop 1000");
    worker.expect("stopped");
    assert!(tree.is_gone() && name_of(guard).is_none());
}

#[test]
fn worker_and_guard_frozen_and_woken_past_the_lease_the_program_is_killed_at_once() {
    let tree = Tree::new();
    let mut worker = armed(&tree);
    worker.tell("probe -");
    worker.expect("running");
    let guard = worker.guard();
    for pid in [worker.pid(), guard] {
        kill(pid, Signal::SIGSTOP).expect("alive");
    }
    let end = BootTime::now() + 2 * LEASE;
    wait_for("the end of the lease", || BootTime::now() > end);
    kill(guard, Signal::SIGCONT).expect("alive");
    wait_for("the end of the program", || tree.is_gone());
}
