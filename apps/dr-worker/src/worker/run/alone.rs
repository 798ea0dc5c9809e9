//! Runs a job without an election, by an operator's order.

use std::{future::pending, sync::Arc, time::Duration};

use job_guard::{Deadline, StateLock, WorkTime};
use tokio::{sync::watch, task::JoinSet};
use zk_session::BootTime;

use super::{LAST_LINES, work::JobWork};
use crate::{
    config::{Config, HookName, JobConfig},
    error::Error,
    logging, signals,
    signals::Signals,
    worker::{
        descriptors,
        emergency::decision::Grant,
        job::{self, JobEnv},
        state::JobSlot,
    },
};

/// The cause of such a leadership, for the job and its hooks.
const CAUSE: &str = "emergency";

/// How long the job outlives a hanging worker. No other member waits for its end, so it is long; a worker that is killed
/// takes its job with it at once.
const LEASE: Duration = Duration::from_secs(60);

/// The pause between two renewals of that lease.
const RENEWAL: Duration = Duration::from_secs(1);

/// Runs the job of this node until a signal ends it, under a guard, with its hooks. Former leaders are not fenced.
///
/// # Errors
/// Why the job could not be started, or could not go on. No process of it is left.
pub(crate) async fn lead(
    config: &Config,
    job: &JobConfig,
    lock: StateLock,
    grant: &Grant,
    reason: &str,
    mut signals: Signals,
) -> Result<(), Error> {
    logging::identify(config.node.id.as_str(), config.node.site.as_str(), [job.name()].into_iter());
    let internal = |error: std::io::Error| Error::Internal(format!("can't begin: {error}"));
    job_guard::adopt_orphans().map_err(internal)?;
    descriptors::raise_limit().map_err(internal)?;
    let mut background = JoinSet::new();
    background.spawn(async {
        if let Err(error) = job_guard::tend_orphans().await {
            tracing::error!(%error, "can't reap orphans");
        }
    });
    background.spawn(async {
        if let Err(error) = signals::log_ignored().await {
            tracing::warn!(%error, "can't log ignored signals");
        }
    });
    let mut guards = job::new_guards().lock(lock);
    if let Ok(cgroup) = job_guard::delegated_cgroup() {
        guards = guards.cgroup(cgroup);
    }
    let slot = Arc::new(JobSlot::new(&config.node, job, guards, None, Duration::ZERO));
    let work = JobWork { slot: Arc::clone(&slot), fencing: None, order: None };
    let lasts = LEASE.max(4 * slot.stop_budget());
    let (until, lease) = watch::channel(BootTime::now() + lasts);
    background.spawn(async move {
        loop {
            tokio::time::sleep(RENEWAL).await;
            until.send_replace(BootTime::now() + lasts);
        }
    });
    let env = JobEnv {
        term: grant.term,
        fencing_token: grant.token,
        cause: CAUSE.to_owned(),
        reason: reason.to_owned(),
        ..slot.env_of_member()
    };
    slot.arrives();
    let (why, led) = tokio::select! {
        name = signals.next() => {
            tracing::info!(job = job.name(), signal = name, "stopping the job");
            (name.to_owned(), Ok(()))
        }
        failed = run(&slot, &env, &lease) => {
            tracing::error!(job = job.name(), error = %failed, "the emergency leadership has failed; stopping the job");
            (failed.to_string(), Err(failed))
        }
    };
    let before_stop = Deadline::before(lease, slot.stop_budget());
    let by = || BootTime::now() + slot.stop_budget();
    let mut ending = std::pin::pin!(work.end(&why, Some(before_stop), pending(), by));
    loop {
        tokio::select! {
            () = &mut ending => break,
            name = signals.next() => {
                tracing::warn!(signal = name, "second signal: killing the job, skipping its hooks");
                slot.hasten();
            }
        }
    }
    slot.left();
    background.shutdown().await;
    job_guard::flush_output(LAST_LINES);
    led
}

/// Starts the job, with its hooks, and returns why it can't go on.
async fn run(slot: &JobSlot, env: &JobEnv, lease: &watch::Receiver<BootTime>) -> Error {
    let failed = |error: &dyn std::fmt::Display| Error::Failed(error.to_string());
    let by = || Some(Deadline::before(lease.clone(), Duration::ZERO));
    slot.enter(env.clone());
    // As in an election: a node prepares before it has a token.
    let unnamed = JobEnv { fencing_token: 0, ..env.clone() };
    for (name, env) in [(HookName::Prepare, &unnamed), (HookName::BeforeTakeover, env)] {
        if let Err(error) = slot.hook(name, env, by()).await {
            return failed(&error);
        }
    }
    let run = slot.start(env, WorkTime::from(lease.clone()));
    let (job, limit) = (slot.name(), slot.takeover_timeout());
    match tokio::time::timeout(limit, run.ready()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return failed(&error),
        Err(_) => {
            return failed(&format!("job {job} is not ready within {limit:?} (policy.takeover_timeout)"));
        }
    }
    tracing::warn!(job, token = env.fencing_token, "leads without ZooKeeper");
    if let Err(error) = slot.hook(HookName::AfterReady, env, by()).await {
        tracing::warn!(job, "{error}");
    }
    failed(&run.finished().await)
}
