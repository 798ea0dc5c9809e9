//! What crosses when this process executes another version of its program: the run of a job, under its guard.
//!
//! The guard does not notice it. Its socket and the pipe of the job's output stay open: the next program inherits them. What
//! was read from them and not used yet crosses as well.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::restart::RestartState;

/// How long the tasks of a job wait at most for the next program.
pub(super) const HELD_FOR: Duration = Duration::from_secs(1);

/// A run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunState {
    pub(super) guard: GuardState,
    pub(super) restarts: RestartState,
    pub(super) output: OutputState,
}

impl RunState {
    /// The process id of its guard.
    pub fn guard(&self) -> i32 {
        self.guard.pid
    }

    /// The process id of its program.
    pub fn main(&self) -> i32 {
        self.guard.main
    }
}

/// A guard whose program runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct GuardState {
    pub(super) pid: i32,
    pub(super) main: i32,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) record: Option<PathBuf>,
    /// The beginning of its next report.
    pub(super) unread: Vec<u8>,
}

/// Output that was read from the guard's pipe and is no whole frame, or no whole line, yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct OutputState {
    pub(super) frame: Vec<u8>,
    pub(super) lines: [Vec<u8>; 2],
}

/// A run of a job that is handed over. While this exists and [`is_held`](Self::is_held), nothing here acts on it; dropped,
/// it continues here.
#[derive(Debug)]
pub struct HandedRun {
    /// What the next program gets as data.
    pub state: RunState,
    /// The socket to the guard, the first descriptor of [`JobRun::adopt`](crate::JobRun::adopt).
    pub socket: OwnedFd,
    /// The pipe of the job's output, the second one.
    pub output: OwnedFd,
    pub(super) held: [oneshot::Sender<()>; 2],
}

impl HandedRun {
    /// Whether its tasks still do nothing.
    pub fn is_held(&self) -> bool {
        self.held.iter().all(|held| !held.is_closed())
    }
}

/// A request to hand over, and its answer: the reason if that is not possible now.
pub(super) type Ask<T> = oneshot::Sender<Result<T, String>>;

/// Waits until what was handed over has been dropped, but not longer than [`HELD_FOR`].
pub(super) async fn hold(released: oneshot::Receiver<()>) {
    let _ = tokio::time::timeout(HELD_FOR, released).await;
}
