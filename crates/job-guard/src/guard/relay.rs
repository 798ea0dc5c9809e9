//! Passes the job's output on to the worker.
//!
//! ```text
//!   job ── two pipes of the guard's own ──▶ guard ── standard output, a pipe to the worker: frames ──▶ worker
//!                                             └───── the worker's standard error, while the worker is gone
//! ```
//!
//! The guard, not the worker, reads the output, so that the job depends on its guard alone. A killed worker does not
//! end the job by SIGPIPE during its stop, and a frozen worker does not block it. Nothing here blocks the guard while a
//! process of the job is left. Output
//! that can't be passed on is held back for [`STALL`], which slows the job down as a slow log would. After that it is
//! dropped until the other side reads again.
//!
//! The worker learns which stream each frame was written to. The order of lines within a stream is kept; between the two
//! it is the order in which the guard reads them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::Duration;

use boot_time::BootTime;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd;
use rustix::stdio;

use super::frames::{self, Stream};

/// How long output is held back for a worker that does not read. Longer than the worker waits for its own log.
const STALL: Duration = Duration::from_secs(2);

/// The pause between two reads of dropped output, so that a job that writes endlessly does not keep the guard busy.
const PAUSE: Duration = Duration::from_millis(10);

/// The capacity of a pipe, and how much is read at once.
const CHUNK: usize = 64 * 1024;

/// How much is kept for a file. It is locked in memory.
const KEPT: usize = 1 << 20;

/// How long the last output may be held up once the job is gone.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How long it may take altogether: a process may have been given the job's pipe.
const END: Duration = Duration::from_secs(2);

/// The job's standard output and standard error.
#[derive(Debug)]
pub(super) struct Relay {
    from: [Source; 2],
    to: Sink,
    /// The stream that was read last.
    last: usize,
    /// Bytes of it that were read and not passed on yet.
    waiting: Vec<u8>,
    /// Since when the other side has read nothing.
    stalled_since: Option<BootTime>,
    paused_until: Option<BootTime>,
}

/// One of the two streams.
#[derive(Debug)]
struct Source {
    stream: Stream,
    from: OwnedFd,
    /// Dropped bytes and lines since the last report.
    dropped: usize,
    dropped_lines: u64,
    /// Whether what was passed on last ended within a line.
    is_within_line: bool,
    is_over: bool,
}

/// The ends that the job writes to: standard output and standard error.
#[derive(Debug)]
pub(super) struct Writers {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Where output goes. Writing to it does not block.
#[derive(Debug)]
enum Sink {
    /// The pipe to the worker: standard output.
    Worker,
    /// Standard error, reopened: its mode is shared with other processes.
    Stderr(File),
    /// Standard error that is a socket, such as the journal's: it can't be reopened.
    StderrSocket,
    /// Standard error that is a regular file. A write waits for its disk, which can hang: it is for the end, when no process is
    /// left that the guard has to end. Until then this is kept.
    StderrFile(Vec<u8>),
    /// No destination is left.
    Nowhere,
}

impl Source {
    fn new(stream: Stream) -> nix::Result<(Source, OwnedFd)> {
        let (from, writer) = unistd::pipe2(OFlag::O_CLOEXEC)?;
        // The job has the other end, and does not see this mode.
        fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((
            Source { stream, from, dropped: 0, dropped_lines: 0, is_within_line: false, is_over: false },
            writer,
        ))
    }

    /// The line that reports what was dropped, which is reported then.
    fn notice(&mut self) -> Vec<u8> {
        let end_of_line = if self.is_within_line { "\n" } else { "" };
        let notice = format!("{end_of_line}[{} bytes of output were dropped here]\n", self.dropped);
        (self.dropped, self.dropped_lines) = (0, 0);
        notice.into_bytes()
    }

    fn read(&mut self, into: &mut Vec<u8>) {
        into.resize(CHUNK, 0);
        let read = unistd::read(&self.from, into);
        into.truncate(*read.as_ref().unwrap_or(&0));
        self.is_over = !matches!(read, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR));
    }
}

impl Relay {
    /// The relay, and the ends that the job writes to.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub(super) fn new() -> nix::Result<(Relay, Writers)> {
        let (out, stdout) = Source::new(Stream::Stdout)?;
        let (err, stderr) = Source::new(Stream::Stderr)?;
        // The worker has the other end, and does not see this mode.
        fcntl(stdio::stdout(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let relay = Relay {
            from: [out, err],
            to: Sink::Worker,
            // Standard output is read first.
            last: 1,
            waiting: Vec::new(),
            stalled_since: None,
            paused_until: None,
        };
        Ok((relay, Writers { stdout, stderr }))
    }

    /// What to poll before the next [`step`](Relay::step).
    pub(super) fn waits_for(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let is_paused = self.paused_until.is_some();
        let reads = self.waiting.is_empty() && !is_paused;
        let sources = self.from.iter().filter(move |source| reads && !source.is_over);
        let to = self.to.fd().filter(|_| !reads && !is_paused);
        sources
            .map(|source| (source.from.as_fd(), PollFlags::POLLIN))
            .chain(to.map(|to| (to, PollFlags::POLLOUT)))
    }

    /// When to call [`step`](Relay::step) if nothing becomes ready.
    pub(super) fn wake_at(&self) -> Option<BootTime> {
        if self.is_over() {
            return None;
        }
        let stalled = self.stalled_since.filter(|_| !self.waiting.is_empty());
        self.paused_until.or(stalled.map(|since| since + STALL))
    }

    /// The worker has gone. Its end of the pipe can still be open, for a process that dies closes one descriptor after the
    /// other: what would be written into it now would be lost.
    pub(super) fn leave_worker(&mut self) {
        if let Sink::Worker = self.to {
            self.to = Sink::stderr();
        }
    }

    /// The next worker has the other end of this pipe. It gets what was kept for a file.
    ///
    /// # Errors
    /// Any error of the system.
    pub(super) fn begin_anew(&mut self, output: &File) -> io::Result<()> {
        stdio::dup2_stdout(output)?;
        if let Sink::StderrFile(kept) = mem::replace(&mut self.to, Sink::Worker) {
            self.waiting.splice(..0, kept);
        }
        Ok(())
    }

    /// Reads and passes on a chunk, if that is possible now.
    pub(super) fn step(&mut self, now: BootTime) {
        if self.is_over() || self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        self.read();
        while !self.waiting.is_empty() {
            if self.from[self.last].dropped > 0 && self.to.is_ready() {
                self.report_dropped();
            }
            let source = &mut self.from[self.last];
            match self.to.write(source.stream, &self.waiting) {
                Ok(count) => {
                    source.is_within_line =
                        count.checked_sub(1).is_some_and(|last| self.waiting[last] != b'\n');
                    self.waiting.drain(..count);
                    // After a partial write the wait begins again.
                    self.stalled_since = (!self.waiting.is_empty()).then_some(now);
                }
                Err(Errno::EAGAIN) => {
                    let since = *self.stalled_since.get_or_insert(now);
                    if now >= since + STALL {
                        self.drop_waiting(now);
                    }
                    return;
                }
                Err(Errno::EINTR) => {}
                Err(_) => match mem::replace(&mut self.to, Sink::Nowhere) {
                    Sink::Worker => self.to = Sink::stderr(),
                    _ => self.drop_waiting(now),
                },
            }
        }
    }

    /// Passes on the rest of the output. No process that could write more is left. Returns how many lines the worker has not
    /// taken and does not know of.
    pub(super) fn finish(mut self) -> u64 {
        self.pass_on_the_rest();
        self.drop_the_rest();
        if let Sink::StderrFile(kept) = &mut self.to {
            self.from
                .iter_mut()
                .filter(|source| source.dropped > 0)
                .for_each(|source| kept.extend(source.notice()));
            let _ = io::stderr().write_all(kept);
        }
        let is_to_worker = matches!(self.to, Sink::Worker);
        self.from.iter().filter(|_| is_to_worker).map(|source| source.dropped_lines).sum()
    }

    fn pass_on_the_rest(&mut self) {
        let begun = BootTime::now();
        loop {
            self.step(BootTime::now());
            if self.is_over() || matches!(self.to, Sink::Nowhere) {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                self.waits_for().map(|(fd, flags)| PollFd::new(fd, flags)).collect();
            let is_ready = poll(&mut fds, PollTimeout::from(10u8)).is_ok_and(|ready| ready > 0);
            // A busy machine may have given this process no time: then nothing was held up.
            let took = BootTime::now().duration_since(begun);
            if took >= END || (took >= LAST_WORDS && !is_ready) {
                return;
            }
        }
    }

    /// Counts what is not passed on any more.
    fn drop_the_rest(&mut self) {
        let now = BootTime::now();
        self.drop_waiting(now);
        // A process that was given the job's pipe could write endlessly.
        for _ in 0..KEPT / CHUNK {
            self.read();
            self.drop_waiting(now);
        }
    }

    /// Whether both streams have ended, and all of them was passed on.
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.from.iter().all(|source| source.is_over)
    }

    /// Reads a chunk of the stream that was not read last, or else of the other one.
    fn read(&mut self) {
        for _ in 0..self.from.len() {
            if !self.waiting.is_empty() {
                return;
            }
            self.last = (self.last + 1) % self.from.len();
            let source = &mut self.from[self.last];
            if !source.is_over {
                source.read(&mut self.waiting);
            }
        }
    }

    fn drop_waiting(&mut self, now: BootTime) {
        let source = &mut self.from[self.last];
        source.dropped += self.waiting.len();
        source.dropped_lines += self.waiting.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.waiting.clear();
        self.paused_until = Some(now + PAUSE);
    }

    fn report_dropped(&mut self) {
        let source = &mut self.from[self.last];
        if let Sink::Worker = self.to {
            // The sink is ready, and takes a frame completely.
            let _ = unistd::write(stdio::stdout(), &frames::dropped(source.dropped_lines));
        }
        self.waiting.splice(..0, source.notice());
    }
}

impl Sink {
    fn stderr() -> Sink {
        const STDERR: &str = "/proc/self/fd/2";
        match std::fs::metadata(STDERR) {
            Ok(metadata) if metadata.file_type().is_socket() => Sink::StderrSocket,
            Ok(metadata) if metadata.is_file() => Sink::StderrFile(Vec::new()),
            _ => {
                let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
                let opened = OpenOptions::new().append(true).custom_flags(flags.bits()).open(STDERR);
                opened.map_or(Sink::Nowhere, Sink::Stderr)
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Sink::Worker => Some(stdio::stdout()),
            Sink::Stderr(file) => Some(file.as_fd()),
            Sink::StderrSocket => Some(stdio::stderr()),
            Sink::StderrFile(_) | Sink::Nowhere => None,
        }
    }

    fn is_ready(&self) -> bool {
        if let Sink::StderrFile(kept) = self {
            return kept.len() + 2 * CHUNK <= KEPT;
        }
        let Some(fd) = self.fd() else { return false };
        poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Writes some of the bytes, and returns how many.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> nix::Result<usize> {
        match self {
            Sink::Worker => {
                let (frame, count) = stream.frame(bytes);
                unistd::write(stdio::stdout(), &frame).map(|_| count)
            }
            Sink::Stderr(file) => unistd::write(file, bytes),
            Sink::StderrFile(kept) if kept.len() + bytes.len() > KEPT => Err(Errno::EAGAIN),
            Sink::StderrFile(kept) => {
                kept.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            Sink::StderrSocket => {
                send(stdio::stderr().as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
            }
            Sink::Nowhere => Err(Errno::EPIPE),
        }
    }
}
