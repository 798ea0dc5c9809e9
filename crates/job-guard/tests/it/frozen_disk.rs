//! The disk of the state directory hangs, as a frozen file system does: what has ended is reported all the same.

use std::time::Duration;

use crate::support::{
    Disk, PATIENCE, Tree, WorkerSetup, guards, long_lease, soon, state_of, until, wait_for,
};
use job_guard::{Check, Job, JobRun, ProcessState, ReadyProbe, RunEnd, StateLock, WorkTime};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::sync::watch;

/// A job whose guards keep their records on this disk.
fn run_on(disk: &Disk, spec: Job) -> JobRun {
    let lock = StateLock::acquire(disk.path(), "east-1").expect("free");
    JobRun::start(spec, long_lease(), guards().lock(lock))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_is_reported_while_the_disk_of_its_record_hangs() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let job = run_on(&disk, tree.spec("exec sleep 1000"));
    job.ready().await.expect("it runs");
    disk.freeze();
    let stopped = tokio::time::timeout(PATIENCE, job.stop(soon())).await;
    assert!(tree.is_gone(), "the job has ended");
    assert!(stopped.is_ok(), "its end is reported while the disk hangs");
    assert!(disk.thaw(), "it was frozen all the time");
}

/// The worker logs to a file there.
#[test]
fn a_guard_whose_output_goes_to_a_disk_that_hangs_ends_its_job() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let log = disk.path().join("log");
    let script = "trap 'echo asked; trap : TERM' TERM; echo > up; while :; do sleep 0.05; done";
    let mut setup = WorkerSetup::new(&tree, script);
    setup.stderr = Some(&log);
    let mut worker = setup.start();
    wait_for("its trap", || tree.file("up").exists());
    disk.freeze();
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the job", || tree.is_gone());
    assert!(disk.thaw(), "it was frozen all the time");
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_for("its last words", || logged().contains("asked\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liveness_check_fails_whose_guard_the_disk_holds_up() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let probe = ReadyProbe::Exec {
        command: vec!["true".to_owned()],
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
    };
    let spec = Job { liveness: Some(Check { probe, failures: 2 }), ..tree.spec("exec sleep 1000") };
    let job = run_on(&disk, spec);
    job.ready().await.expect("it runs");
    disk.freeze();
    let finished = tokio::time::timeout(PATIENCE, job.finished()).await;
    let error = finished.expect("the check fails while the disk hangs");
    assert!(matches!(error, RunEnd::RestartsExhausted { .. }), "{error:?}");
    assert!(error.to_string().contains("liveness: the probe did not end within"), "{error}");
    assert!(disk.thaw(), "it was frozen all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_say_nothing_about_a_suspended_job_of_which_the_disk_holds_up_a_process() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let command = ["sh", "-c", "echo >> tries; [ ! -e stuck ]"].map(str::to_owned).to_vec();
    let probe =
        ReadyProbe::Exec { command, interval: Duration::from_millis(20), timeout: Duration::from_secs(20) };
    let file = disk.path().join("file");
    let script = format!(
        "sh -c 'echo $$ > writer; until [ -e go ]; do sleep 0.02; done; echo > goes; echo > {}' & exec sleep 1000",
        file.display()
    );
    let spec = Job { liveness: Some(Check { probe, failures: 2 }), freezes: true, ..tree.spec(&script) };
    let (suspend, suspended) = watch::channel(false);
    let job = JobRun::start(spec, WorkTime::new(long_lease(), suspended), guards());
    job.ready().await.expect("it runs");
    disk.freeze();
    std::fs::write(tree.file("go"), "").expect("write");
    until("the writer", || tree.file("goes").exists()).await;
    let writer = Pid::from_raw(tree.read("writer").trim().parse().expect("a pid"));
    until("it to wait for the disk", || state_of(writer) == Some('D')).await;
    suspend.send_replace(true);
    std::fs::write(tree.file("stuck"), "").expect("write");
    // That no check ends it shows only with time: a slow machine makes no failure of it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let status = job.status().borrow().clone();
    assert_eq!((status.state, status.problem), (ProcessState::Running, None), "not all of it rests");
    std::fs::remove_file(tree.file("stuck")).expect("remove");
    suspend.send_replace(false);
    let so_far = tree.lines("tries").len();
    until("more tries", || tree.lines("tries").len() > so_far + 3).await;
    assert_eq!(job.status().borrow().state, ProcessState::Running);
    assert!(disk.thaw(), "it was frozen all the time");
    job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_whose_record_can_not_be_written_has_failed_and_names_the_record() {
    let Some(disk) = Disk::new() else { return };
    let tree = Tree::new();
    let lock = StateLock::acquire(disk.path(), "east-1").expect("free");
    disk.freeze();
    let spec = tree.spec("echo run >> runs");
    let job = JobRun::start(spec, long_lease(), guards().lock(lock));
    let finished = tokio::time::timeout(PATIENCE, job.finished()).await;
    let error = finished.expect("an outcome while the disk hangs").to_string();
    assert!(error.contains(disk.path().to_str().expect("a plain name")), "{error}");
    assert!(disk.thaw(), "it was frozen all the time");
    assert_eq!(tree.lines("runs").len(), 0, "nothing was started");
}
