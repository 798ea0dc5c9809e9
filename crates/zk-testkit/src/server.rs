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
use crate::process::{field_of, freeze, threads};
use crate::{Error, Host, Installation};

/// How often a process is checked while its end is awaited.
const LOOK: Duration = Duration::from_millis(5);
/// The maximum time for the kernel to end a killed process.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Lines of the log that an error shows.
const TAIL_LINES: usize = 25;

/// The address and ports of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) ip: Ipv4Addr,
    pub(crate) client: u16,
    pub(crate) quorum: u16,
    pub(crate) election: u16,
    /// That of the AdminServer; 0 without one.
    pub(crate) admin: u16,
}

impl Ports {
    /// For a server that is not started.
    pub(crate) const NONE: Self =
        Self { ip: Ipv4Addr::LOCALHOST, client: 0, quorum: 0, election: 0, admin: 0 };
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

/// A process that this one started, or one that an earlier process left running.
#[derive(Debug)]
enum Process {
    Child(Child),
    /// By its id and its start time, because ids are reused.
    Adopted(u32, u64),
}

impl Process {
    /// Its id, or how it ended.
    fn look(&mut self) -> Result<u32, String> {
        match self {
            Self::Child(child) => match child.try_wait() {
                Ok(None) => Ok(child.id()),
                Ok(Some(status)) => Err(status.to_string()),
                Err(error) => Err(error.to_string()),
            },
            Self::Adopted(pid, started) if is_there(*pid, *started) => Ok(*pid),
            Self::Adopted(..) => Err("its status is not known".to_owned()),
        }
    }
}

impl Server {
    pub(crate) fn new(index: usize, ensemble: &Path, ports: Ports, host: Option<Host>) -> Self {
        let dir = ensemble.join(format!("server-{index}"));
        Self { index, dir, ports, host, process: Mutex::new(None) }
    }

    /// Its index in the ensemble, from 0. ZooKeeper's own id is one more.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ports.ip, self.ports.client))
    }

    /// The address of its AdminServer, if the ensemble was built with an
    /// [`admin_server`](crate::EnsembleBuilder::admin_server).
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        (self.ports.admin != 0).then(|| SocketAddr::from((self.ports.ip, self.ports.admin)))
    }

    /// The host that it runs on, if the ensemble was built
    /// [`in_namespaces`](crate::EnsembleBuilder::in_namespaces).
    #[must_use]
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// Its process, `None` while it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_mut()?.look().ok()
    }

    /// The directory with its configuration, data, log and pid file.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its standard output and standard error.
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
            // The pid file exists before Java runs, even if this process dies in between.
            .args(["-c", "echo $$ >pid && exec \"$@\"", "zookeeper"])
            .arg(with.installation.java())
            .args([
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData",
                "-Dzookeeper.admin.enableServer=false",
                "-Dzookeeper.4lw.commands.whitelist=*",
                "-Dzookeeper.forceSync=no",
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
        let found = fs::read_to_string(self.pid_file())
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .and_then(|pid| Some((pid, started_at(pid)?)))
            .filter(|(pid, _)| runs_from(*pid, &self.config()));
        *self.process() = found.map(|(pid, started)| Process::Adopted(pid, started));
    }

    /// As [`pid`](Self::pid); an error with the end of the log, once, if the process was started and is gone.
    pub(crate) fn running(&self) -> Result<Option<u32>, Error> {
        let mut process = self.process();
        process.as_mut().map(Process::look).transpose().map_err(|status| {
            *process = None;
            Error::Exited { server: self.index, status, log: self.log(), tail: self.log_tail() }
        })
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
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.ok_or(Error::NotRunning { server: self.index })?;
        // Not reaped, so the number is still this process's.
        signal::kill(Pid::from_raw(pid), signal)
            .map_err(std::io::Error::from)
            .context(|| format!("cannot send {signal} to server {}, pid {pid}", self.index))
    }

    /// Blocks until SIGSTOP has taken hold.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        let pid = self.pid().ok_or(Error::NotRunning { server: self.index })?;
        freeze(pid).context(|| format!("cannot freeze server {}, pid {pid}", self.index))
    }

    /// Waits for the process to be gone, which is no error; false if it is still there at the deadline.
    pub(crate) async fn gone_by(&self, deadline: Instant) -> bool {
        while matches!(self.running(), Ok(Some(_))) {
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
            Some(Process::Adopted(pid, started)) => {
                let deadline = Instant::now() + ENDS_WITHIN;
                while is_there(pid, started) && Instant::now() < deadline {
                    std::thread::sleep(LOOK);
                }
            }
            None => {}
        }
    }

    /// Releases the process without ending it.
    pub(crate) fn forget(&self) {
        let mut process = self.process();
        if let Some(Process::Child(child)) = process.as_ref() {
            let pid = child.id();
            *process = started_at(pid).map(|started| Process::Adopted(pid, started));
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
    /// The `ssl.` lines of `zoo.cfg`, where the servers speak nothing but TLS.
    pub(crate) tls: Option<Vec<(String, String)>>,
}

/// Whether a process that started then has a thread that has not ended. Its command line goes first, its first
/// thread may be next, and its sockets go with the last one.
fn is_there(pid: u32, started: u64) -> bool {
    started_at(pid) == Some(started)
        && threads(pid).is_some_and(|mut states| states.any(|state| !matches!(state, 'X' | 'Z')))
}

/// When a process started, in ticks since the machine did.
fn started_at(pid: u32) -> Option<u64> {
    field_of(Path::new(&format!("/proc/{pid}")), 19)?.parse().ok()
}

/// Whether `pid` is a server with this configuration.
///
/// Process ids are used again; the directory on the command line is this
/// ensemble's alone. One that is ending has none any more.
fn runs_from(pid: u32, config: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    command_line.split(|byte| *byte == 0).any(|argument| argument == config.as_os_str().as_bytes())
}
