//! A job's life under a healthy worker: started, stopped, restarted, given up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{
    CgroupRoot, PATIENCE, STUBBORN, STUBBORN_PROCESSES, Tree, guards, guards_of, lease, long_lease, run,
    soon, until,
};
use boot_time::BootTime;
use job_guard::{Exit, JobRun, Lease, ProcessState, Reporter, RestartPolicy, RunEnd, StopSignal, Stream};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

#[tokio::test]
async fn a_job_that_ends_when_asked_is_stopped_gently() {
    let tree = Tree::new();
    let mut spec =
        tree.spec("trap 'echo asked > asked; exit 3' INT; echo > up; while :; do sleep 0.02; done");
    spec.stop_signal = StopSignal::Int;
    spec.stop_timeout = Duration::from_secs(5);
    let job = run(spec);
    job.ready().await.expect("it runs");
    let status = job.status().borrow().clone();
    assert_eq!(status.state, ProcessState::Running);
    until("its trap", || tree.file("up").exists()).await;
    let pid = Pid::from_raw(status.pid.expect("a pid").cast_signed());
    assert!(tree.living().iter().any(|&(living, _)| living == pid));

    let stopped = job.stop(soon()).await;
    assert!(tree.is_gone());
    assert_eq!(tree.read("asked"), "asked\n");
    assert_eq!(stopped.exit, Some(Exit::Code(3)));
    assert_eq!(job.status().borrow().state, ProcessState::Stopped);
    assert_eq!(job.status().borrow().pid, None);
    assert!(matches!(job.finished().await, RunEnd::Stopped { .. }));
    assert!(matches!(job.ready().await, Err(RunEnd::Stopped { .. })));
    assert_eq!(job.stop(soon()).await, stopped, "asked again it says the same");
}

#[tokio::test]
async fn a_job_that_ends_by_a_real_time_signal_has_ended() {
    let tree = Tree::new();
    let mut spec = tree.spec("kill -40 $$; sleep 1000");
    spec.restart = RestartPolicy { max: 0, ..RestartPolicy::default() };
    let job = run(spec);
    let error = job.finished().await;
    assert!(error.to_string().contains("signal 40"), "{error}");
    assert_eq!(job.status().borrow().pid, None);
    assert_eq!(job.stop(soon()).await.exit, Some(Exit::Signal(40)));
}

#[tokio::test]
async fn a_job_that_ignores_the_signal_is_killed_with_all_its_kin_within_the_budget() {
    let tree = Tree::new();
    let spec = tree.spec(STUBBORN);
    let (timeout, budget) = (spec.stop_timeout, spec.stop_budget());
    let job = run(spec);
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;

    let began = BootTime::now();
    let stopped = job.stop(began + budget).await;
    let now = BootTime::now();
    assert!(tree.is_gone(), "said to be stopped, but these live: {:?}", tree.living());
    // On a machine that has time for it. A kill that waited for something else would come seconds later.
    let over = now.duration_since(began + budget);
    assert!(over < Duration::from_secs(1), "{over:?} over");
    // SIGKILL comes a fixed time before the end of the budget, which does not wait for an order that is late.
    let given = now.duration_since(began);
    assert!(given >= timeout, "not given its time: {given:?}");
    assert_eq!(stopped.exit, Some(Exit::Signal(9)));
}

#[tokio::test]
async fn a_job_that_goes_on_forking_is_ended_all_the_same() {
    let tree = Tree::new();
    // Each sleeper is in a session of its own, and three shells make new ones as fast as they can.
    let job = run(tree.spec(
        "trap '' TERM; breed() { while :; do setsid sleep 1 & [ $((n=n+1)) -lt 40 ] || { n=0; sleep 0.2; }; done; }
         breed & setsid sh -c 'trap \"\" TERM; while :; do setsid sleep 1 & sleep 0.01; done' & breed",
    ));
    until("a crowd", || tree.living().len() >= 60).await;
    let stopped = job.stop(soon()).await;
    assert!(tree.is_gone(), "said to be stopped, but {} live", tree.living().len());
    assert!(stopped.took < Duration::from_secs(5), "{:?}", stopped.took);
}

#[tokio::test]
async fn a_stop_without_time_kills_at_once() {
    let tree = Tree::new();
    let mut spec = tree.spec(STUBBORN);
    spec.stop_timeout = Duration::from_secs(3600 / 2);
    let log = std::fs::File::create(tree.file("log")).expect("a log");
    let logged = tracing_subscriber::fmt().with_writer(std::sync::Mutex::new(log)).with_ansi(false).finish();
    let _logged = tracing::subscriber::set_default(logged);
    for shortens in [false, true] {
        let (renewer, work_until) = lease(Duration::from_secs(3600));
        let job = JobRun::start(spec.clone(), work_until, guards());
        until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
        let began = BootTime::now();
        if shortens {
            renewer.send_replace(began);
            assert!(matches!(job.finished().await, RunEnd::LeaseEnded { .. }));
        }
        let exit = job.stop(began).await.exit;
        assert!(tree.is_gone());
        assert!(BootTime::now().duration_since(began) < Duration::from_secs(3));
        // By its guard, which the worker does not end before it can.
        assert_eq!(exit, Some(Exit::Signal(9)));
        assert!(!tree.read("log").contains("the guard has not ended the job"), "{}", tree.read("log"));
    }
}

#[tokio::test]
async fn a_stop_ends_when_the_cgroup_is_empty_though_no_child_ends_then() {
    let Some(root) = CgroupRoot::new("late") else {
        return zk_testkit::skip("there is no cgroup v2 in which this user may make one");
    };
    let tree = Tree::new();
    let mut spec = tree.spec("exec sleep 1000");
    spec.stop_timeout = Duration::from_secs(60);
    let job = JobRun::start(spec, long_lease(), guards().cgroup(&root.0));
    job.ready().await.expect("it runs");
    let mut other = std::process::Command::new("sleep").arg("1000").spawn().expect("it runs");
    std::fs::write(root.0.join("job-orders/cgroup.procs"), other.id().to_string()).expect("moved");
    let began = BootTime::now();
    let ends = async {
        until("the end of the job", || tree.is_gone()).await;
        // The guard has seen it by then, at the latest a moment later: a slow machine makes no failure of it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.kill().expect("it lives");
        other.wait().expect("its own child");
    };
    tokio::join!(job.stop(began + Duration::from_secs(120)), ends);
    assert!(BootTime::now().duration_since(began) < Duration::from_secs(30));
}

#[tokio::test]
async fn a_later_stop_can_hasten_an_earlier_one() {
    let tree = Tree::new();
    let mut spec = tree.spec(STUBBORN);
    spec.stop_timeout = Duration::from_secs(60);
    let job = run(spec);
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    let patient = job.stop(BootTime::now() + Duration::from_secs(120));
    let hasty = async {
        let mut status = job.status();
        status.wait_for(|status| status.state == ProcessState::Stopping).await.expect("it goes on");
        job.stop(BootTime::now() + Duration::from_millis(500)).await
    };
    let began = BootTime::now();
    tokio::join!(patient, hasty);
    assert!(BootTime::now().duration_since(began) < Duration::from_secs(10));
    assert!(tree.is_gone());
}

/// A job that needs a second and a half to end, and says when it has.
const SLOW: &str = "trap 'echo asked > asked; sleep 1.5; echo done > done; exit 0' TERM; echo > up; while :; do sleep 0.02; done";

#[tokio::test]
async fn a_stop_can_give_more_than_the_stop_timeout_while_the_lease_is_renewed() {
    let tree = Tree::new();
    let (renewer, work_until) = lease(Duration::from_secs(1));
    let job = JobRun::start(tree.spec(SLOW), work_until, guards());
    let renewals = tokio::spawn(async move {
        loop {
            renewer.send_replace(BootTime::now() + Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    until("its trap", || tree.file("up").exists()).await;
    let stopped = job.stop_within(Duration::from_secs(60)).await;
    assert_eq!((tree.read("done").as_str(), stopped.exit), ("done\n", Some(Exit::Code(0))));
    renewals.abort();
}

#[tokio::test]
async fn a_long_stop_ends_with_a_lease_that_is_not_renewed() {
    let tree = Tree::new();
    let (_renewer, work_until) = lease(Duration::from_secs(2));
    let end = *work_until.borrow();
    let job = JobRun::start(tree.spec(STUBBORN), work_until, guards());
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    job.stop_within(Duration::from_secs(600)).await;
    assert!(tree.is_gone() && BootTime::now() < end);
}

#[tokio::test]
async fn a_long_stop_is_hastened_by_one_with_the_stop_timeout() {
    let tree = Tree::new();
    let job = run(tree.spec(STUBBORN));
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    let began = BootTime::now();
    let hasty = async {
        let mut status = job.status();
        status.wait_for(|status| status.state == ProcessState::Stopping).await.expect("it goes on");
        job.stop(soon() + Duration::from_secs(600)).await
    };
    tokio::join!(job.stop_within(Duration::from_secs(600)), hasty);
    assert!(tree.is_gone() && BootTime::now().duration_since(began) < Duration::from_secs(10));
}

#[tokio::test]
async fn a_stopped_process_is_continued_to_hear_the_signal() {
    let tree = Tree::new();
    let mut spec = tree.spec("trap 'echo asked > asked; exit' TERM; echo > up; while :; do sleep 0.02; done");
    spec.stop_timeout = Duration::from_secs(10);
    let job = run(spec);
    until("the job", || tree.file("up").exists()).await;
    for (pid, _) in tree.living() {
        let _ = kill(pid, Signal::SIGSTOP);
    }
    job.stop(soon() + Duration::from_secs(10)).await;
    assert_eq!(tree.read("asked"), "asked\n");
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_the_job_in_time() {
    let tree = Tree::new();
    let spec = tree.spec(STUBBORN);
    let (_renewer, work_until) = lease(Duration::from_secs(2));
    let end = *work_until.borrow();
    let job = JobRun::start(spec, work_until, guards());
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    let error = job.finished().await;
    let now = BootTime::now();
    assert!(matches!(error, RunEnd::LeaseEnded { .. }), "{error}");
    assert!(tree.is_gone());
    assert!(now < end, "{:?} late", now.duration_since(end));
    assert_eq!(job.status().borrow().state, ProcessState::Fatal);
}

#[tokio::test]
async fn a_lease_whose_holder_is_gone_ends_the_job_in_time() {
    let tree = Tree::new();
    let (renewer, work_until) = lease(Duration::from_secs(2));
    let end = *work_until.borrow();
    let job = JobRun::start(tree.spec(STUBBORN), work_until, guards());
    job.ready().await.expect("it runs");
    drop(renewer);
    assert!(matches!(job.finished().await, RunEnd::LeaseEnded { .. }));
    assert!(BootTime::now() < end);
}

#[tokio::test]
async fn a_lease_too_short_to_stop_in_starts_nothing() {
    let tree = Tree::new();
    let spec = tree.spec("echo > started; sleep 1000");
    let (_renewer, work_until) = lease(spec.stop_budget() - Duration::from_millis(1));
    let job = JobRun::start(spec, work_until, guards());
    assert!(matches!(job.finished().await, RunEnd::LeaseEnded { .. }));
    assert!(!tree.file("started").exists());
}

#[tokio::test]
async fn a_job_that_waits_to_be_started_ends_with_its_lease() {
    let tree = Tree::new();
    let lease = Lease::lasting(Duration::from_secs(1));
    lease.suspend(true);
    let job = JobRun::start(tree.spec("echo > started; sleep 1000"), &lease, guards());
    lease.renew(Duration::from_secs(2));
    let end = tokio::time::timeout(PATIENCE, job.finished()).await;
    assert!(matches!(end, Ok(RunEnd::LeaseEnded { .. })), "{end:?}");
    assert!(BootTime::now() + Duration::from_secs(1) > lease.ends(), "the renewal counts");
    assert!(!tree.file("started").exists());
}

#[tokio::test]
async fn a_freezing_job_that_waits_to_be_started_needs_no_time_to_stop() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo > started; sleep 1000");
    (spec.freezes, spec.stop_timeout) = (true, Duration::from_secs(20));
    let lease = Lease::lasting(Duration::from_secs(20));
    lease.suspend(true);
    let job = JobRun::start(spec, &lease, guards());
    // Time passes in which one that does not freeze would end.
    let ended = tokio::time::timeout(Duration::from_millis(300), job.finished()).await;
    assert!(ended.is_err(), "{ended:?}");
    lease.renew(Duration::from_secs(60));
    lease.suspend(false);
    until("the job", || tree.file("started").exists()).await;
    job.stop(soon()).await;
}

#[tokio::test]
async fn a_job_that_keeps_ending_is_given_up_after_its_restarts() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo run >> runs; exit 7");
    spec.restart = RestartPolicy {
        max: 2,
        within: Duration::from_secs(60),
        backoff: Duration::from_millis(20),
        backoff_max: Duration::from_millis(30),
    };
    let job = run(spec);
    let error = job.finished().await;
    assert_eq!(error.to_string(), "job orders has failed: exit code 7; not started again after 2 restarts");
    assert_eq!(tree.lines("runs").len(), 3);
    let status = job.status().borrow().clone();
    assert_eq!((status.state, status.restarts), (ProcessState::Fatal, 2));
    // Stopping what has ended is no trouble, and takes no time.
    assert_eq!(job.stop(soon()).await.exit, Some(Exit::Code(7)));
}

#[tokio::test]
async fn a_job_that_ends_once_is_started_again_and_gets_ready_again() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo run >> runs; [ -e died ] || { touch died; exit 1; }; exec sleep 1000");
    spec.restart = RestartPolicy { backoff: Duration::from_millis(10), ..RestartPolicy::default() };
    let job = run(spec);
    let mut status = job.status();
    status
        .wait_for(|status| status.state == ProcessState::Running && status.restarts == 1)
        .await
        .expect("it goes on");
    until("its second word", || tree.lines("runs").len() == 2).await;
    job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test]
async fn a_stop_during_the_pause_before_a_restart_ends_it() {
    let tree = Tree::new();
    let mut spec = tree.spec("echo run >> runs; exit 1");
    spec.restart = RestartPolicy {
        backoff: Duration::from_secs(600),
        backoff_max: Duration::from_secs(600),
        ..RestartPolicy::default()
    };
    let job = run(spec);
    let mut status = job.status();
    status.wait_for(|status| status.state == ProcessState::Backoff).await.expect("it goes on");
    let stopped = job.stop(soon()).await;
    assert_eq!(stopped.exit, Some(Exit::Code(1)));
    assert_eq!(tree.lines("runs").len(), 1);
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    let tree = Tree::new();
    // One that goes when asked, and one that does not, both beyond the process group.
    let job = run(tree.spec(
        "setsid sh -c 'trap \"echo asked > asked; exit\" TERM; echo > polite; while :; do sleep 0.02; done' &
         setsid sh -c 'trap \"\" TERM; echo > up; while :; do sleep 0.02; done' &
         while [ ! -e up -o ! -e polite ]; do sleep 0.02; done; exit 5",
    ));
    let error = job.finished().await;
    assert!(error.to_string().contains("exit code 5"), "{error}");
    assert!(tree.is_gone(), "{:?}", tree.living());
    assert_eq!(tree.read("asked"), "asked\n");
}

/// A log with room for lines once it is opened.
#[derive(Debug, Default)]
struct Gate {
    is_open: watch::Sender<bool>,
    lines: AtomicU64,
    dropped: AtomicU64,
}

impl Reporter for Gate {
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut is_open = self.is_open.subscribe();
        Box::pin(async move { drop(is_open.wait_for(|is_open| *is_open).await) })
    }

    fn line(&self, _: &str, _: Stream, line: &str) {
        // One that is cut off counts as dropped.
        self.lines.fetch_add(u64::from(line.len() == 99), Ordering::Relaxed);
    }

    fn lines_dropped(&self, _: &str, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_last_lines_that_a_busy_worker_does_not_read_are_counted() {
    const LINES: u64 = 1000;
    let tree = Tree::new();
    let gate = Arc::new(Gate::default());
    // The worker takes the first line alone. The rest fits into the pipes, so the job ends, but not into the last one.
    let job = tree.spec("seq -f %099.0f 1 1; sleep 0.2; exec seq -f %099.0f 2 1000");
    let run = JobRun::start(job, long_lease(), guards().reporter(gate.clone()));
    run.finished().await;
    gate.is_open.send_replace(true);
    let dropped = || gate.dropped.load(Ordering::Relaxed);
    let all = || gate.lines.load(Ordering::Relaxed) + dropped();
    until("all lines", || all() >= LINES).await;
    assert!(dropped() > 0);
    // A cut before the end of a line counts twice.
    assert!(all() <= LINES + 1, "{}", all());
}

#[tokio::test]
async fn a_program_that_cannot_run_is_told_with_its_reason() {
    let tree = Tree::new();
    let mut spec = tree.spec("");
    spec.command = vec!["./not-there".into()];
    let error = run(spec).finished().await.to_string();
    assert!(error.contains("can't run ./not-there: No such file or directory"), "{error}");

    let mut spec = tree.spec("");
    spec.working_dir = Some("/not/there".into());
    let error = run(spec).finished().await.to_string();
    assert!(error.contains("working_dir /not/there"), "{error}");
}

#[tokio::test]
async fn a_guard_that_cannot_be_started_is_told_with_its_path() {
    let tree = Tree::new();
    let job = JobRun::start(tree.spec("sleep 1000"), long_lease(), guards().exe("/not/there/job-guard"));
    let error = job.finished().await.to_string();
    assert!(error.contains("/not/there/job-guard"), "{error}");
}

#[tokio::test]
async fn a_dropped_run_ends_its_job() {
    let tree = Tree::new();
    let job = run(tree.spec(STUBBORN));
    until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
    drop(job);
    until("the end of the job", || tree.is_gone()).await;
}

#[test]
fn a_runtime_that_shuts_down_ends_its_jobs() {
    let tree = Tree::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let job = run(tree.spec(STUBBORN));
        until("all processes", || tree.living().len() >= STUBBORN_PROCESSES).await;
        std::mem::forget(job);
    });
    drop(runtime);
    crate::support::wait_for("the end of the job", || tree.is_gone());
}

#[tokio::test]
async fn the_guard_ends_with_its_job_and_by_no_polite_signal_before() {
    let tree = Tree::new();
    let before = guards_of(Pid::this());
    let job = run(tree.spec("while :; do sleep 0.05; done"));
    job.ready().await.expect("it runs");
    let main = job.status().borrow().pid.expect("a pid").cast_signed();
    let parent = std::fs::read_to_string(format!("/proc/{main}/stat")).expect("it lives");
    let parent = parent.rsplit(')').next().and_then(|rest| rest.split(' ').nth(2)).expect("a parent");
    let guard = Pid::from_raw(parent.parse().expect("a pid"));
    assert!(!before.contains(&guard));
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        kill(guard, signal).expect("it lives");
    }
    // That nothing happens can only be seen by giving it time to happen: a longer
    // wait would see more, a slow machine makes no failure of it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(job.status().borrow().state, ProcessState::Running);
    job.stop(soon()).await;
    assert_eq!(crate::support::name_of(guard), None);
}
