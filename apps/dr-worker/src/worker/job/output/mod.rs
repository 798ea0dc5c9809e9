//! Copies the output of programs to where it goes: the worker's log, a file, or the journal.
//!
//! A program never has the worker's own standard error: if nothing reads that pipe, the program would fill it, and the
//! worker would block. The program has its own pipe, from which its lines are copied.
//!
//! Lines wait a moment for a destination that accepts none, which slows the program down as a slow log would. After that
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
use metrics::{Counter, counter};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::{
    JobEnv,
    handover::{Ask, OutputState, hold},
};
use crate::{
    config::{JobOutput, JobSpec},
    logging::{self, OUTPUT},
    worker::guard::frames::{Frame, Frames, Stream},
};
pub(crate) use kept::{KeptOutput, ShownLine};
use limit::{Excess, Limit, Passage};
use lines::Lines;
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
pub(crate) fn flush(within: Duration) {
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

/// Creates a pipe whose lines are logged under a program's name. `dropped` counts the lines that are dropped.
///
/// # Errors
/// If no descriptors are left.
///
/// # Panics
/// Outside a tokio runtime with I/O and time enabled.
pub(super) fn to_log(name: &str, dropped: Counter) -> io::Result<(OwnedFd, Copying)> {
    let (reader, writer) = pipe()?;
    let outlet = Outlet::new(name.to_owned(), None, To::Log, dropped);
    Ok((writer, Copying::spawn(reader, None, outlet)))
}

/// Creates a pipe for the frames of a job's guard. The job's lines go where its configuration says, and to `kept`.
///
/// # Errors
/// If no descriptors are left.
///
/// # Panics
/// As [`to_log`].
pub(super) fn of_job(
    specs: watch::Receiver<Arc<JobSpec>>,
    env: &JobEnv,
    kept: Option<KeptOutput>,
) -> io::Result<(OwnedFd, Copying)> {
    let (reader, writer) = pipe()?;
    Ok((writer, Copying::spawn(reader, Some(OutputState::default()), outlet_of(specs, env, kept)?)))
}

/// Continues with the output of a job's guard that the program before this one has handed over.
///
/// # Errors
/// If it is no pipe, or the destination can't be opened.
///
/// # Panics
/// As [`to_log`].
pub(super) fn adopt(
    specs: watch::Receiver<Arc<JobSpec>>,
    env: &JobEnv,
    kept: Option<KeptOutput>,
    state: OutputState,
    pipe: OwnedFd,
) -> io::Result<Copying> {
    let reader = pipe::Receiver::from_owned_fd(pipe)?;
    Ok(Copying::spawn(reader, Some(state), outlet_of(specs, env, kept)?))
}

fn outlet_of(
    mut specs: watch::Receiver<Arc<JobSpec>>,
    env: &JobEnv,
    kept: Option<KeptOutput>,
) -> io::Result<Outlet> {
    let spec = Arc::clone(&specs.borrow_and_update());
    let to = To::open(&spec, env)?;
    let dropped = counter!("dr_log_lines_dropped_total", "job" => spec.name.clone());
    let follows = Some(Follows { specs, output: spec.output.clone(), env: env.clone() });
    let limit = limit_of(&spec);
    Ok(Outlet { kept, follows, limit, ..Outlet::new(spec.name.clone(), Some(env.term), to, dropped) })
}

fn limit_of(spec: &JobSpec) -> Option<Limit> {
    spec.output_limit.map(|bytes| Limit::new(bytes, Instant::now()))
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
            _ => Err("its output has ended, or waits for its destination".to_owned()),
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
    lines: Lines,
}

impl LoggedErrors {
    pub(super) fn of(name: &str) -> Self {
        Self { name: name.to_owned(), lines: Lines::default() }
    }

    pub(super) fn push(&mut self, content: &[u8]) {
        self.lines.push(content);
        while let Some(line) = self.lines.next() {
            log_error_line(&self.name, line);
        }
    }
}

impl Drop for LoggedErrors {
    fn drop(&mut self) {
        if let Some(rest) = self.lines.rest() {
            log_error_line(&self.name, rest);
        }
    }
}

fn log_error_line(name: &str, line: &[u8]) {
    if logging::room_for_output().now_or_never().is_none() {
        counter!("dr_log_lines_dropped_total").increment(1);
        return;
    }
    let stream = Stream::Stderr.as_str();
    tracing::info!(target: OUTPUT, job = name, stream, "{}", String::from_utf8_lossy(line));
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
    let mut lines: [Lines; 2] = Default::default();
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
                    Frame::Dropped(lines) => outlet.counter.increment(lines),
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
async fn hand_over(ask: Ask<HandedOutput>, from: &pipe::Receiver, frames: &Frames, lines: &[Lines; 2]) {
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

enum To {
    Log,
    File(FileSink),
    Journal(JournalSink),
}

impl To {
    fn open(spec: &JobSpec, env: &JobEnv) -> io::Result<Self> {
        Ok(match &spec.output {
            JobOutput::Log => Self::Log,
            JobOutput::File(file) => Self::File(FileSink::open(&spec.name, file)?),
            JobOutput::Journal { socket } => {
                Self::Journal(JournalSink::new(socket.clone(), &spec.name, &env.over(&spec.env)))
            }
        })
    }
}

/// A destination that the configuration may change while the job runs.
struct Follows {
    specs: watch::Receiver<Arc<JobSpec>>,
    /// The present one.
    output: JobOutput,
    env: JobEnv,
}

/// The destination of one program's lines.
struct Outlet {
    name: String,
    term: Option<u64>,
    to: To,
    kept: Option<KeptOutput>,
    follows: Option<Follows>,
    limit: Option<Limit>,
    counter: Counter,
    /// Dropped lines since the last report.
    dropped: u64,
    /// Whether the destination has accepted nothing since [`STALL`] ago.
    is_stalled: bool,
}

impl Outlet {
    fn new(name: String, term: Option<u64>, to: To, counter: Counter) -> Self {
        Self {
            name,
            term,
            to,
            kept: None,
            follows: None,
            limit: None,
            counter,
            dropped: 0,
            is_stalled: false,
        }
    }

    /// Turns to another destination if the configuration has changed. Nothing waits for the former one then.
    fn follow(&mut self) {
        let Some(follows) = self.follows.as_mut().filter(|f| f.specs.has_changed().unwrap_or(false)) else {
            return;
        };
        let spec = Arc::clone(&follows.specs.borrow_and_update());
        if self.limit.as_ref().map(Limit::bytes) != spec.output_limit {
            self.limit = limit_of(&spec);
        }
        if spec.output == follows.output {
            return;
        }
        match To::open(&spec, &follows.env) {
            Ok(to) => {
                (self.to, self.is_stalled) = (to, false);
                follows.output = spec.output.clone();
            }
            Err(error) => {
                tracing::error!(job = self.name, %error, "can't open the new destination of its output; the old one is used");
            }
        }
    }

    async fn pass_on(&mut self, stream: Stream, lines: &mut Lines, content: &[u8]) {
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
            To::Log => within(patience, logging::room_for_output()).await.map(Ok),
            To::Journal(journal) => within(patience, journal.send(stream, line)).await,
            To::File(file) => return file.push(line),
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
        if let To::Log = self.to {
            let (job, term, stream) = (self.name.as_str(), self.term, stream.as_str());
            tracing::info!(target: OUTPUT, job, term, stream, "{}", String::from_utf8_lossy(line));
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
                "it writes more than {most} a second (job.{job}.output.limit): lines of its output are dropped and counted"
            ),
            Passage::Dropped(false) => {}
        }
        self.counter.increment(1);
        false
    }

    /// Passes on what was collected of a chunk.
    async fn flush(&mut self) {
        let patience = self.patience();
        let To::File(file) = &mut self.to else { return };
        let lines = file.waiting();
        if lines == 0 {
            return;
        }
        match within(patience, file.flush(&self.counter)).await {
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
        self.counter.increment(lines);
    }

    fn accepted(&mut self) {
        self.is_stalled = false;
        if self.dropped > 0 {
            let lines = std::mem::take(&mut self.dropped);
            let job = self.name.as_str();
            let to = match &self.to {
                To::Log => "the log",
                To::File(_) => "its file",
                To::Journal(_) => "the journal",
            };
            tracing::warn!(job, lines, "{lines} lines of its output were dropped: {to} accepted none");
        }
    }
}
