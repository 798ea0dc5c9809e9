//! What the last worker of this node has left behind: processes of killed guards, and standbys that outlive their worker.

use std::time::Duration;

use futures_util::future::join_all;
use job_guard::{KILL_RESERVE, LeftRun, StateLock, is_one_left, left_runs};
use zk_session::BootTime;

use crate::{
    config::{Config, StandbySpec},
    error::Error,
    worker::job,
};

/// How long to wait for processes of an earlier worker to end.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// How long a standby may take to end that has outlived the last worker, and of whose job nothing is configured.
const LEFT_WITHIN: Duration = Duration::from_secs(10);

/// Ends what an earlier worker has left behind, but for the standbys that this one continues, which it returns. Whether nothing
/// else is left.
///
/// # Errors
/// If another one must not be started beside a standby that is left.
pub(super) async fn sweep(config: &Config, lock: &StateLock) -> Result<(bool, Vec<LeftRun>), Error> {
    let (left, swept) = end_but(|standby| standby.outlives, config, lock).await;
    let Err(why) = swept else { return Ok((true, left)) };
    let guards = job::new_guards().lock(lock.clone());
    let has_standby = || config.jobs.iter().any(|job| job.spec.standby.is_some());
    if is_one_left(&guards, &left).unwrap_or_else(has_standby) {
        return Err(Error::NotNow(format!(
            "{why}; a standby must not be started beside one that has outlived its worker: end these processes first"
        )));
    }
    tracing::error!("{why}; this worker waits for the session of the earlier one to end");
    Ok((false, left))
}

/// Ends what an earlier worker has left behind, before a job runs without an election.
///
/// # Errors
/// With the processes that are left.
pub(crate) async fn sweep_all(config: &Config, lock: &StateLock) -> Result<(), Error> {
    let (_, swept) = end_but(|_| false, config, lock).await;
    swept.map_err(|why| Error::NotNow(format!("{why}; end these processes first")))
}

/// Ends the standbys that have outlived the last worker: this one was stopped before it could continue them.
pub(super) async fn end_all(config: &Config) {
    // The tasks of the start have it for a moment, and the guards if it had continued them.
    let by = BootTime::now() + LEFT_WITHIN;
    match StateLock::acquire_by(&config.node.state_dir, config.node.id.as_str(), by).await {
        Ok(lock) => drop(end_standbys_but(|_| false, config, &lock).await),
        Err(error) => {
            tracing::info!("can't look for a standby that has outlived the previous worker: {error}")
        }
    }
}

/// Ends what an earlier worker has left behind, but for these standbys, which it returns. Or why something may be left.
async fn end_but(
    is_kept: impl Fn(&StandbySpec) -> bool,
    config: &Config,
    lock: &StateLock,
) -> (Vec<LeftRun>, Result<(), String>) {
    let left = end_standbys_but(is_kept, config, lock).await;
    let guards = job::new_guards().lock(lock.clone());
    let swept = job_guard::sweep(&guards, &left, BootTime::now() + SWEEP_WITHIN).await;
    let may_run = |what| {
        format!("an earlier worker and its guard were killed together, and its job may still run: {what}")
    };
    (left, swept.map_err(may_run))
}

/// Ends the standbys that have outlived the last worker, but for these, which it returns.
async fn end_standbys_but(
    is_kept: impl Fn(&StandbySpec) -> bool,
    config: &Config,
    lock: &StateLock,
) -> Vec<LeftRun> {
    let standby_of = |run: &LeftRun| {
        let job = config.jobs.iter().find(|job| job::standby_name(job.name()) == run.job())?;
        job.spec.standby.as_ref()
    };
    let left = left_runs(&job::new_guards().lock(lock.clone())).await;
    let (left, others): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|run| standby_of(run).is_some_and(&is_kept));
    let stop = |run: LeftRun| {
        let within = standby_of(&run).map_or(LEFT_WITHIN, |standby| standby.stop_timeout);
        run.stop(BootTime::now() + within + KILL_RESERVE)
    };
    join_all(others.into_iter().map(stop)).await;
    left
}
