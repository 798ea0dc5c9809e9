//! A program that changes its role while it runs: it gets a deadline, or loses it.

use std::time::Duration;

use crate::support::{STUBBORN, STUBBORN_PROCESSES, Tree, guards, lease, soon, until};
use boot_time::BootTime;
use job_guard::{Job, JobRun, ProcessState, RestartPolicy, RunEnd, StopSignal, WorkTime};

fn standby(job: Job) -> JobRun {
    JobRun::start(job, WorkTime::unlimited(), guards())
}

#[tokio::test]
async fn a_program_that_is_given_a_deadline_ends_by_it() {
    let tree = Tree::new();
    let job = standby(tree.spec(STUBBORN));
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    let (_renewer, work_until) = lease(Duration::from_secs(2));
    let end = *work_until.borrow();
    job.arm(tree.spec(STUBBORN), work_until.into()).await.expect("it runs");
    assert_eq!(job.status().borrow().state, ProcessState::Starting, "in its new role");
    job.probe().await;
    job.ready().await.expect("it runs");
    let over = job.finished().await;
    assert!(matches!(over, RunEnd::LeaseEnded { .. }), "{over}");
    assert!(tree.is_gone() && BootTime::now() < end);
}

#[tokio::test]
async fn a_program_whose_deadline_is_taken_away_outlives_the_lease() {
    let tree = Tree::new();
    let job = standby(tree.spec(STUBBORN));
    job.ready().await.expect("it runs");
    let (renewer, work_until) = lease(Duration::from_secs(2));
    job.arm(tree.spec(STUBBORN), work_until.into()).await.expect("it runs");
    job.probe().await;
    job.ready().await.expect("it runs");
    let end = *renewer.borrow();
    job.arm(tree.spec(STUBBORN), WorkTime::unlimited()).await.expect("it runs");
    job.probe().await;
    until("the end of the lease", || BootTime::now() > end + Duration::from_millis(200)).await;
    job.ready().await.expect("it runs on");
    job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test]
async fn a_program_that_ends_while_it_changes_its_role_is_not_restarted() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo >> starts; trap exit USR1; echo > up; while :; do sleep 0.02; done");
    spec.restart = RestartPolicy { max: 5, ..RestartPolicy::default() };
    let job = standby(spec.clone());
    until("its trap", || tree.file("up").exists()).await;
    job.ready().await.expect("it runs");
    let (_renewer, work_until) = lease(Duration::from_secs(60));
    job.arm(spec, work_until.into()).await.expect("it runs");
    job.signal(StopSignal::Usr1).await;
    let over = job.finished().await;
    assert!(matches!(over, RunEnd::RoleNotTaken { .. }), "{over}");
    assert_eq!((tree.read("starts").lines().count(), tree.is_gone()), (1, true));
}

#[tokio::test]
async fn a_program_that_ends_in_its_new_role_is_restarted_with_that_command() {
    let tree = Tree::new();
    let mut first = tree.spec("trap exit USR1; echo > up; while :; do sleep 0.02; done");
    first.restart = RestartPolicy { max: 5, ..RestartPolicy::default() };
    let second = Job { command: tree.spec("echo > promoted; exec sleep 1000").command, ..first.clone() };
    let job = standby(first);
    until("its trap", || tree.file("up").exists()).await;
    job.ready().await.expect("it runs");
    let (_renewer, work_until) = lease(Duration::from_secs(60));
    job.arm(second, work_until.into()).await.expect("it runs");
    job.probe().await;
    job.ready().await.expect("it runs");
    job.signal(StopSignal::Usr1).await;
    until("the new command", || tree.file("promoted").exists()).await;
    job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test]
async fn a_program_that_does_not_run_is_given_no_deadline() {
    let tree = Tree::new();
    let mut spec = tree.spec("exit 1");
    let pause = Duration::from_secs(600);
    spec.restart = RestartPolicy { max: 5, within: 2 * pause, backoff: pause, backoff_max: pause };
    let job = standby(spec.clone());
    let mut status = job.status();
    status.wait_for(|status| status.state == ProcessState::Backoff).await.expect("it goes on");
    let (_renewer, work_until) = lease(Duration::from_secs(60));
    assert_eq!(job.arm(spec, work_until.into()).await, Err("its process is backoff".to_owned()));
    job.stop(soon()).await;
}
