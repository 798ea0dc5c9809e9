//! The budget of file descriptors: how many this process may open, and what for.
//!
//! The soft limit is 1024 on most machines for the sake of programs that use `select`; the hard limit is the real one.
//! A worker raises its soft limit, as systemd recommends, and restores it for the programs that it starts. Jobs come
//! first: the HTTP endpoints get what they leave.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    config::{Check, HookMode, HookName, JobConfig, JobOutput, JobSpec, ReadyProbe},
    error::Error,
};

/// What a worker without jobs and HTTP clients needs: the runtime, signals, the listener, the lock, the reserve for
/// looking at processes, connections to servers while it looks for a better one, probes of other members, and [`QUESTIONS`].
const OWN: u64 = 64;

/// How many questions of HTTP clients are passed on to other workers at a time.
pub(crate) const QUESTIONS: usize = 8;

/// What a running job needs: the socket to its guard, the handle of the guard's process, and its output.
const RUNNING: u64 = 3;

/// What a program needs while it is started or run to its end: two ends each of socket, output and standard error, and the
/// handle of its guard's process. Few jobs start at the same time, except when a site is lost.
const STARTING: u64 = 7;

/// The least and the most HTTP clients at a time.
const LEAST_CLIENTS: u64 = 16;
const MOST_CLIENTS: usize = 512;

/// The soft limit that the process was started with.
static STARTED_WITH: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one.
///
/// # Errors
/// If the kernel refuses it.
pub(crate) fn raise_limit() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    STARTED_WITH.get_or_init(|| current);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// The soft limit that the process was started with, for the next program of this process.
pub(crate) fn started_with() -> Option<u64> {
    STARTED_WITH.get().copied().flatten()
}

/// The program before this one in this process was started with this soft limit.
pub(crate) fn inherit_limit(started_with: Option<u64>) {
    STARTED_WITH.get_or_init(|| started_with);
}

/// The soft limit for programs that this process starts, if it differs from its own.
pub(crate) fn limit_of_programs() -> Option<u64> {
    let started_with = started_with()?;
    (getrlimit(Resource::Nofile).current != Some(started_with)).then_some(started_with)
}

/// How many files a worker must be able to open to lead all of these jobs.
pub(crate) fn needed(jobs: &[JobConfig]) -> u64 {
    OWN + jobs.iter().map(of_job).sum::<u64>() + LEAST_CLIENTS
}

/// How many HTTP clients may connect at once, so that this worker can lead all jobs.
///
/// # Errors
/// With the figures, if the limit is too low for the jobs alone.
pub(crate) fn clients_beside(jobs: &[JobConfig]) -> Result<usize, Error> {
    // There is no limit.
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(MOST_CLIENTS) };
    let of_jobs: u64 = jobs.iter().map(of_job).sum();
    let needed = needed(jobs);
    if limit < needed {
        return Err(Error::Setting {
            key: "job",
            message: format!(
                "this worker may open {limit} files, and needs {needed} to lead all of its {} jobs: {of_jobs} for them, \
                 {OWN} for itself, {LEAST_CLIENTS} for HTTP clients; raise the hard limit (LimitNOFILE= in a systemd unit, ulimit -Hn \
                 in a shell), or configure fewer jobs",
                jobs.len()
            ),
        });
    }
    let left = limit - OWN - of_jobs;
    Ok(usize::try_from(left).unwrap_or(usize::MAX).min(MOST_CLIENTS))
}

/// What a job needs at most: while it is started, or while it runs with a probe, hooks, a measurement and a fitness
/// check. Asynchronous hooks run beside each other. Readiness and liveness are never probed at the same time.
fn of_job(job: &JobConfig) -> u64 {
    let spec = &job.spec;
    let of_probe = |probe: &ReadyProbe| match probe {
        ReadyProbe::None { .. } => 0,
        ReadyProbe::Notify | ReadyProbe::Tcp { .. } | ReadyProbe::Http { .. } => 1,
        ReadyProbe::Exec { .. } => STARTING,
    };
    let of_check = |check: &Option<Check>| check.as_ref().map_or(0, |check| of_probe(&check.probe));
    let output = u64::from(spec.output != JobOutput::Log);
    let of_program = |program: &JobSpec| {
        let probes = of_probe(&program.ready).max(of_check(&program.liveness));
        RUNNING + output + STARTING + probes
    };
    let programs: u64 = spec.programs().iter().map(of_program).sum();
    let hooks = || HookName::ALL.into_iter().filter_map(|name| spec.hooks.get(name));
    let sync = spec.fence.is_some() || hooks().any(|hook| hook.mode == HookMode::Sync);
    let beside = hooks().map(|hook| u64::from(hook.mode == HookMode::Async)).sum::<u64>();
    let others = u64::from(sync) + beside + u64::from(spec.measure.is_some());
    programs + of_check(&spec.fitness) + others * STARTING
}
