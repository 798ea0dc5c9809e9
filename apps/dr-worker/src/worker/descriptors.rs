//! How many descriptors this process may open, and what they are for.
//!
//! The soft limit is 1024 on most machines for the sake of programs that use `select`; the hard one is what was meant.
//! A worker raises its own, as systemd recommends, and gives the soft limit back to what it starts. Guards come first:
//! what the HTTP endpoints may take is what the jobs leave.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    config::{Check, HookName, JobConfig, ReadyProbe},
    error::Error,
};

/// What a worker without jobs and HTTP clients has open: the runtime, signals, the listener, the lock, the reserve for
/// looking at processes, connections to servers while it looks for a better one, and probes of other members.
const OWN: u64 = 64;

/// What a job takes while it runs: the socket to its guard, the handle of the guard's process, and its output.
const RUNNING: u64 = 3;

/// What a program takes while it is started or run to its end: two ends each of socket, output, standard error and
/// the report of a failed `exec`, the lock, and the handle of its guard's process. So many jobs are seldom at that at
/// once, but all of them begin together when a site is lost.
const STARTING: u64 = 7;

/// HTTP clients that there is room for in any case, and at most.
const CLIENTS: std::ops::RangeInclusive<u64> = 16..=512;

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

/// The soft limit that is due to what this process starts, if it has another one itself.
pub(crate) fn limit_of_programs() -> Option<u64> {
    let started_with = STARTED_WITH.get().copied().flatten()?;
    (getrlimit(Resource::Nofile).current != Some(started_with)).then_some(started_with)
}

/// Sets the soft limit of this process, which is about to become another program.
///
/// # Errors
/// If the kernel refuses it.
pub(crate) fn set_limit(current: u64) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).map_err(io::Error::from)
}

/// How many HTTP clients there may be at once, so that all jobs can be led here.
///
/// # Errors
/// With the figures, if the limit does not even suffice for the jobs.
pub(crate) fn clients_beside(jobs: &[JobConfig]) -> Result<usize, Error> {
    // No limit at all.
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(most_clients()) };
    let of_jobs: u64 = jobs.iter().map(of_job).sum();
    let needed = OWN + of_jobs + CLIENTS.start();
    if limit < needed {
        return Err(Error::Setting {
            key: "job",
            message: format!(
                "this worker may open {limit} files, and needs {needed} to lead all of its {} jobs: {of_jobs} for them, \
                 {OWN} for itself, {} for HTTP clients; raise the hard limit (LimitNOFILE= in a systemd unit, ulimit -Hn \
                 in a shell), or configure fewer jobs",
                jobs.len(),
                CLIENTS.start()
            ),
        });
    }
    let left = limit - OWN - of_jobs;
    Ok(usize::try_from(left).unwrap_or(usize::MAX).min(most_clients()))
}

fn most_clients() -> usize {
    usize::try_from(*CLIENTS.end()).unwrap_or(usize::MAX)
}

/// What a job takes at most: as it is started, or while it runs beside a probe, a hook, a measurement and a fitness
/// check. A job is ready before its liveness is checked, never both at once.
fn of_job(job: &JobConfig) -> u64 {
    let spec = &job.spec;
    let of_probe = |probe: &ReadyProbe| match probe {
        ReadyProbe::None { .. } => 0,
        ReadyProbe::Notify | ReadyProbe::Tcp { .. } | ReadyProbe::Http { .. } => 1,
        ReadyProbe::Exec { .. } => STARTING,
    };
    let of_check = |check: &Option<Check>| check.as_ref().map_or(0, |check| of_probe(&check.probe));
    let probes = of_probe(&spec.ready).max(of_check(&spec.liveness)) + of_check(&spec.fitness);
    let has_hooks = HookName::ALL.into_iter().any(|name| spec.hooks.get(name).is_some());
    let others = u64::from(has_hooks) + u64::from(spec.measure.is_some());
    RUNNING + STARTING + probes + others * STARTING
}
