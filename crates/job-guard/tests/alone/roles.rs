//! A program that gets a deadline while it runs, and whose worker or guard then fails.

use std::path::Path;
use std::time::Duration;

use crate::support::{
    CgroupRoot, PATIENCE, STUBBORN, STUBBORN_PROCESSES, Tree, Worker, WorkerSetup, name_of, names, send,
    wait_for,
};
use boot_time::BootTime;
use job_guard::{LeftRun, StateLock, left_runs, sweep};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
    send(guard, Signal::SIGSTOP);
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
        send(pid, Signal::SIGSTOP);
    }
    let end = BootTime::now() + 2 * LEASE;
    wait_for("the end of the lease", || BootTime::now() > end);
    kill(guard, Signal::SIGCONT).expect("alive");
    wait_for("the end of the program", || tree.is_gone());
}

/// A program that outlives its worker, whose worker has been killed, with its guard.
fn left(tree: &Tree, state: &Path, cgroup: Option<&Path>) -> (Vec<Pid>, Pid) {
    let mut worker = outliving(tree, state, cgroup).start();
    let mut all = Vec::new();
    wait_for("all of the program's processes", || {
        all = lasting(tree);
        all.len() == STUBBORN_PROCESSES
    });
    let guard = worker.guard();
    worker.signal(Signal::SIGKILL);
    worker.wait();
    (all, guard)
}

fn outliving<'a>(tree: &'a Tree, state: &'a Path, cgroup: Option<&'a Path>) -> WorkerSetup<'a> {
    let mut setup = WorkerSetup::new(tree, STUBBORN);
    (setup.lease, setup.unarmed, setup.outlives) = (LEASE, true, true);
    (setup.lock_dir, setup.cgroup) = (Some(state), cgroup);
    setup
}

/// The processes that do not come and go: a nap lasts less than the pause between two looks. The name of one that has just been
/// started can change yet.
fn lasting(tree: &Tree) -> Vec<Pid> {
    let living = || tree.living().into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
    let mut all = living();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        let now = living();
        all.retain(|pid| now.contains(pid));
    }
    all
}

/// The next worker of the member does this before it starts anything.
fn lock_of_the_next(state: &Path) -> StateLock {
    let by = BootTime::now() + PATIENCE;
    runtime().block_on(StateLock::acquire_by(state, "east-1", by)).expect("the lock is free")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_program_that_outlives_its_worker_is_continued_by_each_next_one_and_ends_by_its_deadline() {
    let (tree, state) = (Tree::new(), tempfile::tempdir().expect("tempdir"));
    let (before, guard) = left(&tree, state.path(), None);
    let mut second = outliving(&tree, state.path(), None).start();
    second.signal(Signal::SIGKILL);
    second.wait();
    let mut third = outliving(&tree, state.path(), None).start();
    wait_for("the same processes", || lasting(&tree) == before);
    third.tell("arm leader");
    third.expect("armed");
    third.signal(Signal::SIGSTOP);
    wait_for("the end of the program", || tree.is_gone());
    let (now, until) = (BootTime::now(), third.lease_until());
    assert!(now < until, "it outlived the lease by {:?}", now.duration_since(until));
    third.signal(Signal::SIGCONT);
    third.expect("finished job orders was ended because its lease was not renewed");
    wait_for("the end of its guard", || name_of(guard).is_none());
}

#[test]
fn once_it_is_armed_it_ends_with_the_worker_that_has_continued_it() {
    let (tree, state) = (Tree::new(), tempfile::tempdir().expect("tempdir"));
    left(&tree, state.path(), None);
    let mut next = outliving(&tree, state.path(), None).start();
    next.tell("arm leader");
    next.expect("armed");
    next.signal(Signal::SIGKILL);
    next.wait();
    let lock = lock_of_the_next(state.path());
    assert!(tree.is_gone(), "the guard has the lock until then");
    assert!(runtime().block_on(left_runs(&names().lock(lock))).is_empty());
}

#[test]
fn a_guard_that_is_killed_under_the_next_worker_leaves_nothing_when_that_reports_the_end() {
    let cgroups = CgroupRoot::new("outlived");
    if cgroups.is_none() {
        zk_testkit::skip("no cgroup v2 can be made here: one case of two");
    }
    let roots = cgroups.iter().map(|root| Some(root.0.as_path()));
    for cgroup in roots.chain([None]) {
        let (tree, state) = (Tree::new(), tempfile::tempdir().expect("tempdir"));
        let (_, guard) = left(&tree, state.path(), cgroup);
        let mut next = outliving(&tree, state.path(), cgroup).start();
        next.tell("arm leader");
        next.expect("armed");
        next.tell("probe -");
        next.expect("running");
        kill(guard, Signal::SIGKILL).expect("a living guard");
        next.expect("finished");
        assert!(tree.is_gone(), "{:?}", tree.living());
    }
}

#[test]
fn a_program_that_no_worker_continues_is_asked_to_end_or_swept() {
    for is_asked in [true, false] {
        let (tree, state) = (Tree::new(), tempfile::tempdir().expect("tempdir"));
        let (before, guard) = left(&tree, state.path(), None);
        let guards = names().lock(lock_of_the_next(state.path()));
        let by = BootTime::now() + PATIENCE;
        runtime().block_on(async {
            let found = left_runs(&guards).await;
            assert_eq!(found.iter().map(LeftRun::job).collect::<Vec<_>>(), ["orders"]);
            sweep(&guards, &found, by).await.expect("nothing else is left");
            wait_for("the same processes: it is left alone", || lasting(&tree) == before);
            for run in found {
                if is_asked {
                    run.stop(BootTime::now() + LEASE).await;
                    assert!(tree.is_gone());
                }
            }
            sweep(&guards, &[], by).await.expect("it has ended");
        });
        assert!(tree.is_gone());
        wait_for("the end of its guard", || name_of(guard).is_none());
    }
}

#[test]
fn a_program_whose_guard_is_killed_while_it_has_no_worker_ends_and_is_swept() {
    let (tree, state) = (Tree::new(), tempfile::tempdir().expect("tempdir"));
    let (_, guard) = left(&tree, state.path(), None);
    kill(guard, Signal::SIGKILL).expect("a living guard");
    let guards = names().lock(lock_of_the_next(state.path()));
    runtime().block_on(async {
        assert!(left_runs(&guards).await.is_empty());
        sweep(&guards, &[], BootTime::now() + PATIENCE).await.expect("it is marked");
    });
    assert!(tree.is_gone());
}
