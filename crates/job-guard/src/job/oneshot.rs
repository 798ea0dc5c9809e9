//! Runs a command to its end under a guard: a hook, an exec probe or a measurement.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use futures_util::future::OptionFuture;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::{
    guarded::{ESCALATION_LAG, Guarded, Output},
    guards::Guards,
    output::{self, Copying, LoggedErrors, pipe},
};
use crate::{
    config::{Identity, KILL_RESERVE, RunAs},
    guard::{
        plan::last_kill,
        protocol::{Exit, Launch, Report},
    },
};

/// How many bytes of the end of standard error are kept.
const TAIL: usize = 4096;

/// How long the rest of standard error is read after all writers have ended.
const DRAIN: Duration = Duration::from_millis(500);

/// A process that lives so long after SIGKILL waits in the kernel.
const HANGS_AFTER: Duration = Duration::from_secs(1);

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
    /// Whether [`run`](Self::run) returns although a process survives SIGKILL, because it waits in the kernel, such as for a disk.
    /// While that one exists, the same command with this title is not started again: it has timed out.
    pub may_outlast: bool,
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
    /// Whether it has ended with exit code 0.
    ///
    /// # Errors
    /// The reason, as a sentence about `what`.
    pub fn succeeded(&self, what: &str) -> Result<(), String> {
        match (self.timed_out, &self.exit) {
            (_, Ok(exit)) if exit.is_success() => Ok(()),
            (Some(after), Err(reason)) => Err(format!("{what} did not end within {after:?}: {reason}")),
            (Some(after), Ok(_)) => Err(format!("{what} did not end within {after:?}")),
            (None, Ok(exit)) => Err(format!("{what} ended: {exit} {}", self.stderr).trim_end().to_owned()),
            (None, Err(reason)) => Err(format!("{what} did not start: {reason}")),
        }
    }

    fn not_started(reason: String) -> Self {
        Self {
            exit: Err(reason),
            timed_out: None,
            is_cancelled: false,
            stderr: String::new(),
            stdout: Vec::new(),
        }
    }

    fn hangs(began: BootTime, kill_at: BootTime) -> Self {
        let none =
            Self::not_started("SIGKILL has not ended it; check whether a disk that it uses hangs".to_owned());
        Self { timed_out: Some(kill_at.duration_since(began)), ..none }
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
            may_outlast: false,
        }
    }

    /// Runs it, and returns when it and everything that it started has ended: no guard would watch what it left behind. See
    /// [`may_outlast`](Self::may_outlast) for an exception.
    ///
    /// If `cancelled` completes first, the command is killed, and gone when this returns, with the same exception.
    ///
    /// # Cancel safety
    /// If the future is dropped, the guard kills the command soon after.
    pub async fn run(self, guards: &Guards, cancelled: impl Future<Output = ()>) -> Finished {
        let began = BootTime::now();
        let longest = began + self.timeout + KILL_RESERVE;
        let mut by = self.by.clone();
        let until = by.as_mut().map_or(longest, |by| by.now().min(longest));
        let mut kill_at = last_kill(until);
        if began >= kill_at {
            let none = Finished::not_started("no time was left for it".to_owned());
            return Finished { timed_out: Some(Duration::ZERO), ..none };
        }
        let mut cancelled = std::pin::pin!(cancelled);
        if let Err(finished) = self.after_hung(guards, cancelled.as_mut(), began, kill_at).await {
            return finished;
        }
        let run_as = match self.user(cancelled.as_mut(), began, kill_at).await {
            Ok(run_as) => run_as,
            Err(finished) => return finished,
        };
        let (mut guarded, mut streams) = match self.start(guards, run_as, until).await {
            Ok(started) => started,
            Err(reason) => return Finished::not_started(reason),
        };
        let mut exit = Err("it was killed before it ran".to_owned());
        let mut is_cancelled = false;
        let is_gone = loop {
            tokio::select! {
                report = guarded.next() => match report {
                    Report::Exited(how) => exit = Ok(how),
                    Report::Failed { error } => exit = Err(error),
                    Report::OutOfMemory => {
                        tracing::warn!("{}: out of memory: kernel killed one of its processes", self.title)
                    }
                    Report::Gone => break true,
                    _ => {}
                },
                () = streams.read() => {}
                () = &mut cancelled, if !is_cancelled => {
                    is_cancelled = true;
                    if !self.destroyed(&mut guarded).await {
                        break false;
                    }
                }
                Some(moved) = OptionFuture::from(by.as_mut().map(Deadline::moved)) => {
                    let until = moved.min(longest);
                    let moved = last_kill(until);
                    // The guard learns only now of a time that has passed.
                    kill_at = if moved < kill_at { moved.max(BootTime::now()) } else { moved };
                    guarded.until(until);
                }
                () = sleep_until(kill_at + ESCALATION_LAG) => if !self.destroyed(&mut guarded).await {
                    break false;
                },
            }
        };
        if !is_gone {
            guards.keep_hung(self.identity(), async move { guarded.destroy().await });
            return Finished { is_cancelled, ..Finished::hangs(began, kill_at) };
        }
        let ended = BootTime::now();
        let (stderr, stdout) = streams.finish().await;
        let is_success = exit.as_ref().is_ok_and(|exit| exit.is_success());
        let timed_out = (ended >= kill_at && !is_success).then(|| kill_at.duration_since(began));
        Finished { exit, timed_out, is_cancelled, stderr, stdout }
    }

    /// What it is called, and runs.
    fn identity(&self) -> String {
        std::iter::once(&self.title).chain(&self.command).map(|part| format!("{part}\0")).collect()
    }

    /// Waits for the end of the one before it that hangs.
    async fn after_hung(
        &self,
        guards: &Guards,
        cancelled: impl Future<Output = ()>,
        began: BootTime,
        kill_at: BootTime,
    ) -> Result<(), Finished> {
        let Some(mut hung) = guards.hung(&self.identity()) else { return Ok(()) };
        tokio::select! {
            _ = hung.changed() => Ok(()),
            () = cancelled => Err(Finished { is_cancelled: true, ..Finished::hangs(began, kill_at) }),
            () = sleep_until(kill_at) => Err(Finished::hangs(began, kill_at)),
        }
    }

    /// Ends it. Returns false if it hangs, and may outlast this.
    async fn destroyed(&self, guarded: &mut Guarded) -> bool {
        if self.may_outlast {
            tokio::time::timeout(HANGS_AFTER, guarded.destroy()).await.is_ok()
        } else {
            guarded.destroy().await;
            true
        }
    }

    /// The user that it runs as, unless that is this process's; or how it ended before it was known.
    async fn user(
        &self,
        cancelled: impl Future<Output = ()>,
        began: BootTime,
        kill_at: BootTime,
    ) -> Result<Option<Identity>, Finished> {
        let Some(run_as) = self.run_as.clone() else { return Ok(None) };
        tokio::select! {
            found = run_as.other_than_own() => found.map_err(Finished::not_started),
            () = cancelled => {
                let none = Finished::not_started("it was cancelled before it ran".to_owned());
                Err(Finished { is_cancelled: true, ..none })
            }
            () = sleep_until(kill_at) => {
                let none = Finished::not_started("its user was not found in time".to_owned());
                Err(Finished { timed_out: Some(kill_at.duration_since(began)), ..none })
            }
        }
    }

    async fn start(
        &self,
        guards: &Guards,
        run_as: Option<Identity>,
        until: BootTime,
    ) -> Result<(Guarded, Streams), String> {
        let (streams, output) = Streams::open(self, guards).map_err(|e| format!("can't make a pipe: {e}"))?;
        let launch = Launch {
            working_dir: self.working_dir.clone(),
            ..guards.launch(&self.command, &self.env, run_as, self.no_new_privileges, until)
        };
        Ok((Guarded::start(guards, &self.title, launch, output).await?, streams))
    }
}

/// What it writes.
struct Streams {
    stderr: Option<pipe::Receiver>,
    tail: Tail,
    /// `None` at its end, and if it goes to the log.
    stdout: Option<pipe::Receiver>,
    heard: Vec<u8>,
    /// How many bytes of that are kept. More is read and dropped, so that the writer does not block.
    most: usize,
    copying: Option<Copying>,
}

impl Streams {
    fn open(command: &OneShot, guards: &Guards) -> io::Result<(Streams, Output)> {
        let OneShot { title, hears, logs_errors, .. } = command;
        let (stderr, error_writer) = pipe()?;
        let (stdout, writer, copying) = if hears.is_some() {
            let (stdout, writer) = pipe()?;
            (Some(stdout), writer, None)
        } else {
            let (writer, copying) = output::to_log(title, guards.reporter.clone())?;
            (None, writer, Some(copying))
        };
        let log = logs_errors.then(|| LoggedErrors::of(title, guards.reporter.clone()));
        let tail = Tail { log, ..Tail::default() };
        let most = hears.unwrap_or_default().saturating_add(1);
        let streams = Streams { stderr: Some(stderr), tail, stdout, heard: Vec::new(), most, copying };
        Ok((streams, Output { stdout: Some(writer), stderr: Some(error_writer) }))
    }

    /// Reads what comes next. Never returns if nothing is left to read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn read(&mut self) {
        let (mut errors, mut output) = ([0; 4096], [0; 4096]);
        tokio::select! {
            count = next(&mut self.stderr, &mut errors) => self.tail.push(&errors[..count]),
            count = next(&mut self.stdout, &mut output) => {
                let room = self.most - self.heard.len();
                self.heard.extend_from_slice(&output[..count.min(room)]);
            }
        }
    }

    /// The end of standard error, and the standard output that was heard, after all writers have ended.
    async fn finish(mut self) -> (String, Vec<u8>) {
        if let Some(copying) = self.copying.take() {
            copying.finish().await;
        }
        let rest = async {
            while self.stderr.is_some() || self.stdout.is_some() {
                self.read().await;
            }
        };
        let _ = tokio::time::timeout(DRAIN, rest).await;
        (self.tail.into_string(), self.heard)
    }
}

/// Reads from a stream, which is `None` from its end on.
async fn next(from: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> usize {
    let Some(open) = from else { return std::future::pending().await };
    let count = open.read(buffer).await.unwrap_or(0);
    if count == 0 {
        *from = None;
    }
    count
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
