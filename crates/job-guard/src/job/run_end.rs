//! Why the run of a job is over.

use std::time::Duration;

/// Why the run of a job is over. No process of it is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunEnd {
    /// It ended more often than its restart policy allows.
    #[error("job {job} has failed: {last}; not started again after {restarts} restarts")]
    RestartsExhausted {
        /// The job.
        job: String,
        /// How its last run ended.
        last: String,
        /// How often it was started again.
        restarts: u32,
        /// What the policy allows.
        max: u32,
        /// Within which time.
        within: Duration,
    },
    /// It ended with an exit code that says that it can't run on this node.
    #[error("job {job} can't run on this node: exit code {code}")]
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
    /// It ended while it changed its role.
    #[error("job {job} ended while it changed its role: {last}")]
    RoleNotTaken {
        /// The job.
        job: String,
        /// How it ended.
        last: String,
    },
    /// It was stopped on request.
    #[error("job {job} was stopped")]
    Stopped {
        /// The job.
        job: String,
    },
}
