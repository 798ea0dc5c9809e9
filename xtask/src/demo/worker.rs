//! One `dr-worker run` process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::http;
use super::sweep;

const LOOK: Duration = Duration::from_millis(10);
/// The number of log lines that are printed when the demo fails.
const TAIL_LINES: usize = 15;
/// The job of the example configuration.
pub(crate) const JOB: &str = "orders";

/// A worker of one of the two sites.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) site: String,
    pub(crate) http: SocketAddr,
    dir: PathBuf,
    process: Option<Child>,
}

/// The worker that leads.
#[derive(Debug, Clone)]
pub(crate) struct Leader {
    pub(crate) id: String,
    pub(crate) site: String,
    pub(crate) term: u64,
    pub(crate) token: u64,
    /// The job's process.
    pub(crate) job: Option<u32>,
}

impl Worker {
    pub(crate) fn new(site: &str, number: u32, http: SocketAddr, stage: &Path) -> Self {
        let id = format!("{site}-{number}");
        Self { dir: stage.join(&id), id, site: site.to_owned(), http, process: None }
    }

    /// Its state directory.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Starts the worker; returns before it has joined.
    pub(crate) fn start(&mut self, command: &mut Command, stage: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(self.state_dir())
            .with_context(|| format!("cannot create {}", self.state_dir().display()))?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .with_context(|| format!("cannot open {}", self.log().display()))?;
        let child = command
            .env(sweep::MARK, stage)
            // Its own group: only the demo handles Ctrl-C at the terminal.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start the worker {}", self.id))?;
        self.process = Some(child);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// SIGKILL, to the worker alone.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.process.take() {
            child.kill().and_then(|()| child.wait()).with_context(|| format!("cannot kill {}", self.id))?;
        }
        Ok(())
    }

    /// SIGTERM: the worker stops its job, gives up leadership and ends.
    pub(crate) fn ask_to_end(&self) {
        if let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()) {
            // Not reaped yet, so the process id is valid.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Waits for the worker's end; SIGKILL at the deadline.
    pub(crate) fn end_by(&mut self, deadline: Instant) {
        let Some(child) = &mut self.process else { return };
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = child.kill();
                let _ = child.wait();
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.process = None;
    }

    /// # Errors
    /// The worker was started and has ended by itself.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.process
            && let Some(status) = child.try_wait()?
        {
            self.process = None;
            bail!("the worker {} ended by itself: {status}\n{}", self.id, self.log_tail());
        }
        Ok(())
    }

    /// Its leadership by its own status; none while it does not answer.
    pub(crate) async fn leadership(&self) -> anyhow::Result<Option<Leader>> {
        let Ok((_, body)) = http::get(self.http, "/status").await else { return Ok(None) };
        let status: Value =
            serde_json::from_str(&body).with_context(|| format!("/status of {}: {body}", self.id))?;
        let job = &status["jobs"][JOB];
        Ok((job["role"] == "leader").then(|| Leader {
            id: self.id.clone(),
            site: self.site.clone(),
            term: job["term"].as_u64().unwrap_or(0),
            token: job["fencing_token"].as_u64().unwrap_or(0),
            job: job["process"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
        }))
    }

    /// The status code of `/leader` or `/standby`, as a load balancer sees it.
    pub(crate) async fn answers(&self, path: &str) -> Option<u16> {
        http::get(self.http, path).await.ok().map(|(status, _)| status)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("worker.log")
    }

    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!("the end of {}:\n{tail}\n", self.log().display())
    }
}
