//! The disk of the program hangs, and its pages are taken from memory: the guard ends its job all the same.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{
    PATIENCE, Tree, Worker, WorkerSetup, guards, hung_disk::HungDisk, memory_group::MemoryGroup, name_of,
    state_of, until, wait_for,
};
use job_guard::{OneShot, ReadyProbe, probe_once};
use nix::{sys::signal::Signal, unistd::Pid};

/// How a leadership ends in these tests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    WorkerKilled,
    /// Its worker is stopped, and no longer renews the lease.
    LeaseOver,
}

/// What happens to the disk and to memory.
#[derive(Clone, Copy, Debug)]
struct Fault {
    hangs: bool,
    reclaimed: bool,
}

/// Starts the program without the right to lock memory.
const WITHOUT_LOCKING: &[&str] =
    &["setpriv", "--bounding-set", "-ipc_lock", "prlimit", "--memlock=65536:65536", "--"];

/// One leadership that ends under this fault. Returns whether the job ended while the fault lasted.
fn ends(end: End, fault: Fault, prefix: &[&str]) -> Option<bool> {
    let disk = HungDisk::of(Path::new(env!("CARGO_BIN_EXE_job-guard")))?;
    let memory = MemoryGroup::new("hung")?;
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, "while :; do sleep 0.05; done");
    setup.guard_exe = Some(disk.program());
    setup.prefix = prefix;
    if end == End::LeaseOver {
        setup.lease = Duration::from_secs(3);
    }
    let worker = setup.start_in(|worker| memory.enter(worker));
    let guard = worker.guard();
    if end == End::LeaseOver {
        // Before the reclaim, which may take longer than a lease.
        worker.signal(Signal::SIGSTOP);
    }
    if fault.hangs {
        disk.hang();
    }
    if fault.reclaimed {
        memory.reclaim();
    }
    if end == End::WorkerKilled {
        worker.signal(Signal::SIGKILL);
    }
    let begun = Instant::now();
    // One that is not expected to end need not be waited for as long.
    let patience = if prefix.is_empty() { PATIENCE } else { Duration::from_secs(4) };
    while !tree.is_gone() && begun.elapsed() < patience {
        // Between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = tree.is_gone();
    eprintln!(
        "{end:?}, {fault:?}: ended: {ended}, after {:?}; {} reads wait",
        begun.elapsed(),
        disk.waiting()
    );
    disk.recover();
    wait_for("the end of the job", || tree.is_gone());
    wait_for("the end of the guard", || name_of(guard).is_none());
    drop::<Worker>(worker);
    Some(ended)
}

#[test]
fn a_hung_disk_does_not_keep_the_guard_from_ending_its_job() {
    for end in [End::WorkerKilled, End::LeaseOver] {
        for fault in [
            Fault { hangs: true, reclaimed: true },
            Fault { hangs: true, reclaimed: false },
            Fault { hangs: false, reclaimed: true },
        ] {
            let Some(ended) = ends(end, fault, &[]) else { return };
            assert!(ended, "{end:?}, {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_hangs_in_the_kernel_has_failed_and_is_not_started_again_before_it_has_ended() {
    let Some(disk) = HungDisk::of(Path::new("/bin/true")) else { return };
    let tree = Tree::new();
    let script = format!("echo begun >> begun; exec cat {} > /dev/null", disk.program().display());
    let check = ReadyProbe::Exec {
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script],
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
    };
    let guards = guards();
    let check = async || {
        let command = OneShot { working_dir: Some(tree.dir.path().to_owned()), ..OneShot::new("fitness") };
        tokio::time::timeout(PATIENCE, probe_once(&check, command, &guards)).await.expect("it returns")
    };
    disk.hang();
    for _ in 0..2 {
        let error = check().await.expect_err("the disk hangs");
        assert!(error.contains("did not end within") && error.contains("whether a disk"), "{error}");
    }
    assert_eq!(tree.lines("begun").len(), 1, "the second one was not started beside the first");
    assert!(disk.waiting() > 0, "it waits for the disk");
    disk.recover();
    let recovered = Instant::now();
    while let Err(error) = check().await {
        assert!(recovered.elapsed() < PATIENCE, "it passes again: {error}");
    }
}

/// A worker cancels a check and never repeats it, for example when a reload changes the check.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_waits_for_a_hung_one_is_cancelled_at_once_and_the_hung_one_ends_unasked() {
    let Some(disk) = HungDisk::of(Path::new("/bin/true")) else { return };
    let tree = Tree::new();
    let script = format!("echo $PPID $$ >> begun; exec cat {} > /dev/null", disk.program().display());
    let check = |timeout: Duration| OneShot {
        command: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        working_dir: Some(tree.dir.path().to_owned()),
        timeout,
        may_outlast: true,
        ..OneShot::new("fitness")
    };
    let guards = guards();
    disk.hang();
    let hung = check(Duration::from_secs(2)).run(&guards, std::future::pending()).await;
    assert!(hung.timed_out.is_some() && !hung.is_cancelled);
    let waits = check(10 * PATIENCE).run(&guards, std::future::ready(()));
    let cancelled = tokio::time::timeout(PATIENCE, waits).await.expect("it returns");
    let why = cancelled.exit.expect_err("the disk hangs");
    assert!(cancelled.is_cancelled && why.contains("whether a disk"), "{why}");
    let begun = tree.lines("begun");
    assert_eq!(begun.len(), 1, "the second one was not started");
    // The guard and the program.
    let pids = begun[0].split(' ').map(|pid| Pid::from_raw(pid.parse().expect("a pid"))).collect::<Vec<_>>();
    let are_there = || pids.iter().filter(|&&pid| state_of(pid).is_some()).count();
    assert_eq!(are_there(), 2);
    disk.recover();
    until("the end of both, which are reaped", || are_there() == 0).await;
}

/// As docs/processes.md says. It also shows that the fault of the test above keeps a guard from its work.
#[test]
fn a_guard_that_may_not_lock_its_memory_waits_for_the_disk() {
    for hangs in [true, false] {
        let fault = Fault { hangs, reclaimed: true };
        let Some(ended) = ends(End::WorkerKilled, fault, WITHOUT_LOCKING) else { return };
        assert_eq!(ended, !hangs, "{fault:?}");
    }
}
