//! What the tests of jobs share: marked process trees, conditions with a deadline, and a worker that
//! is a process of its own, to be killed and frozen.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test binary uses its part")]

mod cgroup_root;
mod frozen;
pub mod hung_disk;
pub mod memory_group;
mod tree;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use boot_time::BootTime;
pub use cgroup_root::CgroupRoot;
pub use frozen::Disk;
use job_guard::{
    ExitCodes, Guards, Job, JobOutput, JobProcess, JobRun, Limits, OnExit, ReadyProbe, RestartPolicy,
    StateLock, StopSignal, WorkTime, adopt_orphans, left_runs, sweep, tend_orphans,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
pub use tree::{PATIENCE, Tree, until, wait_for};

/// Ignores SIGTERM, and has children that do: one in its group, one that made a session of its own
/// with a child of its own, and one that forked twice on the way there. Six processes.
pub const STUBBORN: &str = r#"
    trap '' TERM
    sleep 1000 &
    setsid sh -c 'sleep 1000 & exec sleep 1000' &
    (setsid sh -c '(sleep 1000 &); exec sleep 1000' &)
    while :; do sleep 0.05; done
"#;

/// The processes of [`STUBBORN`], of which the naps of its loop come and go.
pub const STUBBORN_PROCESSES: usize = 6;

/// A shell job that runs in the directory of the tree.
fn job(script: &str, mark: (String, String), dir: PathBuf) -> Job {
    let mut env = leadership();
    env.extend([mark]);
    Job {
        env,
        working_dir: Some(dir),
        stop_timeout: Duration::from_millis(300),
        restart: RestartPolicy { max: 0, ..RestartPolicy::default() },
        ..Job::new("orders", ["sh", "-c", script])
    }
}

impl Tree {
    /// A shell job that runs in the test's directory.
    pub fn spec(&self, script: &str) -> Job {
        job(script, self.variable(), self.dir.path().to_owned())
    }
}

/// A job of several processes with these names and scripts, each as the job would be. Together they have its stop timeout.
pub fn group<S: AsRef<str>>(job: Job, scripts: &[(S, S)]) -> Job {
    let share = job.stop_timeout / u32::try_from(scripts.len()).expect("few").max(1);
    let process = |(name, script): &(S, S)| JobProcess {
        name: name.as_ref().to_owned(),
        program: Job {
            name: format!("{}/{}", job.name, name.as_ref()),
            command: ["sh", "-c", script.as_ref()].map(str::to_owned).to_vec(),
            stop_timeout: share,
            ..job.clone()
        },
        on_exit: OnExit::default(),
    };
    Job { processes: scripts.iter().map(process).collect(), ..job.clone() }
}

/// The name of a process, `None` once it is gone or a zombie.
pub fn name_of(pid: Pid) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    (!field("State:")?.starts_with('Z')).then_some(())?;
    field("Name:").map(str::to_owned)
}

/// The state of a process by one letter, `None` once it is gone.
pub fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether it is stopped. A shell whose child was stopped between vfork and exec does nothing either, but it is shown as
/// stopped only after that.
pub fn is_stopped(pid: Pid) -> bool {
    let waits_for_exec = || {
        let wchan = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        ["kernel_clone", "wait_for_vfork_done", "_do_fork"].contains(&wchan.as_str())
    };
    match state_of(pid) {
        Some('T') => true,
        Some('D') => waits_for_exec(),
        _ => false,
    }
}

/// Sends a signal to a worker or a guard. After SIGSTOP it has stopped; a shell may not, see above.
pub fn send(pid: Pid, signal: Signal) {
    if signal == Signal::SIGSTOP {
        zk_testkit::freeze(pid.as_raw().cast_unsigned()).expect("a living process");
    } else {
        kill(pid, signal).expect("a living process");
    }
}

/// The guards that are children of `parent`.
pub fn guards_of(parent: Pid) -> Vec<Pid> {
    let mut children = children_of(parent);
    children.retain(|&pid| name_of(pid).as_deref() == Some("dr-guard"));
    children
}

/// The children of a process, dead ones that nobody has reaped among them.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{parent}/task")).expect("a living parent").flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(children.split_ascii_whitespace().map(|pid| Pid::from_raw(pid.parse().expect("a pid"))));
    }
    found
}

/// What a worker sets for a leadership.
const LEADERSHIP: [(&str, &str); 9] = [
    ("DR_JOB", "orders"),
    ("DR_MEMBER", "east-1"),
    ("DR_SITE", "east"),
    ("DR_SLOT", "0"),
    ("DR_TERM", "7"),
    ("DR_FENCING_TOKEN", "42"),
    ("DR_CAUSE", "startup"),
    ("DR_PREVIOUS_LEADER", ""),
    ("DR_PREVIOUS_SITE", ""),
];

fn leadership() -> BTreeMap<String, String> {
    LEADERSHIP.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Guards with the names of a worker.
pub fn names() -> Guards {
    Guards::new().name("dr").withhold(LEADERSHIP.map(|(name, _)| name))
}

pub fn guards() -> Guards {
    names().exe(env!("CARGO_BIN_EXE_job-guard"))
}

/// A lease that is not renewed unless the test does.
pub fn lease(length: Duration) -> (watch::Sender<BootTime>, watch::Receiver<BootTime>) {
    watch::channel(BootTime::now() + length)
}

/// A lease that outlives any test.
pub fn long_lease() -> watch::Receiver<BootTime> {
    lease(Duration::from_secs(3600)).1
}

pub fn run(spec: Job) -> JobRun {
    JobRun::start(spec, long_lease(), guards())
}

pub fn soon() -> BootTime {
    BootTime::now() + Duration::from_secs(10)
}

/// What a worker process is told.
#[derive(Serialize, Deserialize)]
struct WorkerOrders {
    script: String,
    processes: Vec<(String, String)>,
    mark: String,
    dir: PathBuf,
    lease_ms: u64,
    stop_timeout_ms: u64,
    freezes: bool,
    unarmed: bool,
    outlives: bool,
    lock_dir: Option<PathBuf>,
    cgroup: Option<PathBuf>,
    no_new_privileges: Option<bool>,
    guard_exe: PathBuf,
}

const WORKER_ORDERS: &str = "DR_TEST_WORKER";

/// A worker that is a process of its own: it runs one job, renews its lease four times in its length,
/// and says what happens. Killed when dropped.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    words: mpsc::Receiver<String>,
    /// Until when its lease lasts, by its own last word.
    lease_until: Arc<std::sync::Mutex<BootTime>>,
}

/// How a [`Worker`] is to be.
pub struct WorkerSetup<'a> {
    pub tree: &'a Tree,
    pub script: &'a str,
    /// The names and scripts of the processes that its job consists of, instead of `script`.
    pub processes: &'a [(&'a str, &'a str)],
    pub lease: Duration,
    pub stop_timeout: Duration,
    /// Whether its job freezes.
    pub freezes: bool,
    /// Whether its job has no deadline until it is told to arm it.
    pub unarmed: bool,
    /// Whether its job outlives it, and it continues the job that has outlived the worker before it.
    pub outlives: bool,
    pub lock_dir: Option<&'a Path>,
    pub cgroup: Option<&'a Path>,
    pub no_new_privileges: Option<bool>,
    /// Signals, by what a shell calls them, that it is started with ignoring.
    pub ignoring: &'a str,
    /// A directory of the programs' copies, which another user may run, and that user.
    pub runs_as: Option<(&'a Path, u32)>,
    pub env: &'a [(&'a str, &'a str)],
    /// The program of its guards, if it is not this build's.
    pub guard_exe: Option<PathBuf>,
    /// A command that starts it.
    pub prefix: &'a [&'a str],
    /// Its standard error; else that of the test.
    pub stderr: Option<&'a Path>,
}

/// Where this user can become another one: a directory, readable for all, with copies of the programs that a worker
/// of another user needs.
pub fn programs_for_all() -> tempfile::TempDir {
    let dir = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("tempdir");
    for (from, name) in [
        (std::env::current_exe().expect("this test"), "worker"),
        (PathBuf::from(env!("CARGO_BIN_EXE_job-guard")), "job-guard"),
    ] {
        zk_testkit::copy_program(from, dir.path().join(name));
    }
    dir
}

impl<'a> WorkerSetup<'a> {
    pub fn new(tree: &'a Tree, script: &'a str) -> WorkerSetup<'a> {
        WorkerSetup {
            tree,
            script,
            processes: &[],
            lease: Duration::from_secs(60),
            stop_timeout: Duration::from_millis(300),
            freezes: false,
            unarmed: false,
            outlives: false,
            lock_dir: None,
            cgroup: None,
            no_new_privileges: None,
            ignoring: "",
            runs_as: None,
            env: &[],
            guard_exe: None,
            prefix: &[],
            stderr: None,
        }
    }

    /// Starts it, and waits until its job runs.
    pub fn start(&self) -> Worker {
        self.start_in(|_| {})
    }

    /// Starts it, and waits until its job runs, which begins after `preparation` of its process.
    pub fn start_in(&self, preparation: impl FnOnce(Pid)) -> Worker {
        let worker = self.start_without(preparation);
        worker.expect("running");
        worker
    }

    /// Starts it, and its job after `preparation`, when it has the lock.
    pub fn start_without(&self, preparation: impl FnOnce(Pid)) -> Worker {
        let orders = WorkerOrders {
            script: self.script.to_owned(),
            processes: self
                .processes
                .iter()
                .map(|(name, script)| ((*name).to_owned(), (*script).to_owned()))
                .collect(),
            mark: self.tree.variable().1,
            dir: self.tree.dir.path().to_owned(),
            lease_ms: u64::try_from(self.lease.as_millis()).expect("short"),
            stop_timeout_ms: u64::try_from(self.stop_timeout.as_millis()).expect("short"),
            freezes: self.freezes,
            unarmed: self.unarmed,
            outlives: self.outlives,
            lock_dir: self.lock_dir.map(Path::to_owned),
            cgroup: self.cgroup.map(Path::to_owned),
            no_new_privileges: self.no_new_privileges,
            guard_exe: match (&self.guard_exe, self.runs_as) {
                (Some(exe), _) => exe.clone(),
                (None, Some((dir, _))) => dir.join("job-guard"),
                (None, None) => env!("CARGO_BIN_EXE_job-guard").into(),
            },
        };
        let exe = match self.runs_as {
            Some((dir, _)) => dir.join("worker"),
            None => std::env::current_exe().expect("this test"),
        };
        let mut command = Command::new("sh");
        command.args(["-c", "[ -z \"$0\" ] || trap '' $0; exec \"$@\"", self.ignoring]);
        command.args(self.prefix).arg(exe);
        if let Some((_, user)) = self.runs_as {
            command.uid(user).gid(user);
        }
        if let Some(file) = self.stderr {
            command.stderr(std::fs::File::create(file).expect("a file"));
        }
        let mut child = command
            .args(["--exact", "worker_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(WORKER_ORDERS, serde_json::to_string(&orders).expect("plain data"))
            .envs(self.env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the worker process");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let lease_until = Arc::new(std::sync::Mutex::new(BootTime::now()));
        let heard = Arc::clone(&lease_until);
        let (sender, words) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some(word) = line.split("worker: ").nth(1) else { continue };
                if let Some(ms) = word.strip_prefix("lease ") {
                    let ms = Duration::from_millis(ms.parse().expect("a number"));
                    *heard.lock().expect("no panic") = BootTime::from_duration(ms);
                } else if sender.send(word.to_owned()).is_err() {
                    break;
                }
            }
        });
        let mut worker = Worker { child, input, words, lease_until };
        worker.expect("prepared");
        preparation(worker.pid());
        worker.tell("go");
        worker
    }
}

impl Worker {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Its only guard.
    pub fn guard(&self) -> Pid {
        let mut guard = Vec::new();
        wait_for("a guard", || {
            guard = guards_of(self.pid());
            guard.len() == 1
        });
        guard[0]
    }

    pub fn lease_until(&self) -> BootTime {
        *self.lease_until.lock().expect("no panic")
    }

    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").expect("the worker listens");
    }

    /// The next thing it says, which has to begin like this.
    pub fn expect(&self, beginning: &str) -> String {
        let word = self.words.recv_timeout(PATIENCE).expect("the worker says something");
        assert!(word.starts_with(beginning), "the worker said {word:?}, not {beginning:?}");
        word
    }

    /// Whether it has said nothing since it was listened to.
    pub fn is_silent(&self) -> bool {
        self.words.try_recv().is_err()
    }

    /// Reaps it.
    pub fn wait(&mut self) {
        self.child.wait().expect("wait for the worker");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = kill(self.pid(), Signal::SIGCONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker process: the body of a test that only [`WorkerSetup::start`] runs.
pub fn worker_process() {
    let Ok(orders) = std::env::var(WORKER_ORDERS) else { return };
    let orders: WorkerOrders = serde_json::from_str(&orders).expect("well formed");
    adopt_orphans().expect("become a subreaper");
    let spec = Job {
        no_new_privileges: orders.no_new_privileges,
        stop_timeout: Duration::from_millis(orders.stop_timeout_ms),
        freezes: orders.freezes,
        outlives: orders.outlives,
        ..job(&orders.script, ("DR_TEST_TREE".to_owned(), orders.mark), orders.dir)
    };
    let spec = group(spec, &orders.processes);
    let mut guards = names().exe(orders.guard_exe);
    if let Some(dir) = orders.lock_dir {
        let mut lock = None;
        wait_for("the lock", || {
            lock = StateLock::acquire(&dir, "east-1").ok();
            lock.is_some()
        });
        guards = guards.lock(lock.expect("it was waited for"));
    }
    if let Some(dir) = orders.cgroup {
        guards = guards.cgroup(dir);
    }
    if let Some(log) = std::env::var_os("DR_TEST_LOG") {
        let file = std::fs::File::create(log).expect("a log");
        tracing_subscriber::fmt().with_writer(std::sync::Mutex::new(file)).with_ansi(false).init();
    }
    println!("worker: prepared");
    std::io::stdin().read_line(&mut String::new()).expect("the word to go");
    let lease = Duration::from_millis(orders.lease_ms);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        tokio::spawn(tend_orphans());
        let renew = move || {
            let until = BootTime::now() + lease;
            println!("worker: lease {}", until.as_duration().as_millis());
            until
        };
        let (sender, work_until) = watch::channel(renew());
        let renewal = tokio::spawn(async move {
            loop {
                // The pace of the renewals, as a session has one; nobody waits for it.
                tokio::time::sleep(lease / 4).await;
                // A lease that has run out is not renewed.
                if BootTime::now() < *sender.borrow() {
                    sender.send_replace(renew());
                }
            }
        });
        let (suspend, suspended) = watch::channel(false);
        let time = WorkTime::new(work_until, suspended);
        let first = if orders.unarmed { WorkTime::unlimited() } else { time.clone() };
        let left = left_runs(&guards).await;
        if orders.outlives {
            // What has ended by itself leaves a rest, which may not be proved to be gone.
            let _ = sweep(&guards, &left, BootTime::now() + Duration::from_millis(500)).await;
        }
        let mut job = Some(match left.into_iter().next() {
            Some(left) => {
                let (state, descriptors) = left.into_parts();
                JobRun::adopt(spec.clone(), first, guards, state, descriptors).expect("it can be continued")
            }
            None => JobRun::start(spec.clone(), first, guards),
        });
        let (line_sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = line_sender.send(line);
            }
        });
        if let Some(job) = &job {
            match job.ready().await {
                Ok(()) => println!("worker: running"),
                Err(error) => println!("worker: failed {error}"),
            }
        }
        loop {
            let finished = async {
                match &job {
                    Some(job) => job.finished().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                line = lines.recv() => match line.as_deref().and_then(|line| line.split_once(' ')) {
                    Some(("stop", ms)) => {
                        let within = Duration::from_millis(ms.parse().expect("a number"));
                        // One that has ended was said to be finished.
                        if let Some(job) = job.take() {
                            let stopped = job.stop(BootTime::now() + within).await;
                            println!("worker: stopped {} {:?}", stopped.took.as_millis(), stopped.exit);
                        }
                    }
                    Some(("arm", role)) => {
                        let Some(job) = &job else { continue };
                        let time = if role == "leader" { time.clone() } else { WorkTime::unlimited() };
                        match job.arm(spec.clone(), time).await {
                            Ok(()) => println!("worker: armed"),
                            Err(why) => println!("worker: not armed {why}"),
                        }
                    }
                    Some(("probe", _)) => {
                        let Some(job) = &job else { continue };
                        job.probe().await;
                        match job.ready().await {
                            Ok(()) => println!("worker: running"),
                            Err(error) => println!("worker: failed {error}"),
                        }
                    }
                    Some(("suspend", word)) => _ = suspend.send_replace(word == "on"),
                    Some(("starve", _)) => {
                        renewal.abort();
                        println!("worker: starving");
                    }
                    Some(("drop", _)) => drop(job.take()),
                    Some(("exhaust", _)) => {
                        let mut files = Vec::new();
                        while let Ok(file) = std::fs::File::open("/dev/null") {
                            files.push(file);
                        }
                        println!("worker: has no descriptors left");
                        // Until this process ends.
                        std::mem::forget(files);
                    }
                    _ => break,
                },
                error = finished => {
                    println!("worker: finished {error}");
                    job = None;
                }
            }
        }
    });
}
