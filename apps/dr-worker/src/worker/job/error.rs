//! The errors of a job's run and of its hooks.

use std::time::Duration;

use election_core::handler::Failure;
use job_guard::{Exit, RunEnd};

use crate::config::{HookName, job_key};

/// Why a job does not run, or a hook failed.
///
/// Where its run is over, no process of the job is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// Its run is over.
    #[error("{end}{}", key(.end))]
    Run {
        /// Why.
        #[from]
        end: RunEnd,
    },
    /// The program has not changed its role.
    #[error("{name} of job {job} {problem}{}", quoted(.stderr))]
    RoleChange {
        /// The job.
        job: String,
        /// `promote`, `demote` or `follow`.
        name: &'static str,
        /// What went wrong.
        problem: HookProblem,
        /// The end of its standard error.
        stderr: String,
    },
    /// The program has ended, or was not given the deadline of its new role.
    #[error("the program of job {job} can't change its role: {why}")]
    NotArmed {
        /// The job.
        job: String,
        /// Why.
        why: String,
    },
    /// The program was not told its role.
    #[error("job {job} is not told its role: {why}")]
    NotTold {
        /// The job.
        job: String,
        /// Why.
        why: String,
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

/// The key that has decided that it is over.
fn key(end: &RunEnd) -> String {
    match end {
        RunEnd::RestartsExhausted { job, max, within, .. } => {
            format!(" ({}.restart allows {max} within {within:?})", job_key(job))
        }
        RunEnd::NotHere { job, .. } => format!(" ({}.exit_codes.not_here)", job_key(job)),
        _ => String::new(),
    }
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
    /// The same as the reason why a planned stop is called off.
    pub(crate) fn calling_off(self) -> Failure {
        match self {
            JobError::Hook { hook, problem: HookProblem::Failed(exit), .. } => {
                Failure::new(format!("{hook} failed ({exit})"))
            }
            JobError::Hook { hook, problem, .. } => Failure::new(format!("{hook} {problem}")),
            error => error.into(),
        }
    }

    /// The same for the election: a hook that declines leadership has not failed.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            JobError::Hook { problem: HookProblem::Declined, .. }
            | JobError::RoleChange { problem: HookProblem::Declined, .. } => {
                Failure::declined(self.to_string())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_names_the_key_that_has_decided_it() {
        let job = "orders".to_owned();
        let (last, within) = ("exit code 7".to_owned(), Duration::from_secs(60));
        let exhausted = RunEnd::RestartsExhausted { job: job.clone(), last, restarts: 2, max: 2, within };
        assert_eq!(
            JobError::from(exhausted).to_string(),
            "job orders has failed: exit code 7; not started again after 2 restarts \
             (job.orders.restart allows 2 within 60s)"
        );
        assert_eq!(
            JobError::from(RunEnd::NotHere { job: job.clone(), code: 4 }).to_string(),
            "job orders can't run on this node: exit code 4 (job.orders.exit_codes.not_here)"
        );
        assert_eq!(JobError::from(RunEnd::Stopped { job }).to_string(), "job orders was stopped");
    }
}
