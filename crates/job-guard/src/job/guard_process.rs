//! The process of a guard: started by this program, by the one that this process ran before an upgrade, or by an earlier worker.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open, waitpid};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

use crate::guard::{readable::is_readable, tree::Process};

/// How often the end of an adopted guard is looked for without a notification of a death.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the end of a guard is looked for that is no child: the runtime does not watch such a handle without unsafe code.
const FOREIGN_INTERVAL: Duration = Duration::from_millis(10);

/// A guard's process.
#[derive(Debug)]
pub(super) enum GuardProcess {
    /// This program has started it.
    Started(Child),
    /// The runtime does not know it; `is_reaped` once it has ended and its state was read.
    Adopted { pid: Pid, is_reaped: bool },
    /// No child of this process, which another one has started; `None` if it had ended before it could be watched.
    Foreign(Pid, Option<OwnedFd>),
}

impl GuardProcess {
    /// The guard with this process id, if it is a child of this process.
    ///
    /// # Errors
    /// If it can't be seen.
    pub(super) fn of_child(pid: Pid) -> io::Result<Option<GuardProcess>> {
        let is_child = Process::read(pid)?.is_some_and(|process| process.parent == Pid::this());
        Ok(is_child.then_some(GuardProcess::Adopted { pid, is_reaped: false }))
    }

    /// The guard with this process id, which is no child, and was started at this time; `None`: it has ended. The id may be another
    /// process's by now.
    ///
    /// # Errors
    /// If it can't be watched.
    pub(super) fn foreign(pid: Pid, started: Option<u64>) -> io::Result<GuardProcess> {
        let raw = rustix::process::Pid::from_raw(pid.as_raw()).ok_or(io::ErrorKind::InvalidInput)?;
        let handle = match pidfd_open(raw, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => None,
            opened => Some(opened?),
        };
        let is_still = Process::read(pid)?.is_some_and(|process| Some(process.started) == started);
        Ok(GuardProcess::Foreign(pid, handle.filter(|_| is_still)))
    }

    /// Whether this process reads its end.
    pub(super) fn is_child(&self) -> bool {
        !matches!(self, GuardProcess::Foreign(..))
    }

    /// Whether its end was read, so that its pid may belong to another process.
    pub(super) fn is_reaped(&self) -> bool {
        match self {
            GuardProcess::Started(child) => child.id().is_none(),
            GuardProcess::Adopted { is_reaped, .. } => *is_reaped,
            GuardProcess::Foreign(_, handle) => {
                handle.as_ref().is_none_or(|handle| is_readable(handle.as_fd()))
            }
        }
    }

    /// Sends SIGKILL.
    pub(super) fn start_kill(&mut self) {
        let is_reaped = self.is_reaped();
        match self {
            GuardProcess::Started(child) => {
                let _ = child.start_kill();
            }
            GuardProcess::Adopted { pid, .. } | GuardProcess::Foreign(pid, _) if !is_reaped => {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            GuardProcess::Adopted { .. } | GuardProcess::Foreign(..) => {}
        }
    }

    /// Waits for its end, and reads it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn wait(&mut self) {
        match self {
            GuardProcess::Started(child) => {
                let _ = child.wait().await;
            }
            GuardProcess::Adopted { pid, is_reaped } => {
                // Before the first look, so that no death is missed. Without it the interval finds each.
                let mut deaths = signal(SignalKind::child()).ok();
                while !*is_reaped {
                    *is_reaped = has_ended(*pid);
                    if *is_reaped {
                        return;
                    }
                    let death = async {
                        match &mut deaths {
                            Some(deaths) => deaths.recv().await,
                            None => std::future::pending().await,
                        }
                    };
                    let _ = tokio::time::timeout(LOOK_INTERVAL, death).await;
                }
            }
            GuardProcess::Foreign(..) => {
                while !self.is_reaped() {
                    tokio::time::sleep(FOREIGN_INTERVAL).await;
                }
            }
        }
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        // The runtime reads the end of those that it knows.
        let &mut GuardProcess::Adopted { pid, is_reaped: false } = self else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            while !has_ended(pid) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
    }
}

/// Reads the end of a child, if it has ended.
fn has_ended(pid: Pid) -> bool {
    let state = waitpid(rustix::process::Pid::from_raw(pid.as_raw()), WaitOptions::NOHANG);
    match state {
        Ok(None) => false,
        Err(error) => io::Error::from(error).kind() != io::ErrorKind::Interrupted,
        Ok(Some(_)) => true,
    }
}
