//! Passes the job's output on to the worker.
//!
//! ```text
//!   job ── a pipe of the guard's own ──▶ guard ── standard output, a pipe to the worker ──▶ worker ──▶ its log
//!                                          └───── the worker's standard error, once the worker is gone
//! ```
//!
//! The guard, not the worker, reads the output, so that the job depends on its guard alone. A killed worker does not
//! end the job by SIGPIPE during its stop, and a frozen worker does not block it. Nothing here blocks the guard. Output
//! that can't be passed on is held back for [`STALL`], which slows the job down as a slow log would. After that it is
//! dropped until the other side reads again.

use std::fs::{File, OpenOptions};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd;
use rustix::stdio;
use zk_session::BootTime;

/// How long output is held back for a worker that does not read. Longer than the worker waits for its own log.
const STALL: Duration = Duration::from_secs(2);

/// The pause between two reads of dropped output, so that a job that writes endlessly does not keep the guard busy.
const PAUSE: Duration = Duration::from_millis(10);

/// The capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// How long the last output may take once the job is gone.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The job's standard output and standard error, in one stream, which keeps their order.
#[derive(Debug)]
pub(super) struct Relay {
    from: OwnedFd,
    to: Sink,
    /// Bytes that were read and not passed on yet.
    waiting: Vec<u8>,
    /// Since when the other side has read nothing.
    stalled_since: Option<BootTime>,
    paused_until: Option<BootTime>,
    /// Dropped bytes since the last report.
    dropped: usize,
    /// Whether what was passed on last ended within a line.
    is_within_line: bool,
    is_over: bool,
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
    /// No destination is left.
    Nowhere,
}

impl Relay {
    /// The relay, and the end that the job writes to.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub(super) fn new() -> nix::Result<(Relay, OwnedFd)> {
        let (from, writer) = unistd::pipe2(OFlag::O_CLOEXEC)?;
        // The job and the worker have the other ends. Neither sees this mode.
        fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(stdio::stdout(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let relay = Relay {
            from,
            to: Sink::Worker,
            waiting: Vec::new(),
            stalled_since: None,
            paused_until: None,
            dropped: 0,
            is_within_line: false,
            is_over: false,
        };
        Ok((relay, writer))
    }

    /// What to poll before the next [`step`](Relay::step).
    pub(super) fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        if self.is_over || self.paused_until.is_some() {
            return None;
        }
        Some(if self.waiting.is_empty() {
            (self.from.as_fd(), PollFlags::POLLIN)
        } else {
            (self.to.fd()?, PollFlags::POLLOUT)
        })
    }

    /// When to call [`step`](Relay::step) if nothing becomes ready.
    pub(super) fn wake_at(&self) -> Option<BootTime> {
        if self.is_over {
            return None;
        }
        let stalled = self.stalled_since.filter(|_| !self.waiting.is_empty());
        self.paused_until.or(stalled.map(|since| since + STALL))
    }

    /// Reads and passes on a chunk, if that is possible now.
    pub(super) fn step(&mut self, now: BootTime) {
        if self.is_over || self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        if self.waiting.is_empty() {
            self.read();
        }
        if self.waiting.is_empty() {
            return;
        }
        if self.dropped > 0 && self.to.is_ready() {
            self.report_dropped();
        }
        match self.to.write(&self.waiting) {
            Ok(count) => {
                self.is_within_line = count.checked_sub(1).is_some_and(|last| self.waiting[last] != b'\n');
                self.waiting.drain(..count);
                // After a partial write the wait begins again.
                self.stalled_since = (!self.waiting.is_empty()).then_some(now);
            }
            Err(Errno::EAGAIN) => {
                let since = *self.stalled_since.get_or_insert(now);
                if now >= since + STALL {
                    self.drop_waiting(now);
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => match mem::replace(&mut self.to, Sink::Nowhere) {
                Sink::Worker => self.to = Sink::stderr(),
                _ => self.drop_waiting(now),
            },
        }
    }

    /// Passes on the rest of the output. No process that could write more is left.
    pub(super) fn finish(mut self) {
        let by = BootTime::now() + LAST_WORDS;
        loop {
            let now = BootTime::now();
            self.step(now);
            if self.is_over && self.waiting.is_empty() || now >= by || matches!(self.to, Sink::Nowhere) {
                return;
            }
            let mut fds: Vec<PollFd<'_>> =
                self.waits_for().map(|(fd, flags)| PollFd::new(fd, flags)).into_iter().collect();
            let _ = poll(&mut fds, PollTimeout::from(10u8));
        }
    }

    fn read(&mut self) {
        self.waiting.resize(CHUNK, 0);
        let read = unistd::read(&self.from, &mut self.waiting);
        self.waiting.truncate(*read.as_ref().unwrap_or(&0));
        self.is_over = !matches!(read, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR));
    }

    fn drop_waiting(&mut self, now: BootTime) {
        self.dropped += self.waiting.len();
        self.waiting.clear();
        self.paused_until = Some(now + PAUSE);
    }

    fn report_dropped(&mut self) {
        let end_of_line = if self.is_within_line { "\n" } else { "" };
        let notice = format!("{end_of_line}[{} bytes of output were dropped here]\n", self.dropped);
        self.waiting.splice(..0, notice.into_bytes());
        self.dropped = 0;
    }
}

impl Sink {
    fn stderr() -> Sink {
        const STDERR: &str = "/proc/self/fd/2";
        match std::fs::metadata(STDERR) {
            Ok(metadata) if metadata.file_type().is_socket() => Sink::StderrSocket,
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
            Sink::Nowhere => None,
        }
    }

    fn is_ready(&self) -> bool {
        let Some(fd) = self.fd() else { return false };
        poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn write(&self, bytes: &[u8]) -> nix::Result<usize> {
        match self {
            Sink::Worker => unistd::write(stdio::stdout(), bytes),
            Sink::Stderr(file) => unistd::write(file, bytes),
            Sink::StderrSocket => {
                send(stdio::stderr().as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)
            }
            Sink::Nowhere => Err(Errno::EPIPE),
        }
    }
}
