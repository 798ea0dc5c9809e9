//! How a job's run can go wrong.

use std::time::Duration;

use crate::{config::HookName, worker::guard::Exit};

/// Why a job does not run, or a hook did not do its work.
///
/// In every case but [`JobError::Hook`] nothing of the job runs any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It ended more often than its restart policy bears.
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
        /// The end of what it wrote on standard error.
        stderr: String,
    },
}

/// What went wrong with a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookProblem {
    /// It ended with anything but exit code 0.
    #[error("failed with {0}")]
    Failed(Exit),
    /// It did not end within its timeout, or within what the lease left of it, and was killed with
    /// everything that it had started.
    #[error("did not end within {0:?} and was killed")]
    TimedOut(Duration),
    /// It could not be started.
    #[error("could not be started: {0}")]
    NotStarted(String),
}

fn quoted(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        words => format!("; it said: {words}"),
    }
}
