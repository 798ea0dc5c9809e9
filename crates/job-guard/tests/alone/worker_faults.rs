//! Whatever happens to the worker or to the guard, nothing of the job outlives the lease.

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{
    CgroupRoot, PATIENCE, STUBBORN, STUBBORN_PROCESSES, Tree, Worker, WorkerSetup, children_of, guards_of,
    name_of, names, programs_for_all, send, wait_for,
};
use boot_time::BootTime;
use job_guard::{StateLock, sweep};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use rustix::fs::{MemfdFlags, inotify, memfd_create};

/// Kills a worker and its guard so that neither sees the other's end. The guard is killed first: the kernel continues a
/// stopped process whose group is orphaned by the end of its parent.
fn kill_together(worker: &mut Worker) {
    let guard = worker.guard();
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        send(guard, signal);
        worker.signal(signal);
    }
    worker.wait();
    wait_for("the end of the guard", || name_of(guard).is_none());
}

fn wait_for_the_whole_tree(tree: &Tree) {
    wait_for("all of the job's processes", || tree.living().len() >= STUBBORN_PROCESSES);
}

#[test]
fn a_worker_that_is_killed_leaves_no_process_of_its_job() {
    let tree = Tree::new();
    let mut worker = WorkerSetup::new(&tree, STUBBORN).start();
    wait_for_the_whole_tree(&tree);
    let guard = worker.guard();

    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the job, long before that of the lease of a minute", || tree.is_gone());
    wait_for("the end of the guard", || name_of(guard).is_none());
}

#[test]
fn a_worker_that_is_killed_lets_its_job_end_gently() {
    let tree = Tree::new();
    let script = "trap 'echo asked > asked; exit' TERM; echo > up; while :; do sleep 0.02; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.stop_timeout = Duration::from_secs(10);
    let mut worker = setup.start();
    wait_for("its trap", || tree.file("up").exists());
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the job", || tree.is_gone());
    assert_eq!(tree.read("asked"), "asked\n");
}

/// More than a pipe holds, so it can't be written without a reader.
const MUCH: &str = "head -c 300000 /dev/zero | tr '\\0' x | fold -w 100";

#[test]
fn a_job_that_writes_in_the_midst_of_its_end_survives_the_death_of_its_worker() {
    let tree = Tree::new();
    let script = format!(
        "trap 'echo asked; {MUCH} >&2; echo; echo farewell; echo > done; exit' TERM; echo > up; while :; do sleep 0.02; done"
    );
    let log = tree.file("log");
    let mut setup = WorkerSetup::new(&tree, &script);
    setup.stop_timeout = Duration::from_secs(20);
    setup.stderr = Some(&log);
    let mut worker = setup.start();
    wait_for("its trap", || tree.file("up").exists());
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the job", || tree.is_gone());
    assert!(tree.file("done").exists(), "it was ended by what it wrote");
    wait_for("its last words on the worker's standard error", || tree.read("log").contains("\nfarewell\n"));
    assert!(tree.read("log").contains("asked\n"));
}

#[test]
fn a_job_that_writes_is_not_held_up_by_a_frozen_worker() {
    let tree = Tree::new();
    // Piece by piece, so that the guard passes them on one at a time: of the third there is room for a part.
    let pieces = "for i in 1 2 3 4; do head -c 24000 /dev/zero; sleep 0.1; done";
    let script = format!(
        "until [ -e go ]; do sleep 0.02; done; {pieces}; {MUCH}; {MUCH} >&2; echo > done; exec sleep 1000"
    );
    let worker = WorkerSetup::new(&tree, &script).start();
    worker.signal(Signal::SIGSTOP);
    std::fs::write(tree.file("go"), "").expect("a file");
    wait_for("all that it writes, long before the end of its lease of a minute", || {
        tree.file("done").exists()
    });
    assert!(!tree.is_gone());
}

#[test]
fn a_worker_that_is_frozen_loses_its_job_before_the_lease_ends() {
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.lease = Duration::from_secs(2);
    let worker = setup.start();
    wait_for_the_whole_tree(&tree);

    worker.signal(Signal::SIGSTOP);
    wait_for("the end of the job", || tree.is_gone());
    let now = BootTime::now();
    let until = worker.lease_until();
    assert!(now < until, "the job outlived its lease by {:?}", now.duration_since(until));

    worker.signal(Signal::SIGCONT);
    worker.expect("finished job orders was ended because its lease was not renewed");
}

#[test]
fn a_lease_that_is_renewed_keeps_the_job() {
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, "while :; do sleep 0.05; done");
    setup.lease = Duration::from_millis(1500);
    let mut worker = setup.start();
    let first_end = worker.lease_until();
    wait_for("the end of the first lease and another", || {
        assert!(!tree.is_gone(), "the job was ended under a good lease");
        BootTime::now() > first_end + setup.lease
    });
    worker.tell("stop 5000");
    worker.expect("stopped");
    assert!(tree.is_gone());
}

#[test]
fn all_frozen_past_the_lease_and_woken_the_job_is_killed_at_once() {
    let tree = Tree::new();
    // It would do something harmful every few milliseconds, and go on if it were asked.
    let script = "trap 'echo > asked' TERM; while :; do date +%s%N >> acts; sleep 0.01; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lease = Duration::from_secs(3);
    setup.stop_timeout = Duration::from_secs(1);
    let worker = setup.start();
    wait_for("an act", || !tree.read("acts").is_empty());
    let guard = worker.guard();
    // The guard first: else it would see what the others no longer do.
    let mut frozen = vec![guard, worker.pid()];
    for &pid in &frozen {
        send(pid, Signal::SIGSTOP);
    }
    // The shell may fork while it is being frozen.
    wait_for("a frozen job", || {
        for (pid, _) in tree.living() {
            if !frozen.contains(&pid) && kill(pid, Signal::SIGSTOP).is_ok() {
                frozen.push(pid);
            }
        }
        let acts = tree.lines("acts").len();
        // Whether all stand still shows only over some time; if not yet, it is looked again.
        std::thread::sleep(Duration::from_millis(50));
        tree.lines("acts").len() == acts
    });
    wait_for("the end of the lease", || BootTime::now() > worker.lease_until());
    assert!(!tree.is_gone());

    for pid in frozen {
        let _ = kill(pid, Signal::SIGCONT);
    }
    wait_for("the end of the job", || tree.is_gone());
    assert!(!tree.file("asked").exists(), "asked instead of killed");
    worker.expect("finished job orders was ended because its lease was not renewed");
}

#[test]
fn a_guard_that_is_killed_takes_the_job_with_it() {
    let tree = Tree::new();
    let worker = WorkerSetup::new(&tree, STUBBORN).start();
    wait_for_the_whole_tree(&tree);
    kill(worker.guard(), Signal::SIGKILL).expect("kill the guard");
    let word = worker.expect("finished job orders has failed: its guard was lost");
    assert!(tree.is_gone(), "{word}, but these live: {:?}", tree.living());
}

#[test]
fn what_a_killed_guard_has_left_to_the_worker_is_ended_by_it() {
    let tree = Tree::new();
    let worker = WorkerSetup::new(&tree, STUBBORN).start();
    wait_for_the_whole_tree(&tree);
    let guard = worker.guard();
    // By the time the worker sees it, the job's processes have long changed their parent.
    worker.signal(Signal::SIGSTOP);
    kill(guard, Signal::SIGKILL).expect("kill the guard");
    wait_for("the end of the guard", || name_of(guard).is_none());
    assert!(!tree.is_gone(), "nothing is left to end");
    worker.signal(Signal::SIGCONT);
    worker.expect("finished job orders has failed: its guard was lost");
    assert!(tree.is_gone(), "these live: {:?}", tree.living());
}

#[test]
fn without_descriptors_a_job_is_not_said_to_be_gone() {
    let root = CgroupRoot::new("descriptors");
    for cgroup in [None, root.as_ref()] {
        let tree = Tree::new();
        let mut setup = WorkerSetup::new(&tree, STUBBORN);
        setup.cgroup = cgroup.map(|root| root.0.as_path());
        let mut worker = setup.start();
        wait_for_the_whole_tree(&tree);
        let guard = worker.guard();
        worker.tell("exhaust it");
        worker.expect("has no descriptors left");
        // As above: what is left has come to the worker by the time it looks.
        worker.signal(Signal::SIGSTOP);
        kill(guard, Signal::SIGKILL).expect("kill the guard");
        wait_for("the end of the guard", || name_of(guard).is_none());
        worker.signal(Signal::SIGCONT);
        worker.expect("finished job orders has failed: its guard was lost");
        assert!(tree.is_gone(), "these live: {:?}", tree.living());
    }
}

const CHAIN: &str = "echo x >> acts; [ -e halt ] || setsid sh ./chain &";

/// Each process starts the next one and ends, so that what one look finds alive may be dead at the next, and
/// its child has come to the worker in between.
#[test]
fn a_chain_that_forks_and_exits_is_ended_however_it_is_looked_at() {
    for round in 0..20 {
        let tree = Tree::new();
        std::fs::write(tree.file("chain"), CHAIN).expect("written");
        let mut setup = WorkerSetup::new(&tree, "sh ./chain; exec sleep 1000");
        setup.stop_timeout = Duration::from_millis(100);
        let worker = setup.start();
        wait_for("the chain", || tree.lines("acts").len() > 20);
        kill(worker.guard(), Signal::SIGKILL).expect("kill the guard");
        worker.expect("finished job orders has failed: its guard was lost");
        let acts = tree.lines("acts").len();
        let living = tree.living();
        std::fs::write(tree.file("halt"), "").expect("written");
        assert!(living.is_empty(), "round {round}: {acts} acts, and these live: {living:?}");
        assert_eq!(tree.lines("acts").len(), acts, "round {round}");
        wait_for("no zombies", || children_of(worker.pid()).is_empty());
    }
}

/// The dead of a frozen guard are reaped by nobody, so that each look would take longer than the one before.
#[test]
fn a_chain_does_not_outrun_the_end_of_a_frozen_guard() {
    for round in 0..3 {
        let tree = Tree::new();
        let chain = "echo x >> acts; [ -e halt ] || setsid sh ./chain & setsid sh -c 'echo y >> acts' &";
        std::fs::write(tree.file("chain"), chain).expect("written");
        let mut setup = WorkerSetup::new(&tree, "sh ./chain & sh ./chain & sh ./chain; exec sleep 1000");
        setup.stop_timeout = Duration::from_secs(1);
        let mut worker = setup.start();
        wait_for("the chains", || tree.lines("acts").len() > 20);
        send(worker.guard(), Signal::SIGSTOP);
        let frozen = tree.lines("acts").len();
        wait_for("many dead", || tree.lines("acts").len() > frozen + 200);
        worker.tell("stop 2000");
        worker.expect("stopped");
        let living = tree.living();
        std::fs::write(tree.file("halt"), "").expect("written");
        assert!(living.is_empty(), "round {round}: these live: {living:?}");
    }
}

#[test]
fn worker_and_guard_killed_together_take_the_jobs_program_with_them() {
    let tree = Tree::new();
    let mut worker = WorkerSetup::new(&tree, "exec sleep 1000").start();
    kill_together(&mut worker);
    wait_for("the end of the program", || tree.is_gone());
}

#[test]
fn a_guard_that_is_frozen_does_not_hold_up_a_stop() {
    let tree = Tree::new();
    let mut worker = WorkerSetup::new(&tree, STUBBORN).start();
    wait_for_the_whole_tree(&tree);
    let guard = worker.guard();
    send(guard, Signal::SIGSTOP);
    let began = BootTime::now();
    worker.tell("stop 20000");
    worker.expect("stopped");
    assert!(tree.is_gone(), "said to be stopped, but these live: {:?}", tree.living());
    let took = BootTime::now().duration_since(began);
    assert!(took < Duration::from_secs(20) / 2, "all the time that it was given: {took:?}");
    assert_eq!(name_of(guard), None, "the guard is ended too");
}

#[test]
fn a_guard_that_is_frozen_does_not_cost_the_job_its_gentle_end() {
    let tree = Tree::new();
    let script = "trap 'echo asked > asked; exit' TERM; echo > up; while :; do sleep 0.02; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.stop_timeout = Duration::from_secs(2);
    let mut worker = setup.start();
    wait_for("its trap", || tree.file("up").exists());
    send(worker.guard(), Signal::SIGSTOP);
    worker.tell("stop 5000");
    worker.expect("stopped");
    assert_eq!(tree.read("asked"), "asked\n");
    assert!(tree.is_gone());
}

#[test]
fn a_guard_that_is_frozen_does_not_save_the_job_from_the_end_of_the_lease() {
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.lease = Duration::from_secs(2);
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    send(worker.guard(), Signal::SIGSTOP);
    worker.tell("starve it");
    worker.expect("starving");
    wait_for("the end of the job", || tree.is_gone());
    let now = BootTime::now();
    let until = worker.lease_until();
    assert!(now < until, "the job outlived its lease by {:?}", now.duration_since(until));
    worker.expect("finished job orders was ended because its lease was not renewed");
}

#[test]
fn a_guard_that_thaws_heeds_the_renewals_that_it_has_not_read_yet() {
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.lease = Duration::from_secs(2);
    let worker = setup.start();
    let guard = worker.guard();
    send(guard, Signal::SIGSTOP);
    let last_heard = worker.lease_until();
    wait_for("the end of the last lease that it knows", || BootTime::now() > last_heard);
    kill(guard, Signal::SIGCONT).expect("thaw the guard");
    let thawed = BootTime::now();
    wait_for("another lease", || BootTime::now() > thawed + setup.lease);
    assert!(!tree.is_gone(), "a renewal that was in time was overlooked");
    assert_eq!(guards_of(worker.pid()), [guard]);
}

#[test]
fn the_lock_is_released_only_when_the_tree_is_gone() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.lock_dir = Some(state.path());
    setup.stop_timeout = Duration::from_millis(700);
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    worker.signal(Signal::SIGKILL);
    worker.wait();

    let mut refusals = 0;
    wait_for("the lock", || {
        let was_gone = tree.is_gone();
        match StateLock::acquire(state.path(), "east-1") {
            Ok(_) => {
                assert!(tree.is_gone(), "locked by us, while these live: {:?}", tree.living());
                true
            }
            Err(error) => {
                refusals += 1;
                let words = error.to_string();
                assert!(words.contains("guard"), "{words}");
                assert!(!was_gone || refusals < 1000, "nothing lives, yet it is locked");
                false
            }
        }
    });
    assert!(refusals > 0, "the guard did not hold the lock");
}

#[test]
fn a_job_in_a_cgroup_is_ended_with_it() {
    let Some(root) = CgroupRoot::new("end") else {
        return zk_testkit::skip("there is no cgroup v2 in which this user may make one");
    };
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.cgroup = Some(&root.0);
    std::fs::create_dir_all(root.0.join("job-orders/of/an-earlier-run")).expect("made");
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    assert!(!root.0.join("job-orders/of").exists(), "it is another cgroup");
    // As the job can.
    std::fs::create_dir_all(root.0.join("job-orders/of/the/job")).expect("made");
    // Before the cgroup is read, for the naps come and go.
    let living = tree.living();
    let inside = std::fs::read_to_string(root.0.join("job-orders/cgroup.procs")).expect("the cgroup");
    for (pid, name) in living {
        assert!(
            inside.lines().any(|line| line == pid.to_string()) || name_of(pid).is_none(),
            "{name} is not inside"
        );
    }
    worker.tell("stop 2000");
    worker.expect("stopped");
    assert!(tree.is_gone());
    assert!(!root.0.join("job-orders").exists(), "the cgroup is left behind");
}

#[test]
fn what_is_left_when_worker_and_guard_are_killed_together_is_ended_by_the_next_worker() {
    let Some(root) = CgroupRoot::new("next") else {
        return zk_testkit::skip("there is no cgroup v2 in which this user may make one");
    };
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.cgroup = Some(&root.0);
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    kill_together(&mut worker);
    assert!(!tree.is_gone(), "nothing is left to end");

    let next = Tree::new();
    let mut setup = WorkerSetup::new(&next, "exec sleep 1000");
    setup.cgroup = Some(&root.0);
    let _worker = setup.start();
    assert!(tree.is_gone(), "these live beside the new job: {:?}", tree.living());
    assert_eq!(next.living().len(), 1);
}

/// What the next worker of the member does first. Orphans of other tests may be strangers to it while they live.
fn swept(state: &Path, within: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let lock = StateLock::acquire_by(state, "east-1", BootTime::now() + PATIENCE).await;
        sweep(&names().lock(lock.expect("worker and guard end")), &[], BootTime::now() + within).await
    })
}

fn records(state: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(state.join("east-1.runs"))
        .expect("the records")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_none())
        .collect()
}

#[test]
fn a_record_is_there_from_before_the_start_until_nothing_is_left() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.lock_dir = Some(state.path());
    let writes = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
    let mut worker = setup.start_in(|_| {
        let records = state.path().join("east-1.runs");
        inotify::add_watch(&writes, records, inotify::WatchFlags::MOVE).expect("watched");
    });
    // A guard that writes later could wait for a disk while its job runs.
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut written = inotify::Reader::new(writes, &mut buffer);
    // Two events a rename: equal ones that follow each other would be one.
    assert_eq!(std::iter::from_fn(|| written.next().ok().map(|_| ())).count(), 2);
    let [path] = &records(state.path())[..] else { panic!("one record") };
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path).expect("a record")).expect("JSON");
    assert_eq!(record["session"], children_of(worker.guard())[0].as_raw());
    worker.tell("stop 5000");
    worker.expect("stopped");
    assert!(records(state.path()).is_empty());

    // One that can't be written starts nothing.
    drop(worker);
    let empty = Tree::new();
    let setup = WorkerSetup { tree: &empty, ..setup };
    let state_dir = state.path().join("east-1.runs");
    let worker = setup.start_without(|_| {
        std::fs::remove_dir(&state_dir).expect("empty");
        std::fs::write(&state_dir, "").expect("written");
    });
    let word = worker.expect("failed");
    assert!(
        word.contains("can't record in") && word.contains("check that its directory is writable"),
        "{word}"
    );
    assert!(empty.is_gone());
}

/// The lock is free then, and proves nothing.
#[test]
fn what_is_left_without_a_cgroup_is_found_by_its_record_and_ended() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    // Beside what carries its environment, one of its session that has cleared it, with a child of its own session.
    let script = format!("env -i sh -c 'setsid sleep 1000 & exec sleep 1000' &\n{STUBBORN}");
    let mut setup = WorkerSetup::new(&tree, &script);
    setup.lock_dir = Some(state.path());
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    let main = children_of(worker.guard())[0];
    let mut hidden = Vec::new();
    wait_for("those without environment", || {
        hidden = below(main).into_iter().filter(|&pid| is_bare(pid)).collect();
        hidden.len() == 2
    });
    kill_together(&mut worker);
    assert!(!tree.is_gone(), "nothing is left to end");

    assert_eq!(swept(state.path(), PATIENCE), Ok(()));
    assert!(tree.is_gone(), "these live: {:?}", tree.living());
    assert!(hidden.iter().all(|&pid| name_of(pid).is_none()), "{hidden:?}");
    assert!(records(state.path()).is_empty());
}

/// Each link has ended before a look at all processes has. Those of the first are of one process group; the others each of their own.
#[test]
fn a_chain_is_found_by_its_record_and_ended() {
    let quick = r#"
import os, time
os.setsid()
end = time.monotonic() + 60
while time.monotonic() < end and not os.path.exists("halt"):
    if os.fork():
        os._exit(0)
    open("acts", "a").write("x\n")
"#;
    for (chain, of) in [("python3 -IS chain", quick), ("sh ./chain", CHAIN)] {
        let tree = Tree::new();
        let state = tempfile::tempdir().expect("tempdir");
        std::fs::write(tree.file("chain"), of).expect("written");
        let script = format!("{chain} & exec sleep 1000");
        let mut setup = WorkerSetup::new(&tree, &script);
        setup.lock_dir = Some(state.path());
        let mut worker = setup.start();
        wait_for("the chain", || tree.lines("acts").len() > 20);
        kill_together(&mut worker);
        let swept = swept(state.path(), PATIENCE);
        let acts = tree.lines("acts").len();
        let living = tree.living();
        std::fs::write(tree.file("halt"), "").expect("written");
        assert_eq!((swept, &living[..]), (Ok(()), &[][..]), "{chain}");
        assert_eq!(tree.lines("acts").len(), acts, "{chain}");
    }
}

#[test]
fn what_can_not_be_told_from_a_stranger_is_not_said_to_be_gone() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let script = "(setsid env -i sleep 1000 &); exec sleep 1000";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lock_dir = Some(state.path());
    let mut worker = setup.start();
    let guard = worker.guard();
    let mut hidden = Pid::from_raw(0);
    wait_for("the one that hides", || {
        let found = below(guard).into_iter().find(|&pid| is_bare(pid));
        found.inspect(|&pid| hidden = pid).is_some()
    });
    kill_together(&mut worker);

    let words = swept(state.path(), Duration::from_millis(200)).expect_err("it lives");
    assert!(words.contains(&hidden.to_string()) && words.contains("may be"), "{words}");
    assert_eq!(name_of(hidden).as_deref(), Some("sleep"), "a stranger's life is not ours to end");
    kill(hidden, Signal::SIGKILL).expect("it lives");
    assert_eq!(swept(state.path(), PATIENCE), Ok(()));
    assert!(records(state.path()).is_empty());
}

#[test]
fn what_another_boot_of_the_machine_ran_is_gone_and_another_namespace_is_not_seen() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let mut setup = WorkerSetup::new(&tree, "exec sleep 1000");
    setup.lock_dir = Some(state.path());
    let worker = setup.start();
    let path = records(state.path()).remove(0);
    let record = std::fs::read_to_string(&path).expect("a record");
    drop(worker);
    wait_for("the end of the guard", || records(state.path()).is_empty());
    let mut record: serde_json::Value = serde_json::from_str(&record).expect("JSON");

    record["pid_namespace"] = "pid:[1]".into();
    std::fs::write(&path, record.to_string()).expect("written");
    let words = swept(state.path(), Duration::ZERO).expect_err("nobody can know");
    assert!(words.contains("PID namespace"), "{words}");
    record["boot"] = "another".into();
    std::fs::write(&path, record.to_string()).expect("written");
    assert_eq!(swept(state.path(), Duration::ZERO), Ok(()));
    std::fs::write(&path, "{").expect("written");
    let words = swept(state.path(), Duration::ZERO).expect_err("nobody can know");
    assert!(words.contains(&path.display().to_string()), "{words}");
    // Its name is enough where a power cut has left nothing in it.
    let (run, _) = path.to_str().and_then(|path| path.rsplit_once('-')).expect("a run and its boot");
    std::fs::rename(&path, format!("{run}-another")).expect("renamed");
    std::fs::write(format!("{run}-another"), "").expect("written");
    assert_eq!(swept(state.path(), Duration::ZERO), Ok(()));
    assert!(records(state.path()).is_empty());
}

/// What descends from a process.
fn below(pid: Pid) -> Vec<Pid> {
    let mut found: Vec<Pid> = Vec::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        if Path::new(&format!("/proc/{pid}")).exists() {
            let children = children_of(pid);
            found.extend(&children);
            next.extend(children);
        }
    }
    found
}

/// Whether it is a `sleep 1000` that has cleared its environment.
fn is_bare(pid: Pid) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    // Nor is it one of those that are just being started.
    read("cmdline").is_ok_and(|line| line == "sleep\u{0}1000\u{0}")
        && read("environ").is_ok_and(|text| !text.contains("DR_RUN"))
}

#[test]
fn a_job_can_give_its_guard_no_orders() {
    let tree = Tree::new();
    let script = r#"
        order='{"until":99999999999999}'
        (echo "$order" > /proc/$PPID/fd/0) 2> words || echo refused > refused
        [ -e refused ] || echo accepted > refused
        while :; do sleep 0.05; done
    "#;
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lease = Duration::from_secs(2);
    let mut worker = setup.start();
    wait_for("its attempt", || !tree.read("refused").is_empty());
    worker.tell("starve it");
    worker.expect("starving");
    wait_for("the end of the job", || tree.is_gone());
    let now = BootTime::now();
    let until = worker.lease_until();
    assert!(now < until, "the job outlived its lease by {:?}", now.duration_since(until));
    assert_eq!(tree.read("refused"), "refused\n", "{}", tree.read("words"));
}

/// Whatever has taken time between the guard's look at the clock and the start; nor before the guard has let it go.
#[test]
fn no_program_is_started_after_its_time_or_before_its_record() {
    let tree = Tree::new();
    let start = |start_by: BootTime, go: &[u8]| {
        // Inherited, as the launcher expects it.
        let env = memfd_create(c"env", MemfdFlags::empty()).expect("a file");
        rustix::io::write(&env, b"{}").expect("written");
        let stage = serde_json::json!({
            "guard": std::process::id(),
            "env": env.as_raw_fd(),
            "start_by": u64::try_from(start_by.as_duration().as_millis()).expect("a time"),
            "cgroup": null,
            "no_new_privileges": false,
            "limits": {},
            "oom_score_adj": null,
        });
        let file = tree.file("started");
        let (mut guard, stdin) = UnixStream::pair().expect("a pair");
        guard.write_all(go).expect("sent");
        guard.shutdown(Shutdown::Write).expect("no more");
        std::process::Command::new(env!("CARGO_BIN_EXE_job-guard"))
            .args(["guard", "--exec", &stage.to_string(), "touch"])
            .arg(&file)
            .stdin(OwnedFd::from(stdin))
            .status()
            .expect("started");
        let mut reason = String::new();
        guard.read_to_string(&mut reason).expect("text");
        (reason, file.exists())
    };
    let now = BootTime::now();
    let (reason, has_started) = start(now + Duration::from_secs(60), b"");
    assert!(reason.contains("did not let the launcher continue") && !has_started, "{reason}");
    assert_eq!(start(now, b"g"), ("the lease leaves no time to run and stop the job".to_owned(), false));
    assert_eq!(start(now + Duration::from_secs(60), b"g"), (String::new(), true));
}

/// Nothing on this machine can act then. What the job writes to has to refuse its token.
#[test]
fn worker_and_guard_both_stopped_leave_the_job_running_past_its_lease() {
    let tree = Tree::new();
    let script = "trap '' TERM; while :; do date +%s%N >> acts; sleep 0.01; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lease = Duration::from_secs(2);
    let worker = setup.start();
    let guard = worker.guard();
    for pid in [guard, worker.pid()] {
        send(pid, Signal::SIGSTOP);
    }
    wait_for("the end of the lease", || BootTime::now() > worker.lease_until());
    let acts = tree.lines("acts").len();
    wait_for("an act past the lease", || tree.lines("acts").len() > acts);
    for pid in [guard, worker.pid()] {
        kill(pid, Signal::SIGCONT).expect("thaw");
    }
    wait_for("the end of the job", || tree.is_gone());
    worker.expect("finished job orders was ended because its lease was not renewed");
}

/// The user of the test of privileges: any but root.
const NOBODY: u32 = 65_534;

/// False, loudly, where this test can't be run.
fn may_change_users() -> bool {
    let may = Uid::effective().is_root();
    if !may {
        zk_testkit::skip("only root can start a worker of another user");
    }
    may
}

/// A worker of an ordinary user, and a program that makes its processes root's.
#[test]
fn a_job_that_becomes_another_user_is_prevented_or_named() {
    if !may_change_users() {
        return;
    }
    let programs = programs_for_all();
    let become_root = programs.path().join("setpriv");
    zk_testkit::copy_program("/usr/bin/setpriv", &become_root);
    std::fs::set_permissions(&become_root, std::os::unix::fs::PermissionsExt::from_mode(0o4755))
        .expect("set");
    // Of all that it has, its real user too: by that one it could still be killed.
    let script = format!("{} --reuid 0 sleep 1000 || exec sleep 1000", become_root.display());

    let tree = Tree::new();
    std::os::unix::fs::chown(tree.dir.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
    let mut setup = WorkerSetup::new(&tree, &script);
    setup.runs_as = Some((programs.path(), NOBODY));
    let mut worker = setup.start();
    worker.tell("stop 5000");
    worker.expect("stopped");
    assert!(tree.is_gone(), "these live: {:?}", tree.living());

    // Allowed, it can't be killed: that is said, and it is not said to be gone.
    let log = tree.file("log");
    setup.no_new_privileges = Some(false);
    let log_path = log.display().to_string();
    let env = [("DR_TEST_LOG", log_path.as_str())];
    setup.env = &env;
    let mut worker = setup.start();
    let mut of_root = Vec::new();
    wait_for("the process of another user", || {
        of_root = tree.living();
        of_root.retain(|(pid, name)| name == "sleep" && owner(*pid) == Some(0));
        !of_root.is_empty()
    });
    worker.tell("stop 1000");
    let pid = of_root[0].0;
    let said = format!("processes [{pid}] run as another user");
    wait_for("the true reason", || tree.read("log").contains(&said));
    assert!(worker.is_silent(), "it lives");
    kill(pid, Signal::SIGKILL).expect("it lives");
    worker.expect("stopped");
}

fn owner(pid: Pid) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[test]
fn the_job_gets_nothing_of_the_worker_that_it_must_not_have() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let script = r#"
        env > env.tmp; ls /proc/self/fd > fd; cat /proc/self/status > status
        cat /proc/$$/stat > stat; readlink /proc/$$/fd/0 > stdin; mv env.tmp env
        while :; do sleep 0.05; done
    "#;
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lock_dir = Some(state.path());
    setup.ignoring = "HUP INT QUIT USR1 USR2 CHLD TSTP TTIN TTOU WINCH ALRM TERM RTMIN+3";
    setup.env = &[
        ("NOTIFY_SOCKET", "/run/x"),
        ("WATCHDOG_USEC", "1"),
        ("WATCHDOG_PID", "1"),
        ("LISTEN_FDS", "1"),
        ("LISTEN_FDNAMES", "x"),
        ("DR_PREVIOUS_LEADER", "of the worker's own surroundings"),
        ("KEPT", "yes"),
    ];
    let _worker = setup.start();
    wait_for("the job's words", || tree.file("env").exists());

    let environment = tree.lines("env");
    for name in ["NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_"] {
        assert!(!environment.iter().any(|line| line.starts_with(name)), "{name}: {environment:?}");
    }
    for line in [
        "KEPT=yes",
        "DR_JOB=orders",
        "DR_MEMBER=east-1",
        "DR_SITE=east",
        "DR_SLOT=0",
        "DR_TERM=7",
        "DR_FENCING_TOKEN=42",
        "DR_CAUSE=startup",
        "DR_PREVIOUS_LEADER=",
        "DR_PREVIOUS_SITE=",
    ] {
        assert!(environment.iter().any(|have| have == line), "{line} is missing: {environment:?}");
    }
    // Above all not the lock's descriptor. (3 is the directory being listed.)
    assert_eq!(tree.lines("fd"), ["0", "1", "2", "3"], "open in the job");
    assert_eq!(tree.read("stdin"), "/dev/null\n");
    let status = tree.read("status");
    for field in ["SigBlk:", "SigIgn:"] {
        let mask = status.lines().find_map(|line| line.strip_prefix(field)).expect("a mask").trim();
        let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
        // Those above 31 are the C library's own, or came from whoever runs the tests.
        assert_eq!(mask & 0x7fff_ffff, 0, "{field} {mask:x}");
    }
    // Its number and its name in brackets; then its state, its parent, its group and its session.
    let stat = tree.read("stat");
    let (head, tail) = stat.rsplit_once(')').expect("a line of /proc/PID/stat");
    let pid = head.split_ascii_whitespace().next();
    let ids: Vec<_> = tail.split_ascii_whitespace().skip(2).take(2).map(Some).collect();
    assert_eq!(ids, [pid, pid], "leads no session: {stat}");
}
