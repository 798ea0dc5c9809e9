//! From the guard to the job: a second stage of this binary, which prepares itself and becomes the
//! job's program.
//!
//! What has to be set inside the new process (its session, the parent-death signal, closed
//! descriptors) could be set between `fork` and `exec` only by unsafe code. A stage that is
//! executed, does it, and executes the job's program needs none.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use command_fds::CommandFdExt;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{self, Pid};

use super::protocol::Launch;
use super::{EXIT_USAGE, SELF_EXE, cgroup, inherited};

/// Variables by which an init system talks to the worker itself: a job that inherited them could
/// speak in the worker's name.
fn is_between_worker_and_init(name: &str) -> bool {
    name == "NOTIFY_SOCKET"
        || name == "FDSTORE"
        || name.starts_with("WATCHDOG_")
        || name.starts_with("LISTEN_")
}

/// The option that selects this stage.
pub(super) const EXEC: &str = "--exec";

/// A job on its way from the guard's fork to its own program.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) pid: Pid,
    /// Closed by the `exec` of the job's program; carries words if that failed.
    outcome: File,
}

/// Starts the second stage.
///
/// # Errors
/// With the reason in words.
pub(super) fn launch(launch: &Launch, cgroup: Option<&Path>) -> Result<Launched, String> {
    let words = |error: io::Error| format!("can't start the launcher: {error}");
    let (outcome, writer) = unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| words(io::Error::from(errno)))?;
    let mut command = Command::new(SELF_EXE);
    command
        .arg0("dr-worker")
        .args(["guard", EXEC])
        .arg(writer.as_raw_fd().to_string())
        .arg(Pid::this().to_string())
        .arg(cgroup.map_or(OsString::new(), Into::into))
        .args(&launch.command)
        .stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_between_worker_and_init) {
            command.env_remove(name);
        }
    }
    command.envs(&launch.env);
    if let Some(dir) = &launch.working_dir {
        command.current_dir(dir);
    }
    command.preserved_fds(vec![writer]);
    // The handle is dropped unwaited: the guard reaps by pid, and knows its children by that.
    let pid = command.spawn().map_err(|error| match &launch.working_dir {
        Some(dir) => format!("can't start the launcher in working_dir {}: {error}", dir.display()),
        None => words(error),
    })?;
    Ok(Launched { pid: Pid::from_raw(pid.id().cast_signed()), outcome: outcome.into() })
}

impl Launched {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.outcome.as_fd()
    }

    /// How the `exec` went. Blocks until it is decided: call it when the descriptor is readable, or
    /// the process has ended.
    ///
    /// # Errors
    /// With the reason in words.
    pub(super) fn outcome(mut self) -> Result<(), String> {
        let mut words = String::new();
        match self.outcome.read_to_string(&mut words) {
            Ok(0) => Ok(()),
            Ok(_) => Err(words),
            Err(error) => Err(format!("the launcher can't be heard: {error}")),
        }
    }
}

/// The second stage: `--exec STATUS_FD GUARD_PID CGROUP COMMAND...`. Returns only if it fails.
pub(super) fn exec_stage(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next()?.to_str()?.parse::<RawFd>().ok();
    let (Some(status), Some(guard)) = (number(), number()) else {
        return ExitCode::from(EXIT_USAGE);
    };
    let Ok(mut status) = inherited(status, OpenOptions::new().write(true)) else {
        return ExitCode::from(EXIT_USAGE);
    };
    let (Some(cgroup), Some(program)) = (args.next(), args.next()) else {
        return ExitCode::from(EXIT_USAGE);
    };
    let failure = match prepare(&status, Pid::from_raw(guard), Path::new(&cgroup)) {
        // `exec` also gives back the default action of SIGPIPE, which this runtime ignores.
        Ok(()) => {
            let error = Command::new(&program).args(args).exec();
            format!("can't run {}: {error}", Path::new(&program).display())
        }
        Err(words) => words,
    };
    let _ = status.write_all(failure.as_bytes());
    ExitCode::from(127)
}

fn prepare(status: &File, guard: Pid, cgroup: &Path) -> Result<(), String> {
    // A session of its own: no terminal can interrupt, stop or hang up the job, and the session id
    // marks its processes even where they move to other process groups, so that the worker can find
    // them after its guard was killed.
    unistd::setsid().map_err(|errno| format!("can't make a session for the job: {errno}"))?;
    // The guard's death is the job's. First the signal, then the look: a guard that died before the
    // signal was set leaves another parent.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| format!("can't set the parent-death signal: {errno}"))?;
    if Pid::parent() != guard {
        return Err("the guard died while the job was being started".to_owned());
    }
    if !cgroup.as_os_str().is_empty() {
        cgroup::enter(cgroup)
            .map_err(|error| format!("can't enter the cgroup {}: {error}", cgroup.display()))?;
    }
    SigSet::empty().thread_set_mask().map_err(|errno| format!("can't unblock signals: {errno}"))?;
    close_all_but(status.as_raw_fd());
    Ok(())
}

/// Closes whatever came along: above all the worker's lock, which a job that held it would keep
/// locked.
fn close_all_but(keep: RawFd) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let open: Vec<RawFd> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open {
        if fd > 2 && fd != keep {
            let _ = unistd::close(fd);
        }
    }
}
