//! Memory runs out: the kernel ends the job, not its worker, and the reason says so.

use crate::support::{Tree, Worker, WorkerSetup, children_of, memory_group::MemoryGroup, name_of};
use nix::unistd::Pid;

fn adj(pid: Pid) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("alive");
    text.trim().parse().expect("a number")
}

fn start(setup: &WorkerSetup<'_>, memory: &MemoryGroup) -> Worker {
    memory.limit(512 << 20);
    setup.start_in(|worker| memory.enter(worker))
}

#[test]
fn memory_is_taken_from_the_job_before_worker_and_guard() {
    let tree = Tree::new();
    for (spared, of_job) in [("0", 200), ("900", 1000)] {
        let prefix = ["choom", "-n", spared, "--"];
        let mut setup = WorkerSetup::new(&tree, "exec sleep 1000");
        setup.prefix = &prefix;
        let worker = setup.start();
        let guard = worker.guard();
        let job = children_of(guard)[0];
        assert_eq!(adj(job), of_job, "of a worker with {spared}");
        assert!(adj(guard) <= adj(worker.pid()), "guard {}, worker {spared}", adj(guard));
    }
}

/// The processes are smaller than the worker, and the main one ends when one of them has been ended.
const MANY_SMALL: &str = r#"exec python3 -c '
import os, sys, time
time.sleep(0.2)
while True:
    if os.fork() == 0:
        taken = b"x" * (4 << 20)
        time.sleep(1000)
    time.sleep(0.002)
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        sys.exit(128 + os.WTERMSIG(status))
'"#;

const ONE_LARGE: &str = r#"exec python3 -c '
import time
time.sleep(0.2)
taken = []
while True:
    taken.append(b"x" * (1 << 20))
'"#;

#[test]
fn when_memory_runs_out_the_job_ends_for_this_reason_and_its_worker_lives() {
    for (script, how) in [
        (MANY_SMALL, "exit code 137, out of memory"),
        (ONE_LARGE, "killed by SIGKILL, out of memory"),
        ("sleep 0.2; kill -9 $$", "killed by SIGKILL"),
    ] {
        let Some(memory) = MemoryGroup::new("oom") else { return };
        let tree = Tree::new();
        let worker = start(&WorkerSetup::new(&tree, script), &memory);
        let reason = worker.expect("finished");
        assert!(reason.contains(how), "{reason}");
        assert_eq!(reason.contains("out of memory"), how.contains("out of memory"), "{reason}");
        assert!(name_of(worker.pid()).is_some(), "the worker lives");
    }
}
