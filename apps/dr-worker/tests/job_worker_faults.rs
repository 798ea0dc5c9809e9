//! Whatever happens to the worker or to the guard, nothing of the job outlives the lease.

mod job_support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use dr_worker::guard::BootTime;
use dr_worker::job::StateLock;
use job_support::{STUBBORN, STUBBORN_PROCESSES, Tree, Worker, WorkerSetup, guards_of, name_of, wait_for};
use nix::sys::signal::{Signal, kill};

#[test]
#[ignore = "the worker of the other tests, not a test"]
fn worker_process() {
    job_support::worker_process();
}

/// Kills a worker and its guard so that neither sees the other's end.
fn kill_together(worker: &mut Worker) {
    let guard = worker.guard();
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        worker.signal(signal);
        kill(guard, signal).expect("a living guard");
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
    let began = BootTime::now();
    wait_for("the end of the job", || tree.is_gone());
    let took = BootTime::now().duration_since(began);
    assert!(took < Duration::from_secs(5), "the lease of a minute was waited for: {took:?}");
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
    // It would do something harmful every few milliseconds, and end late if it were asked.
    let script = "trap '' TERM; while :; do date +%s%N >> acts; sleep 0.01; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lease = Duration::from_secs(3);
    setup.stop_timeout = Duration::from_secs(1);
    let worker = setup.start();
    wait_for("an act", || !tree.read("acts").is_empty());
    let guard = worker.guard();
    // The guard first: else it would see what the others no longer do.
    let mut frozen = vec![guard, worker.pid()];
    for &pid in &frozen {
        kill(pid, Signal::SIGSTOP).expect("freeze");
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

    let woken = BootTime::now();
    let acts = tree.lines("acts").len();
    for pid in frozen {
        let _ = kill(pid, Signal::SIGCONT);
    }
    wait_for("the end of the job", || tree.is_gone());
    let took = BootTime::now().duration_since(woken);
    assert!(took < Duration::from_millis(500), "asked instead of killed: {took:?}");
    let late = tree.lines("acts").len() - acts;
    assert!(late < 25, "{late} acts after waking up");
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
    kill(guard, Signal::SIGSTOP).expect("freeze the guard");
    let began = BootTime::now();
    worker.tell("stop 2000");
    worker.expect("stopped");
    assert!(tree.is_gone(), "said to be stopped, but these live: {:?}", tree.living());
    let took = BootTime::now().duration_since(began);
    assert!(took < Duration::from_secs(2), "{took:?}");
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
    kill(worker.guard(), Signal::SIGSTOP).expect("freeze the guard");
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
    kill(worker.guard(), Signal::SIGSTOP).expect("freeze the guard");
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
    kill(guard, Signal::SIGSTOP).expect("freeze the guard");
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

/// A cgroup to make others in, removed with all of them; `None` where this user can't have one.
struct CgroupRoot(PathBuf);

impl CgroupRoot {
    fn new(name: &str) -> Option<CgroupRoot> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc");
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, filesystem) = (fields.next()?, fields.next()?);
            (filesystem == "cgroup2").then_some(point)
        })?;
        let dir = Path::new(mount).join(format!("dr-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).ok()?;
        dir.join("cgroup.kill").exists().then_some(CgroupRoot(dir))
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..100 {
            let _ = std::fs::remove_dir(self.0.join("job-orders"));
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            // It is empty once the last process has ended.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_job_in_a_cgroup_is_ended_with_it() {
    let Some(root) = CgroupRoot::new("end") else {
        eprintln!("not tested: no cgroup v2 can be made here");
        return;
    };
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, STUBBORN);
    setup.cgroup = Some(&root.0);
    let mut worker = setup.start();
    wait_for_the_whole_tree(&tree);
    let inside = std::fs::read_to_string(root.0.join("job-orders/cgroup.procs")).expect("the cgroup");
    for (pid, name) in tree.living() {
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
        eprintln!("not tested: no cgroup v2 can be made here");
        return;
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

#[test]
fn the_job_gets_nothing_of_the_worker_that_it_must_not_have() {
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    let script = r#"
        env > env.tmp; ls /proc/self/fd > fd; cat /proc/self/status > status
        ps -o pid=,pgid=,sid= -p $$ > ids; readlink /proc/$$/fd/0 > stdin; mv env.tmp env
        while :; do sleep 0.05; done
    "#;
    let mut setup = WorkerSetup::new(&tree, script);
    setup.lock_dir = Some(state.path());
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
    let ids = tree.read("ids");
    let ids: Vec<&str> = ids.split_ascii_whitespace().collect();
    assert!(ids.len() == 3 && ids[0] == ids[1] && ids[0] == ids[2], "leads no session: {ids:?}");
}
