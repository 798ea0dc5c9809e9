//! A job of several processes: the order of their starts and stops, and what follows the end of one.

use std::time::Duration;

use crate::support::{Tree, group, guards, lease, long_lease, run, soon, until};
use boot_time::BootTime;
use job_guard::{ExitCodes, Job, JobRun, OnExit, ProcessState, ReadyProbe, RestartPolicy, RunEnd};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Notes its start and its end in the file `log`, and is ready a moment after its start.
fn noting(name: &str) -> (String, String) {
    let script = format!(
        "trap 'echo stop {name} >> log; exit' TERM; echo start {name} >> log; sleep 0.1; echo ready {name} >> log; \
         echo > {name}.ready; while :; do sleep 0.02; done"
    );
    (name.to_owned(), script)
}

/// Three of them.
fn noting_job(tree: &Tree, rule: OnExit) -> Job {
    let spec = Job {
        stop_timeout: Duration::from_secs(30),
        restart: RestartPolicy { max: 2, backoff: Duration::from_millis(1), ..RestartPolicy::default() },
        ..tree.spec("")
    };
    let mut job = group(spec, &["a", "b", "c"].map(noting));
    for process in &mut job.processes {
        process.on_exit = rule;
        process.program.ready = ReadyProbe::Exec {
            command: ["test", "-e", &format!("{}.ready", process.name)].map(str::to_owned).to_vec(),
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(10),
        };
    }
    job
}

/// The main process of each.
fn pids(run: &JobRun) -> Vec<Option<u32>> {
    run.status().borrow().processes.iter().map(|process| process.status.pid).collect()
}

const STARTS: [&str; 6] = ["start a", "ready a", "start b", "ready b", "start c", "ready c"];

#[tokio::test]
async fn they_start_in_order_each_once_the_one_before_is_ready_and_stop_in_reverse() {
    let tree = Tree::new();
    let run = run(noting_job(&tree, OnExit::RestartRest));
    run.ready().await.expect("it serves");
    assert_eq!(tree.lines("log"), STARTS);
    let status = run.status().borrow().clone();
    assert_eq!((status.state, status.pid), (ProcessState::Running, pids(&run)[0]));
    let states: Vec<_> = status.processes.iter().map(|process| process.status.state).collect();
    assert_eq!(states, [ProcessState::Running; 3]);
    let stopped = run.stop(BootTime::now() + Duration::from_secs(60)).await;
    assert_eq!(tree.lines("log")[6..], ["stop c", "stop b", "stop a"]);
    assert!(stopped.exit.is_some() && tree.is_gone());
    assert_eq!(run.finished().await, RunEnd::Stopped { job: "orders".into() });
    assert_eq!(run.status().borrow().state, ProcessState::Stopped);
}

#[tokio::test]
async fn the_end_of_the_middle_one_restarts_what_its_rule_names() {
    for (rule, expected, restarted) in [
        (OnExit::RestartOne, &["start b", "ready b"][..], [false, true, false]),
        (OnExit::RestartRest, &["stop c", "start b", "ready b", "start c", "ready c"], [false, true, true]),
        (
            OnExit::RestartAll,
            &["stop c", "stop a", "start a", "ready a", "start b", "ready b", "start c", "ready c"],
            [true; 3],
        ),
    ] {
        let tree = Tree::new();
        let run = run(noting_job(&tree, rule));
        run.ready().await.expect("it serves");
        let before = pids(&run);
        for name in ["a", "b", "c"] {
            std::fs::remove_file(tree.file(&format!("{name}.ready"))).expect("it was ready");
        }
        let mut status = run.status();
        kill(Pid::from_raw(before[1].expect("it runs").cast_signed()), Signal::SIGKILL).expect("alive");
        let seen = async {
            status.wait_for(|status| status.state == ProcessState::Backoff).await.expect("the job runs");
            status.wait_for(|status| status.state == ProcessState::Running).await.expect("the job runs");
        };
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("it is ready again");
        assert_eq!(tree.lines("log")[6..], *expected, "{rule:?}");
        let changed: Vec<_> = pids(&run).iter().zip(&before).map(|(now, before)| now != before).collect();
        assert_eq!(changed, restarted, "{rule:?}");
        let status = run.status().borrow().clone();
        let restarts: Vec<_> = status.processes.iter().map(|process| process.status.restarts).collect();
        assert_eq!((status.restarts, restarts), (1, vec![0, 1, 0]), "{rule:?}");
        run.stop(soon()).await;
        assert!(tree.is_gone());
    }
}

#[tokio::test]
async fn a_process_that_ends_too_often_ends_the_job_in_order() {
    let tree = Tree::new();
    let mut job = noting_job(&tree, OnExit::RestartOne);
    job.restart.max = 0;
    let run = run(job);
    run.ready().await.expect("it serves");
    kill(Pid::from_raw(pids(&run)[1].expect("it runs").cast_signed()), Signal::SIGKILL).expect("alive");
    let end = run.finished().await;
    let RunEnd::RestartsExhausted { job, last, max: 0, .. } = &end else { panic!("{end:?}") };
    assert_eq!((job.as_str(), last.as_str()), ("orders", "process b: killed by SIGKILL"));
    assert!(tree.is_gone());
    assert_eq!(tree.lines("log")[6..], ["stop c", "stop a"]);
    let status = run.status().borrow().clone();
    assert_eq!(
        (status.state, status.problem.as_deref()),
        (ProcessState::Fatal, Some("b: killed by SIGKILL"))
    );
}

#[tokio::test]
async fn a_start_that_fails_midway_leaves_nothing_and_starts_nothing_after_it() {
    for (script, codes) in [
        ("exit 3", ExitCodes { not_here: vec![3], ..ExitCodes::default() }),
        ("exit 4", ExitCodes::default()),
    ] {
        let tree = Tree::new();
        let mut job = noting_job(&tree, OnExit::RestartRest);
        job.restart.max = 0;
        job.processes[1].program.command = ["sh", "-c", script].map(str::to_owned).to_vec();
        job.processes[1].program.exit_codes = codes;
        let run = run(job);
        let end = run.ready().await.expect_err("it never serves");
        match script {
            "exit 3" => assert_eq!(end, RunEnd::NotHere { job: "orders".into(), code: 3 }),
            _ => assert!(matches!(end, RunEnd::RestartsExhausted { .. }), "{end:?}"),
        }
        assert!(tree.is_gone());
        assert_eq!(tree.lines("log"), ["start a", "ready a", "stop a"]);
    }
}

#[tokio::test]
async fn a_process_that_has_done_its_work_counts_as_ready() {
    let tree = Tree::new();
    let mut job = noting_job(&tree, OnExit::RestartRest);
    job.processes[0].program.command = ["sh", "-c", "echo done >> log"].map(str::to_owned).to_vec();
    job.processes[0].program.exit_codes.stay_down = vec![0];
    let run = run(job);
    run.ready().await.expect("it serves");
    let status = run.status().borrow().clone();
    assert_eq!(status.processes[0].status.state, ProcessState::Exited);
    assert!(status.serves());
    run.stop(soon()).await;
    assert_eq!(tree.lines("log"), ["done", "start b", "ready b", "start c", "ready c", "stop c", "stop b"]);
}

#[tokio::test]
async fn one_that_does_not_end_leaves_the_others_their_time() {
    let tree = Tree::new();
    let mut job = noting_job(&tree, OnExit::RestartRest);
    job.stop_timeout = Duration::from_secs(3);
    job.processes.iter_mut().for_each(|process| process.program.stop_timeout = Duration::from_secs(1));
    let stubborn = "trap '' TERM; echo > c.ready; while :; do sleep 0.02; done";
    job.processes[2].program.command = ["sh", "-c", stubborn].map(str::to_owned).to_vec();
    let run = run(job);
    run.ready().await.expect("it serves");
    run.stop_within(Duration::from_secs(3)).await;
    assert!(tree.is_gone());
    assert_eq!(tree.lines("log")[4..], ["stop b", "stop a"]);
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_all_in_order_before_it_ends() {
    let tree = Tree::new();
    let mut job = noting_job(&tree, OnExit::RestartRest);
    job.stop_timeout = Duration::from_secs(6);
    job.processes.iter_mut().for_each(|process| process.program.stop_timeout = Duration::from_secs(2));
    let (_not_renewed, work_until) = lease(Duration::from_secs(12));
    let ends = *work_until.borrow();
    let run = JobRun::start(job, work_until, guards());
    run.ready().await.expect("it serves");
    assert_eq!(run.finished().await, RunEnd::LeaseEnded { job: "orders".into() });
    assert!(BootTime::now() < ends && tree.is_gone());
    assert_eq!(tree.lines("log")[6..], ["stop c", "stop b", "stop a"]);
}

#[tokio::test]
async fn a_dropped_run_ends_all() {
    let tree = Tree::new();
    let run = JobRun::start(noting_job(&tree, OnExit::RestartRest), long_lease(), guards());
    run.ready().await.expect("it serves");
    drop(run);
    until("the end of all", || tree.is_gone()).await;
    assert_eq!(tree.lines("log")[6..], ["stop c", "stop b", "stop a"]);
}
