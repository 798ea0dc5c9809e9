//! The errors of a job's run.

use std::time::Duration;

use election_core::Failure;

use crate::{config::HookName, worker::guard::Exit};

/// Why a job does not run, or a hook failed.
///
/// In every case but [`JobError::Hook`], no process of the job is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It ended more often than its restart policy allows.
    #[error(
        "job {job} has failed: {last}; not started again after {restarts} restarts \
         (job.{job}.restart allows {max} within {within:?})"
    )]
    RestartsExhausted {
        /// The job.
        job: String,
        /// How its last run ended.
        last: String,
        /// How often it was started again in this leadership.
        restarts: u32,
        /// What the policy allows.
        max: u32,
        /// Within which time.
        within: Duration,
    },
    /// It ended with an exit code that says that it can't run on this node.
    #[error("job {job} can't run on this node: exit code {code} (job.{job}.exit_codes.not_here)")]
    NotHere {
        /// The job.
        job: String,
        /// The exit code.
        code: i32,
    },
    /// The lease ended, or left no time to start the job and to stop it again.
    #[error("job {job} was ended because its lease was not renewed in time")]
    LeaseEnded {
        /// The job.
        job: String,
    },
    /// It was stopped on request.
    #[error("job {job} was stopped")]
    Stopped {
        /// The job.
        job: String,
    },
    /// A hook failed.
    #[error("hook {hook} of job {job} {problem}{}", quoted(.stderr))]
    Hook {
        /// The job.
        job: String,
        /// The hook.
        hook: HookName,
        /// What went wrong.
        problem: HookProblem,
        /// The end of its standard error.
        stderr: String,
    },
}

/// What went wrong with a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookProblem {
    /// It ended with another exit than code 0.
    #[error("failed with {0}")]
    Failed(Exit),
    /// It declined leadership, with exit code 75.
    #[error("declined leadership (exit code 75)")]
    Declined,
    /// It did not end within its timeout, or before the end of the lease, and was killed with everything that it had
    /// started.
    #[error("did not end within {0:?} and was killed")]
    TimedOut(Duration),
    /// It could not be started.
    #[error("could not be started: {0}")]
    NotStarted(String),
}

impl JobError {
    /// The same for the election: a hook that declines leadership has not failed.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            JobError::Hook { problem: HookProblem::Declined, .. } => Failure::declined(self.to_string()),
            error => error.into(),
        }
    }
}

fn quoted(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; its standard error: {text}"),
    }
}
