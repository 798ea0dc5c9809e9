//! One process of `dr-worker run`, or of another program with the same commands.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use zk_testkit::Host;

use crate::places::Home;
use crate::process::{self, Tree, children, name_of};
use crate::{http, program};

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The number of log lines that a failing test prints.
const TAIL_LINES: usize = 60;

/// A worker: its host and files, and its process while it runs.
#[derive(Debug)]
pub struct Worker {
    id: String,
    site: String,
    http: SocketAddr,
    dir: PathBuf,
    program: &'static str,
    /// A file instead of that program.
    file: Option<PathBuf>,
    configs: Vec<PathBuf>,
    env: Vec<(OsString, OsString)>,
    tree: Tree,
    /// Its host, if not loopback.
    host: Option<Home>,
    process: Option<Child>,
    is_frozen: bool,
    is_cut_off: bool,
}

impl Worker {
    pub(crate) fn new(
        id: &str,
        site: &str,
        http: SocketAddr,
        dir: PathBuf,
        program: &'static str,
        configs: Vec<PathBuf>,
        tree: Tree,
    ) -> Self {
        Self {
            id: id.to_owned(),
            site: site.to_owned(),
            http,
            dir,
            program,
            file: None,
            configs,
            env: Vec::new(),
            tree,
            host: None,
            process: None,
            is_frozen: false,
            is_cut_off: false,
        }
    }

    pub(crate) fn on(mut self, host: Option<Home>) -> Self {
        self.host = host;
        self
    }

    /// Cuts its host off: all packets from and to it are dropped.
    ///
    /// # Panics
    /// If it has no separate host.
    pub fn cut_off(&mut self) {
        self.host().unplug().expect("a host that can be unplugged");
        self.is_cut_off = true;
    }

    /// Drops all packets from and to the other worker's host.
    ///
    /// # Panics
    /// If one of them has no separate host.
    pub fn cut_off_from(&self, other: &Self) {
        self.host().cut_from(&[other.host().ip()]).expect("hosts that can be cut off");
    }

    /// Reconnects its host, and ends every cut of it.
    ///
    /// # Panics
    /// If it has no separate host.
    pub fn plug_in(&mut self) {
        self.host().heal().expect("a host that can be healed");
        self.is_cut_off = false;
    }

    /// Its host: a server's, where the setup says so.
    ///
    /// # Panics
    /// If it has no separate host.
    pub fn host(&self) -> &Host {
        let home = self.host.as_ref().unwrap_or_else(|| panic!("{} has no host of its own", self.id));
        home.host()
    }

    /// Its `node.id`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its `node.site`.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Its `http.listen`.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Its configuration files, in the order of their layers.
    pub fn configs(&self) -> &[PathBuf] {
        &self.configs
    }

    /// One more layer of configuration, over all others, for the next start.
    pub fn add_config(&mut self, path: &Path) {
        self.configs.push(path.to_owned());
    }

    /// From the next start on its program is a symbolic link of its own to the usual one. Returns the link, which can be
    /// replaced.
    pub fn link_program(&mut self) -> PathBuf {
        fs::create_dir_all(&self.dir).expect("the worker's directory");
        let link = self.dir.join(self.program);
        std::os::unix::fs::symlink(program(self.program), &link).expect("a link");
        self.file = Some(link.clone());
        link
    }

    /// Replaces its additional environment from the next start on.
    pub fn set_env(&mut self, env: Vec<(OsString, OsString)>) {
        self.env = env;
    }

    /// Whether it was started, and neither killed nor awaited since.
    pub fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the worker; returns before it has joined.
    ///
    /// # Panics
    /// If it runs already, or can't be started.
    pub fn start(&mut self) {
        self.start_as(&["run"]);
    }

    /// Instead of the worker, `emergency-lead` with this sentence, where no ZooKeeper answers.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn lead_alone(&mut self, fenced: &str) {
        let nowhere = ["--set", "zookeeper.connect=127.0.0.1:1", "emergency-lead", "--i-accept-split-brain"];
        self.start_as(&[&nowhere[..], &["--fenced", fenced]].concat());
    }

    fn start_as(&mut self, verb: &[&str]) {
        assert!(self.process.is_none(), "{} runs already", self.id);
        fs::create_dir_all(&self.dir).expect("the worker's directory");
        let log = File::options().create(true).append(true).open(self.log()).expect("the worker's log");
        let program = self.file.clone().unwrap_or_else(|| program(self.program));
        let here = || Command::new(&program);
        let mut command = self.host.as_ref().map_or_else(here, |home| home.host().command(&program));
        for config in &self.configs {
            command.arg("--config").arg(config);
        }
        let (name, value) = self.tree.mark();
        let child = command
            .args(verb)
            .env(name, value)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle on the log"))
            .stderr(log)
            .spawn()
            .expect("start the worker");
        self.process = Some(child);
    }

    /// # Panics
    /// If it does not run.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().map_or_else(|| panic!("{} does not run", self.id), Child::id)
    }

    /// Its guards: one for the job, and one for each running hook and probe.
    pub fn guards(&self) -> Vec<u32> {
        let all = children(self.pid()).into_iter();
        all.filter(|pid| name_of(*pid).as_deref() == Some("dr-guard")).collect()
    }

    /// SIGKILL to the worker alone.
    pub fn kill(&mut self) {
        let mut child = self.process.take().unwrap_or_else(|| panic!("{} does not run", self.id));
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        self.is_frozen = false;
    }

    /// SIGKILL to the worker and its guards, so that none of them sees another's end: as if its host were lost.
    pub fn kill_with_guards(&mut self) {
        // Stopped first, so that it starts no more of them.
        self.freeze();
        let guards = self.guards();
        guards.iter().copied().for_each(process::freeze_pid);
        guards.into_iter().for_each(process::kill_pid);
        self.kill();
    }

    /// SIGSTOP to the worker alone; returns when it has stopped.
    pub fn freeze(&mut self) {
        process::freeze_pid(self.pid());
        self.is_frozen = true;
    }

    /// SIGCONT.
    pub fn thaw(&mut self) {
        process::thaw_pid(self.pid());
        self.is_frozen = false;
    }

    /// SIGTERM: the worker stops its jobs, gives up leadership and ends.
    pub fn ask_to_end(&self) {
        process::signal(self.pid(), Signal::SIGTERM);
    }

    /// Whether it reports that it was asked to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.log_text().contains("\"leaving all elections\"")
    }

    /// Its exit status, if it has ended; it counts as not started then.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.try_wait().expect("its state")?;
        self.process = None;
        Some(status)
    }

    /// Waits for its end.
    pub fn ended_by(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// # Panics
    /// If it was started and has ended by itself.
    pub(crate) fn assert_alive(&mut self) {
        if let Some(status) = self.ended() {
            panic!("the worker {} ended by itself: {status}", self.id);
        }
    }

    /// The answer of `/status`; `None` while it does not run, is frozen or cut off, or does not answer.
    pub async fn status(&self) -> Option<Value> {
        let (_, body) = self.get("/status").await?;
        Some(serde_json::from_str(&body).unwrap_or_else(|e| panic!("/status of {}: {e}: {body}", self.id)))
    }

    /// The status code of `/leader`, `/standby` and other paths.
    pub async fn code(&self, path: &str) -> Option<u16> {
        self.get(path).await.map(|(code, _)| code)
    }

    /// An answer's code and body.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        if self.process.is_none() || self.is_frozen || self.is_cut_off {
            return None;
        }
        http::get(self.http, path).await.ok()
    }

    /// A counter in its metrics, the one of those whose labels contain this.
    ///
    /// # Panics
    /// If it does not answer, or has no such counter.
    pub async fn counted(&self, counter: &str, label: &str) -> u64 {
        let (_, text) = self.get("/metrics").await.unwrap_or_else(|| panic!("{} does not answer", self.id));
        let start = format!("{counter}{{");
        let found = text.lines().find(|line| line.starts_with(&start) && line.contains(label));
        let value = found.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{} has no {counter} with {label}: {text}", self.id))
    }

    fn log(&self) -> PathBuf {
        self.dir.join("worker.log")
    }

    /// All that it has written to its standard output and error.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log()).unwrap_or_default()).into_owned()
    }

    pub(crate) fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!("---- the end of the log of {} ----\n{tail}\n", self.id)
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        state_dir(&self.dir)
    }
}

pub(crate) fn state_dir(dir: &Path) -> PathBuf {
    dir.join("state")
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
