//! A requested stop, without a signal handler.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd as _;

use crate::failure::Failure;

/// SIGTERM and SIGINT as an event to wait for.
///
/// Both signals are blocked and read from a file descriptor, so that they never interrupt a booking: they are read
/// between two bookings, and a pause between bookings ends at once when one comes.
#[derive(Debug)]
pub(crate) struct StopRequest {
    signals: SignalFd,
    seen: Option<&'static str>,
}

impl StopRequest {
    /// Starts to collect the signals. Call it before any other thread is started: threads inherit the mask.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let internal = |errno: Errno| Failure::Internal(format!("signals can't be set up: {errno}"));
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block().map_err(internal)?;
        let signals =
            SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(internal)?;
        Ok(Self { signals, seen: None })
    }

    /// The name of the received signal, if one has come.
    pub(crate) fn requested(&mut self) -> Option<&'static str> {
        if self.seen.is_none()
            && let Ok(Some(info)) = self.signals.read_signal()
        {
            self.seen = Some(if info.ssi_signo == Signal::SIGINT as u32 { "SIGINT" } else { "SIGTERM" });
        }
        self.seen
    }

    /// Waits for a signal for this long, or without limit. Returns true to stop.
    ///
    /// A process that was frozen here waits for the rest of the time, or less. Correctness does not depend on the
    /// length of this pause.
    pub(crate) fn wait(&mut self, at_most: Option<Duration>) -> bool {
        let started = Instant::now();
        loop {
            if self.requested().is_some() {
                return true;
            }
            let left = at_most.map(|at_most| at_most.saturating_sub(started.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let mut descriptors = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            // Interrupted, or failed: the loop checks again in both cases.
            let _ = ppoll(&mut descriptors, left.map(TimeSpec::from_duration), None);
        }
    }
}
