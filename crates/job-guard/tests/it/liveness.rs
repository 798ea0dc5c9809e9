//! A job that runs and serves no more.

use std::time::Duration;

use crate::support::{STUBBORN, Tree, run, soon, until};
use boot_time::BootTime;
use job_guard::{Check, Job, ProcessState, ReadyProbe, RestartPolicy, RunEnd};

const INTERVAL: Duration = Duration::from_millis(20);

/// Serves as long as there is no file `stuck`.
fn checked(tree: &Tree, script: &str, failures: u32) -> Job {
    let command = "echo $DR_FENCING_TOKEN >> tries; [ ! -e stuck ] || { echo it hangs >&2; exit 3; }";
    let command = ["sh", "-c", command].map(str::to_owned).to_vec();
    let probe = ReadyProbe::Exec { command, interval: INTERVAL, timeout: Duration::from_secs(20) };
    let restart = RestartPolicy { max: 1, backoff: Duration::from_millis(10), ..RestartPolicy::default() };
    Job { liveness: Some(Check { probe, failures }), restart, ..tree.spec(script) }
}

fn stick(tree: &Tree) {
    std::fs::write(tree.file("stuck"), "").expect("write");
}

#[tokio::test]
async fn it_is_ended_with_its_kin_and_started_again_until_its_restarts_are_used_up() {
    let tree = Tree::new();
    // Its second run is ready only when it may be: until then its problem is to be seen.
    let script = format!("echo run >> runs; {STUBBORN}");
    let mut spec = checked(&tree, &script, 2);
    spec.ready = ReadyProbe::Exec {
        command: ["sh", "-c", "[ ! -e stuck ] || [ -e go ]"].map(str::to_owned).to_vec(),
        interval: INTERVAL,
        timeout: Duration::from_secs(20),
    };
    let job = run(spec);
    job.ready().await.expect("it serves");
    until("some tries", || tree.lines("tries").len() >= 3).await;
    assert_eq!(job.status().borrow().problem, None);
    assert_eq!(tree.lines("runs").len(), 1, "it passes, and nothing is done to it");
    let first = tree.living();

    stick(&tree);
    until("its second run", || tree.lines("runs").len() == 2).await;
    let left: Vec<_> = tree.living().into_iter().filter(|process| first.contains(process)).collect();
    assert_eq!(left, [], "of its first run are left");
    let mut status = job.status();
    let starting =
        status.wait_for(|status| status.state == ProcessState::Starting).await.expect("it goes on");
    let problem = starting.problem.clone().expect("what was wrong");
    assert_eq!((starting.restarts, problem.as_str()), (1, "liveness: the probe ended: exit code 3 it hangs"));
    drop(starting);

    std::fs::write(tree.file("go"), "").expect("write");
    let error = job.finished().await;
    assert!(matches!(error, RunEnd::RestartsExhausted { .. }), "{error:?}");
    let words = "job orders has failed: liveness: the probe ended: exit code 3 it hangs; not started again after 1 restarts";
    assert!(error.to_string().starts_with(words), "{error}");
    assert!(tree.is_gone());
    let last = job.status().borrow().clone();
    assert_eq!((last.state, last.problem), (ProcessState::Fatal, Some(problem)));
    assert_eq!(tree.lines("runs").len(), 2);
    assert!(tree.lines("tries").iter().all(|token| token == "42"), "the environment is the job's");
}

#[tokio::test]
async fn one_that_serves_again_in_time_runs_on_and_is_ready_again_without_a_problem() {
    let tree = Tree::new();
    let mut spec = checked(&tree, "echo run >> runs; exec sleep 1000", 1_000_000);
    spec.restart.max = 0;
    let job = run(spec);
    job.ready().await.expect("it serves");
    stick(&tree);
    let so_far = tree.lines("tries").len();
    until("failures", || tree.lines("tries").len() >= so_far + 5).await;
    std::fs::remove_file(tree.file("stuck")).expect("remove");
    let so_far = tree.lines("tries").len();
    until("successes", || tree.lines("tries").len() >= so_far + 3).await;
    let status = job.status().borrow().clone();
    assert_eq!((status.state, status.restarts, status.problem), (ProcessState::Running, 0, None));
    job.stop(soon()).await;
    assert!(tree.is_gone(), "the check is gone, too");
}

#[tokio::test]
async fn its_problem_is_forgotten_once_it_is_ready() {
    let tree = Tree::new();
    let mut spec = checked(&tree, "echo run >> runs; exec sleep 1000", 2);
    spec.ready = ReadyProbe::Exec {
        command: ["sh", "-c", "[ ! -e stuck ]"].map(str::to_owned).to_vec(),
        interval: INTERVAL,
        timeout: Duration::from_secs(20),
    };
    let job = run(spec);
    job.ready().await.expect("it serves");
    stick(&tree);
    until("its second run", || tree.lines("runs").len() == 2).await;
    std::fs::remove_file(tree.file("stuck")).expect("remove");
    let mut status = job.status();
    let again = status.wait_for(|status| status.restarts == 1 && status.state == ProcessState::Running).await;
    assert_eq!(again.expect("it goes on").problem, None);
    job.stop(soon()).await;
}

#[tokio::test]
async fn a_stop_while_it_is_being_ended_is_a_stop() {
    let tree = Tree::new();
    let mut spec = checked(&tree, "trap 'echo asked > asked' TERM; while :; do sleep 0.02; done", 1);
    spec.stop_timeout = Duration::from_secs(60);
    let job = run(spec);
    job.ready().await.expect("it serves");
    stick(&tree);
    // It ignores the signal, and would be given a minute.
    until("its stop signal", || tree.file("asked").exists()).await;
    job.stop(BootTime::now() + Duration::from_secs(1)).await;
    assert!(tree.is_gone());
    assert!(matches!(job.finished().await, RunEnd::Stopped { .. }));
    assert_eq!(job.status().borrow().restarts, 0);
}
