//! The state of a job's process.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::guard::protocol::Exit;

/// The state of a job's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProcessState {
    /// Being started, or started and not ready yet.
    Starting,
    /// Started, and its readiness probe has passed.
    Running,
    /// Its processes are stopped (SIGSTOP) until its deadline is moved on ([`Job::freezes`](crate::Job::freezes)).
    Frozen,
    /// It ended, and is restarted after a pause.
    Backoff,
    /// The stop has begun; not verified gone yet.
    Stopping,
    /// Stopped on request; verified gone.
    Stopped,
    /// Verified gone, and not restarted, because of its exit code ([`ExitCodes::stay_down`](crate::ExitCodes::stay_down)).
    Exited,
    /// Verified gone, and not restarted: too many restarts, an exit code ([`ExitCodes::not_here`](crate::ExitCodes::not_here)), or the lease ended.
    Fatal,
}

impl ProcessState {
    /// All of them.
    pub const ALL: [ProcessState; 8] = [
        ProcessState::Starting,
        ProcessState::Running,
        ProcessState::Frozen,
        ProcessState::Backoff,
        ProcessState::Stopping,
        ProcessState::Stopped,
        ProcessState::Exited,
        ProcessState::Fatal,
    ];

    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            ProcessState::Starting => "starting",
            ProcessState::Running => "running",
            ProcessState::Frozen => "frozen",
            ProcessState::Backoff => "backoff",
            ProcessState::Stopping => "stopping",
            ProcessState::Stopped => "stopped",
            ProcessState::Exited => "exited",
            ProcessState::Fatal => "fatal",
        }
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A job's process at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessStatus {
    /// The state.
    pub state: ProcessState,
    /// Its main process, while there is one.
    pub pid: Option<u32>,
    /// How often it was restarted in this run.
    pub restarts: u32,
    /// Why its last run ended, such as `liveness: ...`, until the next run is ready.
    pub problem: Option<String>,
    /// With [`ProcessState::Exited`]: whether its exit code was 0, so that it has done its work.
    #[serde(skip)]
    pub is_done: bool,
    /// Of a job that consists of several: each of them, in the order of their start. Then the rest is about all together, and
    /// `pid` is that of the first one that runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<NamedStatus>,
}

/// One of several processes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedStatus {
    /// Its name in the job.
    pub name: String,
    /// Its status.
    #[serde(flatten)]
    pub status: ProcessStatus,
}

impl ProcessStatus {
    /// Before the first report of its guard.
    pub const fn starting() -> Self {
        Self::in_state(ProcessState::Starting)
    }

    /// One without a process id, restarts or a problem.
    pub const fn in_state(state: ProcessState) -> Self {
        Self { state, pid: None, restarts: 0, problem: None, is_done: false, processes: Vec::new() }
    }

    /// Whether the job is there for its clients: it runs and is ready, or has done its work.
    pub fn serves(&self) -> bool {
        match self.state {
            ProcessState::Running => true,
            ProcessState::Exited => self.is_done,
            _ => false,
        }
    }
}

/// How a job ended. No process of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How its program ended; `None` if it was not running, or its end was not observed.
    pub exit: Option<Exit>,
    /// From the request, or from its own end, to the end of its last process.
    pub took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_documented() {
        let status = ProcessStatus {
            state: ProcessState::Running,
            pid: Some(42),
            restarts: 1,
            ..ProcessStatus::starting()
        };
        assert_eq!(
            serde_json::to_string(&status).expect("plain data"),
            r#"{"state":"running","pid":42,"restarts":1,"problem":null}"#
        );
        for state in ProcessState::ALL {
            let json = serde_json::to_string(&state).expect("plain data");
            assert_eq!(json, format!("\"{state}\""));
        }
    }
}
