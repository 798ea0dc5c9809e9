//! Copies the output of programs to where it goes: the worker's log, a file, or the journal.
//!
//! A program never has the worker's own standard error: if nothing reads that pipe, the program would fill it, and the
//! worker would block. The program has its own pipe, from which its lines are copied.
//!
//! OutputLines wait a moment for a destination that accepts none, which slows the program down as a slow log would. After that
//! they are dropped and counted until it accepts lines again.

mod kept;
mod limit;
mod lines;
mod sink;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::{
    guards::Guards,
    handover::{Ask, OutputState, hold},
    reporter::Reporter,
};
use crate::{
    config::{Job, JobOutput},
    guard::frames::{Frame, Frames, Stream},
};
pub use kept::{Followed, KeptLine, KeptOutput};
use limit::{Excess, Limit, Passage};
use lines::OutputLines;
use sink::{FileSink, JournalSink};

/// How long lines wait for room before they are dropped.
const STALL: Duration = Duration::from_secs(1);

/// The pause between two reads of dropped lines. A program that writes endlessly costs less CPU time by it, and is hardly slowed down.
const PAUSE: Duration = Duration::from_millis(1);

/// The capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// How long a destination may hold up a handover.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// How long the lines of a program that has ended may take to reach their destination.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Waits until all lines of jobs are written that were passed on before, but no longer than `within` for each destination.
pub fn flush(within: Duration) {
    sink::flush(within);
    kept::flush(within);
}

/// The task that copies lines while any process has the other end of the pipe.
#[derive(Debug)]
pub(super) struct Copying {
    task: JoinHandle<()>,
    asks: mpsc::Sender<Ask<HandedOutput>>,
}

/// Output that is handed over to the next program of this process: what was not passed on yet, the read end, and what holds
/// the task meanwhile.
#[derive(Debug)]
pub(super) struct HandedOutput {
    pub(super) state: OutputState,
    pub(super) pipe: OwnedFd,
    pub(super) held: oneshot::Sender<()>,
}

/// Creates a pipe whose lines are logged under a program's name.
///
/// # Errors
/// If no descriptors are left.
///
/// # Panics
/// Outside a tokio runtime with I/O and time enabled.
pub(super) fn to_log(name: &str, reporter: Arc<dyn Reporter>) -> io::Result<(OwnedFd, Copying)> {
    let (reader, writer) = pipe()?;
    let outlet = Outlet::new(name.to_owned(), Destination::Log, reporter);
    Ok((writer, Copying::spawn(reader, None, outlet)))
}

/// Creates a pipe for the frames of a job's guard. The job's lines go where its configuration says, and to `kept`.
///
/// # Errors
/// If no descriptors are left.
///
/// # Panics
/// As [`to_log`].
pub(super) fn of_job(jobs: watch::Receiver<Arc<Job>>, guards: &Guards) -> io::Result<(OwnedFd, Copying)> {
    let (reader, writer) = pipe()?;
    Ok((writer, Copying::spawn(reader, Some(OutputState::default()), outlet_of(jobs, guards)?)))
}

/// Continues with the output of a job's guard that the program before this one has handed over.
///
/// # Errors
/// If it is no pipe, or the destination can't be opened.
///
/// # Panics
/// As [`to_log`].
pub(super) fn adopt(
    jobs: watch::Receiver<Arc<Job>>,
    guards: &Guards,
    state: OutputState,
    pipe: OwnedFd,
) -> io::Result<Copying> {
    let reader = pipe::Receiver::from_owned_fd(pipe)?;
    Ok(Copying::spawn(reader, Some(state), outlet_of(jobs, guards)?))
}

fn outlet_of(mut jobs: watch::Receiver<Arc<Job>>, guards: &Guards) -> io::Result<Outlet> {
    let job = Arc::clone(&jobs.borrow_and_update());
    let stream_field = guards.stream_field();
    let to = Destination::open(&job, &stream_field)?;
    let follows = Some(Follows { jobs, output: job.output.clone(), stream_field });
    let (kept, limit) = (KeptOutput::of_guards(guards), limit_of(&job));
    Ok(Outlet { kept, follows, limit, ..Outlet::new(job.name.clone(), to, guards.reporter.clone()) })
}

fn limit_of(job: &Job) -> Option<Limit> {
    job.output_limit.map(|bytes| Limit::new(bytes, Instant::now()))
}

/// The read end, and the write end.
///
/// # Errors
/// If no descriptors are left.
pub(super) fn pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (writer, reader) = pipe::pipe()?;
    Ok((reader, writer.into_blocking_fd()?))
}

impl Copying {
    /// `framed`: what was read before of a guard's frames; `None` if lines come without frames.
    fn spawn(from: pipe::Receiver, framed: Option<OutputState>, outlet: Outlet) -> Copying {
        let (sender, asks) = mpsc::channel(1);
        Copying { task: tokio::spawn(copy(from, framed, outlet, asks)), asks: sender }
    }

    /// Hands the output over to the next program of this process.
    ///
    /// # Errors
    /// The reason, if its task is busy or has ended.
    pub(super) async fn hand_over(&self) -> Result<HandedOutput, String> {
        let (answer, answered) = oneshot::channel();
        let _ = self.asks.try_send(answer);
        match tokio::time::timeout(ANSWER_WITHIN, answered).await {
            Ok(Ok(handed)) => handed,
            _ => Err("its output has ended, or is waiting for its destination".to_owned()),
        }
    }

    /// Waits a moment for the last lines of a program that has ended. Later lines are copied in the background.
    pub(super) async fn finish(self) {
        let _ = tokio::time::timeout(LAST_WORDS, self.task).await;
    }
}

/// Copies the standard error of a program to the log, line by line. Lines for which the log has no room now are dropped
/// and counted: their reader has other things to do.
pub(super) struct LoggedErrors {
    name: String,
    lines: OutputLines,
    reporter: Arc<dyn Reporter>,
}

impl LoggedErrors {
    pub(super) fn of(name: &str, reporter: Arc<dyn Reporter>) -> Self {
        Self { name: name.to_owned(), lines: OutputLines::default(), reporter }
    }

    pub(super) fn push(&mut self, content: &[u8]) {
        self.lines.push(content);
        while let Some(line) = self.lines.next() {
            log_error_line(&*self.reporter, &self.name, line);
        }
    }
}

impl Drop for LoggedErrors {
    fn drop(&mut self) {
        if let Some(rest) = self.lines.rest() {
            log_error_line(&*self.reporter, &self.name, rest);
        }
    }
}

fn log_error_line(reporter: &dyn Reporter, name: &str, line: &[u8]) {
    match reporter.room().now_or_never() {
        Some(()) => reporter.line(name, Stream::Stderr, &String::from_utf8_lossy(line)),
        None => reporter.lines_dropped(name, 1),
    }
}

async fn copy(
    mut from: pipe::Receiver,
    framed: Option<OutputState>,
    mut outlet: Outlet,
    mut asks: mpsc::Receiver<Ask<HandedOutput>>,
) {
    let is_framed = framed.is_some();
    let before = framed.unwrap_or_default();
    let mut frames = Frames::default();
    frames.push(&before.frame);
    let mut lines: [OutputLines; 2] = Default::default();
    for stream in Stream::ALL {
        lines[stream as usize].push(&before.lines[stream as usize]);
    }
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            biased;
            Some(ask) = asks.recv() => {
                hand_over(ask, &from, &frames, &lines).await;
                continue;
            }
            read = from.read(&mut chunk) => read,
        };
        let Ok(count @ 1..) = read else { break };
        outlet.follow();
        if is_framed {
            frames.push(&chunk[..count]);
            while let Some(frame) = frames.next() {
                match frame {
                    Frame::Output(stream, content) => {
                        outlet.pass_on(stream, &mut lines[stream as usize], content).await;
                    }
                    // The guard has written how much in their place.
                    Frame::Dropped(lines) => outlet.reporter.lines_dropped(&outlet.name, lines),
                }
            }
        } else {
            outlet.pass_on(Stream::Stdout, &mut lines[0], &chunk[..count]).await;
        }
        outlet.flush().await;
        if outlet.is_stalled || outlet.limit.as_ref().is_some_and(Limit::is_over) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    for stream in Stream::ALL {
        if let Some(rest) = lines[stream as usize].rest() {
            outlet.write(stream, rest).await;
        }
    }
    outlet.flush().await;
}

/// Answers, and waits for the next program.
async fn hand_over(ask: Ask<HandedOutput>, from: &pipe::Receiver, frames: &Frames, lines: &[OutputLines; 2]) {
    let (held, released) = oneshot::channel();
    let rest = |stream: Stream| lines[stream as usize].rest().unwrap_or_default().to_vec();
    let state = OutputState { frame: frames.rest().to_vec(), lines: Stream::ALL.map(rest) };
    let pipe = from.as_fd().try_clone_to_owned();
    let handed = pipe.map(|pipe| HandedOutput { state, pipe, held }).map_err(|error| error.to_string());
    if ask.send(handed).is_ok() {
        hold(released).await;
    }
}

/// What a future yields within this time. A timeout of zero would last until the next tick of the timer, for each line.
async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    match patience {
        Duration::ZERO => future.now_or_never(),
        patience => tokio::time::timeout(patience, future).await.ok(),
    }
}

enum Destination {
    Log,
    File(FileSink),
    Journal(JournalSink),
}

impl Destination {
    fn open(job: &Job, stream_field: &str) -> io::Result<Self> {
        Ok(match &job.output {
            JobOutput::Log => Self::Log,
            JobOutput::File(file) => Self::File(FileSink::open(&job.name, file)?),
            JobOutput::Journal { socket } => {
                Self::Journal(JournalSink::new(socket.clone(), &job.name, &job.journal_fields, stream_field))
            }
        })
    }
}

/// A destination that the description of the job may change while it runs.
struct Follows {
    jobs: watch::Receiver<Arc<Job>>,
    /// The present one.
    output: JobOutput,
    stream_field: String,
}

/// The destination of one program's lines.
struct Outlet {
    name: String,
    to: Destination,
    kept: Option<KeptOutput>,
    follows: Option<Follows>,
    limit: Option<Limit>,
    reporter: Arc<dyn Reporter>,
    /// Dropped lines since the last report.
    dropped: u64,
    /// Whether the destination has accepted nothing since [`STALL`] ago.
    is_stalled: bool,
}

impl Outlet {
    fn new(name: String, to: Destination, reporter: Arc<dyn Reporter>) -> Self {
        Self { name, to, kept: None, follows: None, limit: None, reporter, dropped: 0, is_stalled: false }
    }

    /// Turns to another destination if the configuration has changed. Nothing waits for the former one then.
    fn follow(&mut self) {
        let Some(follows) = self.follows.as_mut().filter(|f| f.jobs.has_changed().unwrap_or(false)) else {
            return;
        };
        let job = Arc::clone(&follows.jobs.borrow_and_update());
        if self.limit.as_ref().map(Limit::bytes) != job.output_limit {
            self.limit = limit_of(&job);
        }
        if job.output == follows.output {
            return;
        }
        match Destination::open(&job, &follows.stream_field) {
            Ok(to) => {
                (self.to, self.is_stalled) = (to, false);
                follows.output = job.output.clone();
            }
            Err(error) => {
                tracing::error!(job = self.name, %error, "can't open the new destination of its output; still writing to the old one");
            }
        }
    }

    async fn pass_on(&mut self, stream: Stream, lines: &mut OutputLines, content: &[u8]) {
        lines.push(content);
        while let Some(line) = lines.next() {
            self.write(stream, line).await;
        }
    }

    async fn write(&mut self, stream: Stream, line: &[u8]) {
        if let Some(kept) = &self.kept {
            kept.add(&self.name, Some(stream), line);
        }
        if !self.is_within_limit(line.len()) {
            return;
        }
        let patience = self.patience();
        let accepted = match &mut self.to {
            Destination::Log => within(patience, self.reporter.room()).await.map(Ok),
            Destination::Journal(journal) => within(patience, journal.send(stream, line)).await,
            Destination::File(file) => return file.push(line),
        };
        match accepted {
            Some(Ok(())) => self.accepted(),
            Some(Err(error)) => {
                if self.dropped == 0 {
                    let job = self.name.as_str();
                    tracing::error!(job, %error, "can't write its output to the journal; lines are dropped until it accepts them");
                }
                return self.dropped(1);
            }
            None => return self.dropped(1),
        }
        if let Destination::Log = self.to {
            self.reporter.line(&self.name, stream, &String::from_utf8_lossy(line));
        }
    }

    /// Whether a line may pass. What does not is counted.
    fn is_within_limit(&mut self, bytes: usize) -> bool {
        let Some(limit) = &mut self.limit else { return true };
        let (job, most) = (self.name.as_str(), limit.bytes());
        match limit.take(bytes, Instant::now()) {
            Passage::Passes(excess) => {
                if let Some(Excess { lines, bytes }) = excess {
                    tracing::warn!(
                        job,
                        lines,
                        bytes,
                        "{lines} lines of its output, {bytes} bytes, were dropped: it writes more than {most} a second"
                    );
                }
                return true;
            }
            Passage::Dropped(true) => tracing::warn!(
                job,
                "it writes more than {most} a second, the limit of its output: lines are dropped and counted"
            ),
            Passage::Dropped(false) => {}
        }
        self.reporter.lines_dropped(&self.name, 1);
        false
    }

    /// Passes on what was collected of a chunk.
    async fn flush(&mut self) {
        let patience = self.patience();
        let Destination::File(file) = &mut self.to else { return };
        let lines = file.waiting();
        if lines == 0 {
            return;
        }
        match within(patience, file.flush(&self.reporter)).await {
            Some(()) => self.accepted(),
            None => {
                file.discard();
                self.dropped(lines as u64);
            }
        }
    }

    /// How long to wait for room.
    fn patience(&self) -> Duration {
        if self.is_stalled { Duration::ZERO } else { STALL }
    }

    fn dropped(&mut self, lines: u64) {
        self.is_stalled = true;
        self.dropped += lines;
        self.reporter.lines_dropped(&self.name, lines);
    }

    fn accepted(&mut self) {
        self.is_stalled = false;
        if self.dropped > 0 {
            let lines = std::mem::take(&mut self.dropped);
            let job = self.name.as_str();
            let to = match &self.to {
                Destination::Log => "the log",
                Destination::File(_) => "its file",
                Destination::Journal(_) => "the journal",
            };
            tracing::warn!(job, lines, "{lines} lines of its output were dropped: {to} did not accept them");
        }
    }
}
