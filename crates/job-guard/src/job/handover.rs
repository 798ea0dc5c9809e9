//! What crosses when this process executes another version of its program: the run of a job, under its guard.
//!
//! The guard does not notice it. Its socket and the pipe of the job's output stay open: the next program inherits them. What
//! was read from them and not used yet crosses as well.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::restart::RestartHistory;

/// How long the tasks of a job wait at most for the next program.
pub(super) const HELD_FOR: Duration = Duration::from_secs(1);

/// A run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunState {
    /// Of a job that is one program.
    #[serde(flatten)]
    pub(super) program: Option<ProgramState>,
    pub(super) restarts: RestartHistory,
    /// Whether it is to be probed until it is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_starting: bool,
    /// Of a job that consists of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) processes: Vec<HandedProcess>,
}

/// A program that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProgramState {
    pub(super) guard: GuardState,
    pub(super) output: OutputState,
    /// The name of its readiness socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) notify: Option<String>,
}

/// One of several processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HandedProcess {
    /// Its name in the job.
    pub(super) name: String,
    /// `None`: it has ended, and stays down.
    pub(super) program: Option<ProgramState>,
    /// As in its status.
    pub(super) is_done: bool,
}

impl ProgramState {
    /// How many descriptors it has: the socket to its guard, the pipe of its output, and its readiness socket if it has one.
    pub(super) fn descriptors(&self) -> usize {
        2 + usize::from(self.notify.is_some())
    }
}

impl RunState {
    /// A run without restarts, of a job that is one program.
    pub(super) fn of(program: Option<ProgramState>) -> Self {
        Self { program, restarts: RestartHistory::default(), is_starting: false, processes: Vec::new() }
    }

    fn programs(&self) -> impl Iterator<Item = &ProgramState> {
        let processes = self.processes.iter().filter_map(|process| process.program.as_ref());
        self.program.iter().chain(processes)
    }

    /// The process ids of its guards.
    pub fn guards(&self) -> impl Iterator<Item = i32> {
        self.programs().map(|program| program.guard.pid)
    }

    /// How many descriptors it has.
    pub fn descriptors(&self) -> usize {
        self.programs().map(ProgramState::descriptors).sum()
    }

    /// The process id of its first program.
    pub(super) fn main(&self) -> Option<u32> {
        u32::try_from(self.programs().next()?.guard.main).ok()
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
    /// As [`JobRun::adopt`](crate::JobRun::adopt) needs them, in this order.
    pub descriptors: Vec<OwnedFd>,
    pub(super) held: Vec<oneshot::Sender<()>>,
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
