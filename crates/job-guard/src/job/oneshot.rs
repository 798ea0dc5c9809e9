//! Runs a command to its end under a guard: a hook, an exec probe or a measurement.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::{
    guarded::{ESCALATION_LAG, Guarded, Output},
    guards::Guards,
    output::{self, LoggedErrors, pipe},
};
use crate::{
    capabilities::renounces_privileges,
    config::{KILL_RESERVE, Limits, RunAs, StopSignal},
    guard::{
        plan::last_kill,
        protocol::{Exit, Launch, Report},
    },
};

/// How many bytes of the end of standard error are kept.
const TAIL: usize = 4096;

/// How long the rest of standard error is read after all writers have ended.
const DRAIN: Duration = Duration::from_millis(500);

/// A time before the end of a lease, which moves with each renewal.
#[derive(Clone, Debug)]
pub struct Deadline {
    ends: watch::Receiver<BootTime>,
    less: Duration,
}

impl Deadline {
    /// The current value of `ends`.
    pub fn at(ends: impl Into<watch::Receiver<BootTime>>) -> Deadline {
        Deadline { ends: ends.into(), less: Duration::ZERO }
    }

    /// `less` before the current value of `ends`.
    pub fn before(ends: watch::Receiver<BootTime>, less: Duration) -> Deadline {
        Deadline { ends, less }
    }

    /// The time that is left now.
    pub fn remaining(&self) -> Duration {
        (*self.ends.borrow() - self.less).duration_since(BootTime::now())
    }

    fn now(&mut self) -> BootTime {
        *self.ends.borrow_and_update() - self.less
    }

    /// Waits until it changes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn moved(&mut self) -> BootTime {
        if self.ends.changed().await.is_err() {
            // The sender is gone: no renewal follows.
            std::future::pending::<()>().await;
        }
        self.now()
    }
}

/// A command that is run to its end: it gets SIGKILL at its timeout, with everything that it has started.
#[derive(Clone, Debug)]
pub struct OneShot {
    /// Shown in the guard's argument list, and in the log.
    pub title: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Set on top of this process's environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs; this process's directory by default.
    pub working_dir: Option<PathBuf>,
    /// As [`Job::no_new_privileges`](crate::Job::no_new_privileges).
    pub no_new_privileges: Option<bool>,
    /// The user that it runs as; `None`: this process's.
    pub run_as: Option<RunAs>,
    /// After which it is killed.
    pub timeout: Duration,
    /// Gone by this time, even if the timeout is longer.
    pub by: Option<Deadline>,
    /// Up to how many bytes of its standard output are returned. `None`: it goes to the log.
    pub hears: Option<usize>,
    /// Whether its standard error goes to the log as well.
    pub logs_errors: bool,
}

/// How a [`OneShot`] ended.
pub struct Finished {
    /// The exit of the program, or why it did not run, as a sentence.
    pub exit: Result<Exit, String>,
    /// It was killed after this time.
    pub timed_out: Option<Duration>,
    /// It was killed because it was cancelled.
    pub is_cancelled: bool,
    /// The end of its standard error.
    pub stderr: String,
    /// Its standard output, up to one byte more than the limit.
    pub stdout: Vec<u8>,
}

impl Finished {
    fn not_started(reason: String) -> Self {
        Self {
            exit: Err(reason),
            timed_out: None,
            is_cancelled: false,
            stderr: String::new(),
            stdout: Vec::new(),
        }
    }
}

impl OneShot {
    /// One with this title, and nothing to run yet: set what it needs.
    pub fn new(title: impl Into<String>) -> OneShot {
        OneShot {
            title: title.into(),
            command: Vec::new(),
            env: BTreeMap::new(),
            working_dir: None,
            no_new_privileges: None,
            run_as: None,
            timeout: Duration::MAX,
            by: None,
            hears: None,
            logs_errors: false,
        }
    }

    /// Runs it, and returns when it and everything that it started has ended: no guard would watch what it left behind.
    ///
    /// If `cancelled` completes first, the command is killed, and gone when this returns.
    ///
    /// # Cancel safety
    /// If the future is dropped, the guard kills the command soon after.
    pub async fn run(self, guards: &Guards, cancelled: impl Future<Output = ()>) -> Finished {
        let began = BootTime::now();
        let longest = began + self.timeout + KILL_RESERVE;
        let mut by = self.by;
        let until = by.as_mut().map_or(longest, |by| by.now().min(longest));
        let mut kill_at = last_kill(until);
        if began >= kill_at {
            let none = Finished::not_started("no time was left for it".to_owned());
            return Finished { timed_out: Some(Duration::ZERO), ..none };
        }
        let mut cancelled = std::pin::pin!(cancelled);
        let run_as = match self.run_as {
            None => None,
            Some(run_as) => tokio::select! {
                found = run_as.other_than_own() => match found {
                    Ok(run_as) => run_as,
                    Err(reason) => return Finished::not_started(reason),
                },
                () = &mut cancelled => {
                    let none = Finished::not_started("it was cancelled before it ran".to_owned());
                    return Finished { is_cancelled: true, ..none };
                }
                () = sleep_until(kill_at) => {
                    let none = Finished::not_started("its user was not found in time".to_owned());
                    return Finished { timed_out: Some(kill_at.duration_since(began)), ..none };
                }
            },
        };
        let mut env = self.env;
        if let Some(identity) = &run_as {
            identity.log_in(&mut env);
        }
        let launch = Launch {
            command: self.command,
            env,
            withheld: guards.withheld.to_vec(),
            run_variable: guards.run_variable(),
            guard_name: guards.guard_name(),
            working_dir: self.working_dir,
            stop_signal: StopSignal::Kill,
            stop_timeout_ms: 0,
            freezes: false,
            until: until.into(),
            cgroup: None,
            record: None,
            lock_from: None,
            relays_output: false,
            open_files: guards.open_files,
            no_new_privileges: renounces_privileges(self.no_new_privileges, run_as.is_some()),
            run_as,
            limits: Limits::default(),
        };
        let (mut reader, stderr) = match pipe() {
            Ok(ends) => ends,
            Err(error) => return Finished::not_started(format!("can't make a pipe: {error}")),
        };
        let stdout = if self.hears.is_some() {
            pipe().map(|(heard, stdout)| (Some(heard), stdout, None))
        } else {
            output::to_log(&self.title, guards.reporter.clone())
                .map(|(stdout, copying)| (None, stdout, Some(copying)))
        };
        let (mut heard, stdout, copying) = match stdout {
            Ok(ends) => ends,
            Err(error) => return Finished::not_started(format!("can't make a pipe: {error}")),
        };
        let output = Output { stdout: Some(stdout), stderr: Some(stderr) };
        let mut guarded = match Guarded::start(guards, &self.title, launch, output).await {
            Ok(guarded) => guarded,
            Err(reason) => return Finished::not_started(reason),
        };
        let mut said = Vec::new();
        let mut exit = Err("it was killed before it ran".to_owned());
        let mut tail = Tail {
            log: self.logs_errors.then(|| LoggedErrors::of(&self.title, guards.reporter.clone())),
            ..Tail::default()
        };
        let mut is_open = true;
        let mut is_cancelled = false;
        let (mut buffer, mut spoken) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                report = guarded.next() => match report {
                    Report::Exited(how) => exit = Ok(how),
                    Report::Failed { error } => exit = Err(error),
                    Report::OutOfMemory => {
                        tracing::warn!("{}: the kernel has ended a process of it, out of memory", self.title)
                    }
                    Report::Gone => break,
                    _ => {}
                },
                read = reader.read(&mut buffer), if is_open => match read {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => tail.push(&buffer[..count]),
                },
                read = hear(&mut heard, &mut spoken), if heard.is_some() => match read {
                    Ok(0) | Err(_) => heard = None,
                    Ok(count) => keep(&mut said, &spoken[..count], self.hears),
                },
                () = &mut cancelled, if !is_cancelled => {
                    is_cancelled = true;
                    guarded.destroy().await;
                }
                moved = moved(&mut by), if by.is_some() => {
                    let until = moved.min(longest);
                    kill_at = last_kill(until);
                    guarded.until(until);
                }
                () = sleep_until(kill_at + ESCALATION_LAG) => guarded.destroy().await,
            }
        }
        let ended = BootTime::now();
        if let Some(copying) = copying {
            copying.finish().await;
        }
        let _ = tokio::time::timeout(DRAIN, async {
            while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                tail.push(&buffer[..count]);
            }
            while let Ok(count @ 1..) = hear(&mut heard, &mut spoken).await {
                keep(&mut said, &spoken[..count], self.hears);
            }
        })
        .await;
        let is_success = exit.as_ref().is_ok_and(|exit| exit.is_success());
        Finished {
            timed_out: (ended >= kill_at && !is_success).then(|| kill_at.duration_since(began)),
            exit,
            is_cancelled,
            stderr: tail.into_string(),
            stdout: said,
        }
    }
}

async fn moved(by: &mut Option<Deadline>) -> BootTime {
    match by {
        Some(by) => by.moved().await,
        None => std::future::pending().await,
    }
}

async fn hear(from: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    match from {
        Some(from) => from.read(buffer).await,
        None => Ok(0),
    }
}

/// Output beyond the limit is read and dropped, so that the writer does not block.
fn keep(said: &mut Vec<u8>, more: &[u8], hears: Option<usize>) {
    let room = (hears.unwrap_or_default() + 1).saturating_sub(said.len());
    said.extend_from_slice(&more[..more.len().min(room)]);
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
    /// Copies all of it.
    log: Option<LoggedErrors>,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(log) = &mut self.log {
            log.push(bytes);
        }
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(TAIL);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.is_cut = true;
        }
    }

    fn into_string(self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        if self.is_cut {
            format!("...{}", text.trim_start_matches(char::REPLACEMENT_CHARACTER))
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_end_and_says_so() {
        let mut short = Tail::default();
        short.push(b"all of it\n");
        assert_eq!(short.into_string(), "all of it");

        let mut long = Tail::default();
        for _ in 0..TAIL {
            long.push(b"xyz");
        }
        long.push(b"end");
        let text = long.into_string();
        assert!(text.starts_with("...") && text.ends_with("xyzend"), "{text}");
        assert_eq!(text.len(), TAIL + 3);
    }
}
