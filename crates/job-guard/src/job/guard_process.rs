//! The process of a guard: started by this program, or by the one that this process ran before an upgrade.

use std::io;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, waitpid};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// How often the end of an adopted guard is looked for without a notification of a death.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A guard's process, a child of this one.
#[derive(Debug)]
pub(super) enum GuardProcess {
    /// This program has started it.
    Started(Child),
    /// The runtime does not know it; `is_reaped` once it has ended and its state was read.
    Adopted { pid: Pid, is_reaped: bool },
}

impl GuardProcess {
    /// Whether its end was read, so that its pid may belong to another process.
    pub(super) fn is_reaped(&self) -> bool {
        match self {
            GuardProcess::Started(child) => child.id().is_none(),
            GuardProcess::Adopted { is_reaped, .. } => *is_reaped,
        }
    }

    /// Sends SIGKILL.
    pub(super) fn start_kill(&mut self) {
        match self {
            GuardProcess::Started(child) => {
                let _ = child.start_kill();
            }
            GuardProcess::Adopted { pid, is_reaped: false } => {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            GuardProcess::Adopted { .. } => {}
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
