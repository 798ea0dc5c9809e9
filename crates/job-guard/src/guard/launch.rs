//! From the guard to the job: a second stage of this binary, which prepares itself and becomes the
//! job's program.
//!
//! What has to be set inside the new process (its session, the parent-death signal, closed descriptors) could be set
//! between `fork` and `exec` only by unsafe code. A separate stage that is executed, sets it and executes the job's
//! program needs none.
//!
//! The stage is the guard's user until it has become the job's. So it has the environment of the guard, and gets that of the
//! job as data: a library that the job preloads would otherwise be loaded by root.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use boot_time::BootTime;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{self, Gid, Pid, Uid};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use rustix::stdio;
use serde::{Deserialize, Serialize};

use super::cgroup;
use super::invocation::{EXEC, EXIT_USAGE, SELF_EXE, VERB};
use super::protocol::{Launch, Millis};
use super::relay::Writers;
use super::tree::kernel_text;
use crate::{
    config::{Identity, Limits},
    memory_file::file_in_memory,
    program::program,
};

/// Variables of the protocol between an init system and the worker. A job that inherited them could act as the worker.
fn is_between_worker_and_init(name: &str) -> bool {
    name == "NOTIFY_SOCKET"
        || name == "FDSTORE"
        || name.starts_with("WATCHDOG_")
        || name.starts_with("LISTEN_")
}

/// Sent to the launcher when the program may be started.
const GO: &[u8] = b"g";

/// A job on its way from the guard's fork to its own program.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) pid: Pid,
    /// To the launcher a byte that lets it go on; from it the reason of a failure. Its end is closed by the `exec` of the
    /// job's program.
    socket: UnixStream,
}

/// The arguments of the second stage, besides the command. Its standard input is the socket to the guard.
#[derive(Debug, Serialize, Deserialize)]
struct Stage {
    guard: i32,
    /// The descriptor of a file in memory with the job's environment, which is on top of the stage's own. In an argument it
    /// could be read by every user.
    env: RawFd,
    /// Nothing is started after this.
    start_by: Millis,
    cgroup: Option<PathBuf>,
    no_new_privileges: bool,
    oom_score_adj: Option<i32>,
    open_files: Option<u64>,
    run_as: Option<Identity>,
    limits: Limits,
}

/// Starts the second stage, which starts the job's program once it may [go](Launched::go), and no later than `start_by`.
/// `limits` are those that the cgroup does not set. The program writes to `output`, or else inherits the guard's output.
///
/// # Errors
/// The reason, as a sentence.
pub(super) fn launch(
    launch: &Launch,
    cgroup: Option<&Path>,
    limits: Limits,
    start_by: BootTime,
    oom_score_adj: Option<i32>,
    output: Option<Writers>,
) -> Result<Launched, String> {
    let failed = |error: io::Error| format!("can't start the launcher: {error}");
    let (socket, stdin) = UnixStream::pair().map_err(failed)?;
    let env = env_file(&launch.env).map_err(failed)?;
    let stage = Stage {
        guard: Pid::this().as_raw(),
        env: env.as_raw_fd(),
        start_by: start_by.into(),
        cgroup: cgroup.map(Path::to_owned),
        no_new_privileges: launch.no_new_privileges,
        oom_score_adj,
        open_files: launch.open_files,
        run_as: launch.run_as.clone(),
        limits,
    };
    let stage = serde_json::to_string(&stage).map_err(|error| failed(error.into()))?;
    let mut command = Command::new(SELF_EXE);
    command.arg0(program()).args([VERB, EXEC, &stage]).args(&launch.command).stdin(OwnedFd::from(stdin));
    if let Some(output) = output {
        command.stdout(output.stdout).stderr(output.stderr);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| {
            is_between_worker_and_init(name) || launch.withheld.iter().any(|withheld| withheld == name)
        }) {
            command.env_remove(name);
        }
    }
    // It marks the process for a sweep from its first moment on.
    if let Some(run) = launch.record.as_deref().and_then(Path::file_name) {
        command.env(&launch.run_variable, run);
    }
    if let Some(dir) = &launch.working_dir {
        command.current_dir(dir);
    }
    // The handle is dropped without waiting: the guard reaps its children by pid.
    let pid = command.spawn().map_err(|error| match &launch.working_dir {
        Some(dir) => format!("can't start the launcher in working_dir {}: {error}", dir.display()),
        None => failed(error),
    })?;
    Ok(Launched { pid: Pid::from_raw(pid.id().cast_signed()), socket })
}

/// A job's environment for the second stage, which inherits the descriptor: the guard has one thread, and starts nothing else
/// while it is open.
fn env_file(env: &BTreeMap<String, String>) -> io::Result<File> {
    let mut file = file_in_memory(c"job-env", MemfdFlags::empty())?;
    file.write_all(&serde_json::to_vec(env)?)?;
    Ok(file)
}

/// Reads it.
fn read_env(fd: RawFd) -> Result<BTreeMap<String, String>, String> {
    let read = || -> io::Result<_> { Ok(serde_json::from_slice(&fs::read(format!("/proc/self/fd/{fd}"))?)?) };
    read().map_err(|error| format!("can't read the job's environment: {error}"))
}

impl Launched {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Lets the launcher start the program. Why one that has failed meanwhile did is its [outcome](Self::outcome).
    pub(super) fn go(&mut self) {
        let _ = self.socket.write_all(GO);
    }

    /// Ends a launcher that may not go, and so has started nothing.
    pub(super) fn abandon(self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(rustix::process::Pid::from_raw(self.pid.as_raw()), WaitOptions::empty());
    }

    /// The outcome of the `exec`. Blocks until it is decided: call it when the descriptor is readable or the process
    /// has ended.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub(super) fn outcome(mut self) -> Result<(), String> {
        let mut reason = String::new();
        match self.socket.read_to_string(&mut reason) {
            // One that fails before it is let go resets the connection behind the reason.
            _ if !reason.is_empty() => Err(reason),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("can't read from the launcher: {error}")),
        }
    }
}

/// The second stage: `--exec STAGE COMMAND...`. Returns only if it fails.
pub(super) fn exec_stage(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let stage = args.next().and_then(|stage| serde_json::from_str::<Stage>(stage.to_str()?).ok());
    let (Some(stage), Some(program)) = (stage, args.next()) else {
        return ExitCode::from(EXIT_USAGE);
    };
    // Closed by the `exec`, for which standard input becomes another one.
    let Ok(socket) = stdio::stdin().try_clone_to_owned() else {
        return ExitCode::from(EXIT_USAGE);
    };
    let mut socket = UnixStream::from(socket);
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::null());
    let ready = read_env(stage.env).and_then(|env| {
        command.envs(&env);
        prepare(&stage, &env, &mut socket)
    });
    let failure = match ready {
        // `exec` also restores the default action of SIGPIPE, which this runtime ignores.
        Ok(()) => format!("can't run {}: {}", Path::new(&program).display(), command.exec()),
        Err(reason) => reason,
    };
    let _ = socket.write_all(failure.as_bytes());
    ExitCode::from(127)
}

fn prepare(stage: &Stage, env: &BTreeMap<String, String>, socket: &mut UnixStream) -> Result<(), String> {
    // The job gets its own session. No terminal can interrupt, stop or hang up the job. The session id marks its
    // processes even if they change their process group, so that the worker finds them after the guard was killed.
    unistd::setsid().map_err(|errno| format!("can't make a session for the job: {errno}"))?;
    die_with_the_guard(stage.guard)?;
    if let Some(cgroup) = &stage.cgroup {
        cgroup::enter(cgroup)
            .map_err(|error| format!("can't enter the cgroup {}: {error}", cgroup.display()))?;
    }
    if let Some(adj) = stage.oom_score_adj {
        fs::write("/proc/self/oom_score_adj", adj.to_string())
            .map_err(|error| format!("can't set oom_score_adj to {adj}: {error}"))?;
    }
    if stage.no_new_privileges {
        prctl::set_no_new_privs().map_err(|errno| format!("can't set no_new_privs: {errno}"))?;
    }
    reset_ignored_signals()?;
    SigSet::empty().thread_set_mask().map_err(|errno| format!("can't unblock signals: {errno}"))?;
    close_all_but(socket.as_raw_fd());
    if let Some(limit) = stage.open_files {
        set_limit(limit).map_err(|error| format!("can't set the limit of open files to {limit}: {error}"))?;
    }
    // `exec` makes two copies of the environment.
    reserve(RESERVE + 2 * size_of_env(env));
    set_limits(stage.limits)?;
    if let Some(identity) = &stage.run_as {
        // The kernel hides this process's files in /proc afterwards, and has reset the signal.
        become_user(identity).map_err(|error| {
            format!("can't become user {} with group {}: {error}", identity.uid, identity.gid)
        })?;
        die_with_the_guard(stage.guard)?;
    }
    // Without a record this run would not be found if guard and worker were killed.
    let mut go = [0; GO.len()];
    socket
        .read_exact(&mut go)
        .map_err(|error| format!("the guard did not let the launcher continue: {error}"))?;
    // Last, because the steps above may have taken time.
    if BootTime::now() >= stage.start_by.into() {
        return Err(NO_TIME.to_owned());
    }
    Ok(())
}

/// The job dies with the guard. First sets the signal, then checks the parent: if the guard died before, the parent is
/// another one.
fn die_with_the_guard(guard: i32) -> Result<(), String> {
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|errno| format!("can't set the parent-death signal: {errno}"))?;
    if Pid::parent().as_raw() != guard {
        return Err("the guard died while the job was being started".to_owned());
    }
    Ok(())
}

/// What the rest of the stage allocates, without the environment.
const RESERVE: usize = 64 * 1024;

/// About what this process's environment with `env` on top of it takes.
fn size_of_env(env: &BTreeMap<String, String>) -> usize {
    let size = |name: &OsStr, value: &OsStr| name.len() + value.len() + 256;
    let own = std::env::vars_os().map(|(name, value)| size(&name, &value)).sum::<usize>();
    own + env.iter().map(|(name, value)| size(name.as_ref(), value.as_ref())).sum::<usize>()
}

/// Has the heap keep so much memory, for what is allocated under the job's limit.
fn reserve(bytes: usize) {
    // Larger ones would be given back to the kernel one by one.
    const PIECE: usize = 64 * 1024;
    let mut pieces: Vec<_> = (0..=bytes.div_ceil(PIECE)).map(|_| Vec::<u8>::with_capacity(PIECE)).collect();
    // The heap gives back what is free at its end only, so what lies above the others stays.
    pieces.pop().map(Vec::leak);
}

/// Sets the soft limit of this process, which is about to become another program.
///
/// # Errors
/// If the kernel refuses it.
fn set_limit(current: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).map_err(io::Error::from)
}

fn set_limits(limits: Limits) -> Result<(), String> {
    for (name, resource, limit) in [
        ("open files", Resource::Nofile, limits.open_files),
        ("processes", Resource::Nproc, limits.processes),
        ("memory", Resource::As, limits.memory),
    ] {
        let Some(limit) = limit else { continue };
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })
            .map_err(|error| format!("can't set the limit of {name} to {limit}: {error}"))?;
    }
    Ok(())
}

fn become_user(identity: &Identity) -> io::Result<()> {
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    // Otherwise capabilities that a service manager gave to the worker would be the job's.
    match rustix::thread::clear_ambient_capability_set() {
        // This kernel knows no such capabilities.
        Err(Errno::INVAL) => {}
        done => done?,
    }
    unistd::setgroups(&groups)?;
    unistd::setgid(Gid::from_raw(identity.gid))?;
    unistd::setuid(Uid::from_raw(identity.uid))?;
    Ok(())
}

/// Why a job is not started.
pub(super) const NO_TIME: &str = "the lease leaves no time to run and stop the job";

/// A signal that the worker ignores since its start (by `nohup`, or a shell without job control) would be ignored by
/// the job as well, perhaps its stop signal. `exec` restores the default action of signals that have a handler.
fn reset_ignored_signals() -> Result<(), String> {
    let failed = |error: io::Error| format!("can't reset ignored signals: {error}");
    let status = kernel_text("/proc/self/status").map_err(failed)?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap_or_default();
    for number in (1..=64).filter(|number| ignored & (1 << (number - 1)) != 0) {
        let handled = match Signal::try_from(number) {
            // `exec` resets the first, and signals of faults can't be ignored.
            Ok(Signal::SIGPIPE | Signal::SIGILL | Signal::SIGFPE | Signal::SIGSEGV) => continue,
            Ok(
                Signal::SIGCHLD
                | Signal::SIGCONT
                | Signal::SIGURG
                | Signal::SIGWINCH
                | Signal::SIGTSTP
                | Signal::SIGTTIN
                | Signal::SIGTTOU,
            ) => signal_hook::flag::register(number, Arc::default()),
            // A signal before the `exec` ends this process, as it would end the job.
            _ => signal_hook::flag::register_conditional_shutdown(
                number,
                128 + number,
                Arc::new(AtomicBool::new(true)),
            ),
        };
        // Signals without a name may be reserved by the C library.
        if let Err(error) = handled
            && Signal::try_from(number).is_ok()
        {
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Closes all inherited descriptors: those that the worker was started with are not the job's.
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
