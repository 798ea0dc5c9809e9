//! Jobs whose processes are stopped while it is not certain that their worker leads.

use std::time::Duration;

use crate::support::{
    CgroupRoot, STUBBORN, STUBBORN_PROCESSES, Tree, WorkerSetup, guards, is_stopped, lease, long_lease, soon,
    state_of, until, wait_for,
};
use boot_time::BootTime;
use job_guard::{Check, Guards, Job, JobRun, ProcessState, ReadyProbe, RunEnd, WorkTime};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Counts on while it runs.
const COUNTING: &str = "while :; do echo >> count; sleep 0.01; done";

fn freezing(tree: &Tree, script: &str) -> Job {
    Job { freezes: true, ..tree.spec(script) }
}

struct Run {
    job: JobRun,
    suspend: watch::Sender<bool>,
    /// The lease, which nothing renews.
    _lease: Option<watch::Sender<BootTime>>,
}

impl Run {
    fn start(spec: Job, guards: Guards) -> Run {
        Run::until(spec, long_lease(), guards)
    }

    fn until(spec: Job, until: watch::Receiver<BootTime>, guards: Guards) -> Run {
        let (suspend, suspended) = watch::channel(false);
        let job = JobRun::start(spec, WorkTime::new(until, suspended), guards);
        Run { job, suspend, _lease: None }
    }

    fn state(&self) -> ProcessState {
        self.job.status().borrow().state
    }

    async fn is(&self, state: ProcessState) {
        until(&format!("a job that is {state}"), || self.state() == state).await;
    }
}

fn pids(tree: &Tree) -> Vec<Pid> {
    tree.living().into_iter().map(|(pid, _)| pid).collect()
}

fn count(tree: &Tree) -> usize {
    tree.lines("count").len()
}

/// Nothing counts for a while, which is long for a job that counts a hundred times a second. That nothing happens shows only
/// with time: a slow machine makes no failure of it.
async fn rests(tree: &Tree) {
    let before = count(tree);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count(tree), before, "it counts while it is frozen");
}

#[tokio::test]
async fn the_whole_tree_rests_and_the_same_processes_continue() {
    let tree = Tree::new();
    let run = Run::start(freezing(&tree, &format!("echo $$ > shell; ({COUNTING}) & {STUBBORN}")), guards());
    run.job.ready().await.expect("it runs");
    until("all of its processes", || tree.living().len() > STUBBORN_PROCESSES && count(&tree) > 3).await;
    let shell = Pid::from_raw(tree.lines("shell")[0].parse().expect("its number"));
    for _ in 0..2 {
        run.suspend.send_replace(true);
        run.is(ProcessState::Frozen).await;
        let frozen = pids(&tree);
        assert!(frozen.len() >= STUBBORN_PROCESSES, "{frozen:?}");
        for pid in &frozen {
            assert!(is_stopped(*pid), "{pid}: {:?}", state_of(*pid));
        }
        rests(&tree).await;
        // A process that another program continues is stopped again. Not any of them: a `sleep` of the loop would end instead.
        kill(shell, Signal::SIGCONT).expect("a living process");
        until("it to be stopped again", || is_stopped(shell)).await;

        run.suspend.send_replace(false);
        run.is(ProcessState::Running).await;
        until("every process to continue", || !frozen.iter().any(|pid| is_stopped(*pid))).await;
        let so_far = count(&tree);
        until("it to count on", || count(&tree) > so_far + 3).await;
    }
    assert_eq!(run.job.status().borrow().restarts, 0);
    run.job.stop(soon()).await;
    assert!(tree.is_gone());
}

#[tokio::test]
async fn a_cgroup_is_frozen_as_a_whole_and_can_be_killed() {
    let Some(root) = CgroupRoot::new("freeze") else {
        return zk_testkit::skip("there is no cgroup v2 in which this user may make one");
    };
    let tree = Tree::new();
    let events = || std::fs::read_to_string(root.0.join("job-orders/cgroup.events")).unwrap_or_default();
    let in_cgroups = || guards().cgroup(&root.0);
    let run = Run::start(freezing(&tree, &format!("({COUNTING}) & {STUBBORN}")), in_cgroups());
    run.job.ready().await.expect("it runs");
    until("all of its processes", || tree.living().len() > STUBBORN_PROCESSES && count(&tree) > 3).await;
    run.suspend.send_replace(true);
    run.is(ProcessState::Frozen).await;
    assert!(events().contains("frozen 1"), "{}", events());
    assert!(pids(&tree).iter().all(|pid| state_of(*pid) != Some('T')), "nothing gets a signal");
    rests(&tree).await;
    run.suspend.send_replace(false);
    run.is(ProcessState::Running).await;
    let so_far = count(&tree);
    until("it to count on", || count(&tree) > so_far + 3).await;

    run.suspend.send_replace(true);
    run.is(ProcessState::Frozen).await;
    run.job.stop(soon()).await;
    assert!(tree.is_gone());
    // The next run does not begin frozen.
    let next = Run::start(freezing(&tree, COUNTING), in_cgroups());
    let so_far = count(&tree);
    until("the next run to count", || count(&tree) > so_far + 3).await;
    next.job.stop(soon()).await;
}

/// It is shown as a zombie while its other thread counts.
#[tokio::test]
async fn a_process_whose_main_thread_has_ended_rests_and_continues() {
    let tree = Tree::new();
    let program = "
import ctypes, threading, time
def count():
    while True:
        with open('count', 'a') as file:
            file.write('\\n')
        time.sleep(0.01)
threading.Thread(target=count).start()
ctypes.CDLL(None).pthread_exit(None)
";
    let spec = Job { command: ["python3", "-c", program].map(str::to_owned).to_vec(), ..freezing(&tree, "") };
    let run = Run::start(spec, guards());
    run.job.ready().await.expect("it runs");
    let main = Pid::from_raw(run.job.status().borrow().pid.expect("a pid").cast_signed());
    until("it to count alone", || count(&tree) > 3 && state_of(main) == Some('Z')).await;
    for _ in 0..2 {
        run.suspend.send_replace(true);
        run.is(ProcessState::Frozen).await;
        rests(&tree).await;
        run.suspend.send_replace(false);
        run.is(ProcessState::Running).await;
        let so_far = count(&tree);
        until("it to count on", || count(&tree) > so_far + 3).await;
    }
    run.job.stop(soon()).await;
    assert_eq!(state_of(main), None);
}

#[tokio::test]
async fn a_process_that_the_job_has_stopped_itself_stays_stopped() {
    let tree = Tree::new();
    let script = format!("sleep 1000 & echo $! > own; kill -STOP $!; {COUNTING}");
    let run = Run::start(freezing(&tree, &script), guards());
    until("it to count", || count(&tree) > 3).await;
    let own = Pid::from_raw(tree.read("own").trim().parse().expect("a pid"));
    run.suspend.send_replace(true);
    run.is(ProcessState::Frozen).await;
    run.suspend.send_replace(false);
    let so_far = count(&tree);
    until("it to count on", || count(&tree) > so_far + 3).await;
    assert_eq!(state_of(own), Some('T'));
    run.job.stop(soon()).await;
}

#[tokio::test]
async fn at_the_end_of_its_lease_a_frozen_job_is_killed_and_not_asked() {
    let tree = Tree::new();
    let script = format!("trap 'echo asked > asked; exit' TERM; {COUNTING}");
    let mut spec = freezing(&tree, &script);
    spec.stop_timeout = Duration::from_secs(1);
    let (renewal, work_until) = lease(Duration::from_secs(4));
    let end = *renewal.borrow();
    let run = Run { _lease: Some(renewal), ..Run::until(spec, work_until, guards()) };
    until("it to count", || count(&tree) > 3).await;
    run.suspend.send_replace(true);
    run.is(ProcessState::Frozen).await;
    until("its end", || tree.is_gone()).await;
    let left = end.duration_since(BootTime::now());
    assert!(left > Duration::ZERO, "it outlived its lease");
    assert!(left < Duration::from_millis(600), "it was ended {left:?} before its lease");
    assert!(matches!(run.job.finished().await, RunEnd::LeaseEnded { .. }));
    assert!(!tree.file("asked").exists());
}

#[tokio::test]
async fn a_frozen_job_that_is_stopped_is_killed_and_one_that_runs_is_asked() {
    for frozen in [true, false] {
        let tree = Tree::new();
        let script = format!("trap 'echo asked > asked; exit' TERM; {COUNTING}");
        let mut spec = freezing(&tree, &script);
        spec.stop_timeout = Duration::from_secs(20);
        let run = Run::start(spec, guards());
        until("it to count", || count(&tree) > 3).await;
        if frozen {
            run.suspend.send_replace(true);
            run.is(ProcessState::Frozen).await;
        }
        run.job.stop(BootTime::now() + Duration::from_secs(60)).await;
        assert!(tree.is_gone());
        assert_eq!(tree.file("asked").exists(), !frozen);
    }
}

#[tokio::test]
async fn a_job_is_not_started_while_it_would_have_to_rest() {
    let tree = Tree::new();
    let (suspend, suspended) = watch::channel(true);
    let time = WorkTime::new(long_lease(), suspended);
    let job = JobRun::start(freezing(&tree, COUNTING), time, guards());
    // That nothing is started shows only with time: a slow machine makes no failure of it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(tree.is_gone() && count(&tree) == 0, "it was started");
    suspend.send_replace(false);
    until("it to count", || count(&tree) > 3).await;
    job.stop(soon()).await;
}

#[tokio::test]
async fn checks_say_nothing_about_a_frozen_job() {
    let tree = Tree::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let mut spec = freezing(&tree, COUNTING);
    let pace = Duration::from_millis(20);
    // It would pass at once: the kernel accepts connections to a stopped process.
    spec.ready = ReadyProbe::Tcp { address, interval: pace, timeout: Duration::from_secs(20) };
    let command = ["sh", "-c", "echo >> tries; [ ! -e stuck ]"].map(str::to_owned).to_vec();
    let probe = ReadyProbe::Exec { command, interval: pace, timeout: Duration::from_secs(20) };
    spec.liveness = Some(Check { probe, failures: 2 });
    let run = Run::start(spec, guards());
    run.job.ready().await.expect("it serves");
    until("tries", || tree.lines("tries").len() > 2).await;
    run.suspend.send_replace(true);
    run.is(ProcessState::Frozen).await;
    std::fs::write(tree.file("stuck"), "").expect("write");
    // The try that is under way ends; then no other begins, which shows only with time.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let so_far = tree.lines("tries").len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(tree.lines("tries").len(), so_far, "it is checked while it is frozen");
    assert_eq!(run.state(), ProcessState::Frozen);
    std::fs::remove_file(tree.file("stuck")).expect("remove");
    run.suspend.send_replace(false);
    until("more tries", || tree.lines("tries").len() > so_far + 3).await;
    assert_eq!((run.state(), run.job.status().borrow().restarts), (ProcessState::Running, 0));
    run.job.stop(soon()).await;
}

#[test]
fn the_guard_of_a_frozen_worker_freezes_the_job_and_then_kills_it() {
    let tree = Tree::new();
    let mut setup = WorkerSetup::new(&tree, "trap 'echo asked > asked' TERM; while :; do sleep 0.05; done");
    (setup.freezes, setup.lease, setup.stop_timeout) = (true, Duration::from_secs(4), Duration::from_secs(1));
    let worker = setup.start();
    let job = pids(&tree);
    worker.signal(Signal::SIGSTOP);
    wait_for("its job to be stopped", || {
        assert!(!tree.is_gone(), "it was ended, and not stopped first");
        job.iter().any(|pid| is_stopped(*pid))
    });
    wait_for("the end of the job", || tree.is_gone());
    let (now, end) = (BootTime::now(), worker.lease_until());
    assert!(now < end, "the job outlived its lease by {:?}", now.duration_since(end));
    assert!(!tree.file("asked").exists());
    worker.signal(Signal::SIGCONT);
    worker.expect("finished job orders ");
}

#[test]
fn a_worker_that_was_frozen_for_a_moment_finds_its_job_as_it_was() {
    let tree = Tree::new();
    // Its children have the name of the shell too until they are `sleep`.
    let script = format!("echo $$ > shell; {COUNTING}");
    let mut setup = WorkerSetup::new(&tree, &script);
    // It renews its lease after a quarter, and its guard freezes the job half a lease later.
    (setup.freezes, setup.lease, setup.stop_timeout) = (true, Duration::from_secs(8), Duration::from_secs(3));
    let mut worker = setup.start();
    wait_for("it to count", || count(&tree) > 3);
    let shell = Pid::from_raw(tree.lines("shell")[0].parse().expect("its number"));
    worker.signal(Signal::SIGSTOP);
    wait_for("its job to be stopped", || is_stopped(shell));
    worker.signal(Signal::SIGCONT);
    let so_far = count(&tree);
    wait_for("it to count on", || count(&tree) > so_far + 3);
    assert!(pids(&tree).contains(&shell));
    worker.tell("stop 20000");
    worker.expect("stopped");
}

#[test]
fn the_job_of_a_worker_that_is_killed_in_a_pause_is_killed_and_does_not_continue() {
    let tree = Tree::new();
    let script = format!("trap 'echo asked > asked' TERM; {COUNTING}");
    let mut setup = WorkerSetup::new(&tree, &script);
    (setup.freezes, setup.stop_timeout) = (true, Duration::from_secs(20));
    let mut worker = setup.start();
    wait_for("it to count", || count(&tree) > 3);
    worker.tell("suspend on");
    wait_for("its job to be stopped", || pids(&tree).iter().all(|pid| is_stopped(*pid)));
    let so_far = count(&tree);
    worker.signal(Signal::SIGKILL);
    worker.wait();
    wait_for("the end of the job", || tree.is_gone());
    assert_eq!((count(&tree), tree.file("asked").exists()), (so_far, false));
}
