//! One ZooKeeper server: its files and its process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::error::Context as _;
use crate::{Error, Host, Installation};

/// How often a process is looked at while its end is awaited.
const LOOK: Duration = Duration::from_millis(5);
/// What a stop by SIGSTOP may take on the busiest machine.
const FREEZES_WITHIN: Duration = Duration::from_secs(10);
/// Lines of the log that an error shows.
const TAIL_LINES: usize = 25;

/// Where one server listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) ip: Ipv4Addr,
    pub(crate) client: u16,
    pub(crate) quorum: u16,
    pub(crate) election: u16,
}

impl Ports {
    /// Those of a server that is not to be started.
    pub(crate) const NONE: Self = Self { ip: Ipv4Addr::LOCALHOST, client: 0, quorum: 0, election: 0 };
}

/// One server of an [`Ensemble`](crate::Ensemble).
#[derive(Debug)]
pub struct Server {
    index: usize,
    dir: PathBuf,
    ports: Ports,
    host: Option<Host>,
    process: Mutex<Option<Process>>,
}

/// A process that this one started, or one that an earlier process left behind.
#[derive(Debug)]
enum Process {
    Child(Child),
    Adopted(u32),
}

impl Server {
    pub(crate) fn new(index: usize, ensemble: &Path, ports: Ports) -> Self {
        let dir = ensemble.join(format!("server-{index}"));
        Self { index, dir, ports, host: None, process: Mutex::new(None) }
    }

    /// The same server, to be run there.
    pub(crate) fn on(self, host: Option<Host>) -> Self {
        Self { host, ..self }
    }

    /// Its index in the ensemble, from 0. ZooKeeper's own id is one more.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ports.ip, self.ports.client))
    }

    /// The host that it runs on, if the ensemble was built
    /// [`in_namespaces`](crate::Builder::in_namespaces).
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Its process, `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let mut process = self.process();
        let pid = match process.as_mut()? {
            Process::Child(child) => match child.try_wait() {
                Ok(Some(_)) | Err(_) => None,
                Ok(None) => Some(child.id()),
            },
            Process::Adopted(pid) => runs_from(*pid, &self.dir).then_some(*pid),
        };
        if pid.is_none() {
            *process = None;
        }
        pid
    }

    /// The directory with its configuration, data, log and pid file.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it wrote to standard output and standard error.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    pub(crate) fn write_config(&self, text: &str) -> Result<(), Error> {
        let data = self.dir.join("data");
        fs::create_dir_all(&data).context(|| format!("cannot create {}", data.display()))?;
        let id = data.join("myid");
        fs::write(&id, format!("{}\n", self.index + 1))
            .context(|| format!("cannot write {}", id.display()))?;
        let config = self.config();
        fs::write(&config, text).context(|| format!("cannot write {}", config.display()))
    }

    /// Starts the process; returns before it listens.
    pub(crate) fn spawn(&self, with: &Launch) -> Result<(), Error> {
        if let Some(pid) = self.pid() {
            return Err(Error::AlreadyRunning { server: self.index, pid });
        }
        let log = self.log();
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .context(|| format!("cannot open {}", log.display()))?;
        let err = out.try_clone().context(|| format!("cannot open {} twice", log.display()))?;
        let mut command = match &self.host {
            Some(host) => host.command("/bin/sh"),
            None => Command::new("/bin/sh"),
        };
        command
            // The pid file is there before Java is, whoever dies in between.
            .args(["-c", "echo $$ >pid && exec \"$@\"", "zookeeper"])
            .arg(with.installation.java())
            .args([
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                "-Dzookeeper.admin.enableServer=false",
                "-Dzookeeper.4lw.commands.whitelist=*",
                // KiB. The usual 64 MiB for each log file fill a tmpfs quickly.
                "-Dzookeeper.preAllocSize=4096",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            ])
            .arg(format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={}", with.log_level))
            .arg(format!("-Dlogback.configurationFile={}", with.logback.display()))
            .args(&with.jvm_flags)
            .arg("-cp")
            .arg(with.installation.class_path())
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.config())
            .current_dir(&self.dir)
            // A group of its own: Ctrl-C at a terminal is for the test to answer.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        let child = command.spawn().context(|| format!("cannot start server {}", self.index))?;
        *self.process() = Some(Process::Child(child));
        Ok(())
    }

    /// Takes over the process that the pid file names, if it is this server's.
    pub(crate) fn adopt(&self) {
        let pid = fs::read_to_string(self.pid_file())
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .filter(|pid| runs_from(*pid, &self.dir));
        *self.process() = pid.map(Process::Adopted);
    }

    /// An error with the end of the log if the process was started and is gone.
    pub(crate) fn check_alive(&self) -> Result<(), Error> {
        let mut process = self.process();
        let status = match process.as_mut() {
            Some(Process::Child(child)) => match child.try_wait() {
                Ok(None) => return Ok(()),
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            },
            Some(Process::Adopted(pid)) if runs_from(*pid, &self.dir) => return Ok(()),
            Some(Process::Adopted(_)) => "its status is not known".to_owned(),
            None => return Ok(()),
        };
        *process = None;
        Err(Error::Exited { server: self.index, status, log: self.log(), tail: self.log_tail() })
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let not_running = Error::NotRunning { server: self.index };
        let Some(pid) = self.pid() else {
            return Err(not_running);
        };
        let Ok(pid) = i32::try_from(pid) else {
            return Err(not_running);
        };
        // Not reaped, so the number is still this process's.
        signal::kill(Pid::from_raw(pid), signal)
            .map_err(std::io::Error::from)
            .context(|| format!("cannot send {signal} to server {}, pid {pid}", self.index))
    }

    /// SIGSTOP, and wait until it has taken hold: on a busy machine a thread may run on for a while after the signal
    /// was sent. Blocks for that long.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)?;
        let Some(pid) = self.pid() else {
            return Err(Error::NotRunning { server: self.index });
        };
        let deadline = Instant::now() + FREEZES_WITHIN;
        while !stands_still(pid) {
            if Instant::now() >= deadline {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut))
                    .context(|| format!("server {}, pid {pid}, goes on after SIGSTOP", self.index));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits for the process to be gone; false if it is still there at the deadline.
    pub(crate) async fn gone_by(&self, deadline: Instant) -> bool {
        while self.pid().is_some() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// SIGKILL, and wait. Blocks for the few milliseconds that the kernel needs.
    pub(crate) fn end_now(&self) {
        if self.signal(Signal::SIGKILL).is_err() {
            return;
        }
        match self.process().take() {
            Some(Process::Child(mut child)) => {
                let _ = child.wait();
            }
            Some(Process::Adopted(pid)) => {
                let deadline = Instant::now() + Duration::from_secs(2);
                while runs_from(pid, &self.dir) && Instant::now() < deadline {
                    std::thread::sleep(LOOK);
                }
            }
            None => {}
        }
    }

    /// Lets go of the process without ending it.
    pub(crate) fn forget(&self) {
        let mut process = self.process();
        if let Some(Process::Child(child)) = process.as_ref() {
            *process = Some(Process::Adopted(child.id()));
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join("zoo.cfg")
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.join("pid")
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the servers of one ensemble are started with.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) installation: Installation,
    pub(crate) jvm_flags: Vec<String>,
    pub(crate) log_level: String,
    pub(crate) logback: PathBuf,
}

/// Whether each of the threads of a process is stopped, or has ended.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    threads.flatten().all(|thread| {
        // One that has ended meanwhile has no such file. The state follows the name, which is in parentheses.
        let Ok(stat) = fs::read_to_string(thread.path().join("stat")) else { return true };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't' | 'X' | 'Z'))
    })
}

/// Whether `pid` is a server whose configuration is in `dir`.
///
/// Process ids are used again; the directory on the command line is this
/// ensemble's alone. A zombie has an empty command line, and counts as gone.
fn runs_from(pid: u32, dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let config = dir.join("zoo.cfg");
    command_line.split(|byte| *byte == 0).any(|argument| argument == config.as_os_str().as_bytes())
}
