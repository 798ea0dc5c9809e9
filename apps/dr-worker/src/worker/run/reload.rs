//! Reads the configuration again while the worker runs.

use metrics::counter;

use super::parts::Parts;
use crate::{
    config::{Change, Config, Effect, Problems, Sources},
    error::Error,
    logging,
    wall::unix_ms,
    worker::{
        metrics::RELOADS,
        state::{Reload, Worker},
    },
};

/// The longest list of changes in the log.
const LISTED: usize = 50;

/// Reads the configuration again, and does what it says as far as that is possible without a restart of the worker. If
/// anything in it is wrong, nothing changes.
pub(super) async fn reload(sources: &Sources, worker: &Worker, parts: &mut Parts) {
    let reload = match read(sources.clone(), worker).await {
        Ok((config, mut changes)) => {
            let old = worker.config();
            parts.take_over(&old, &config);
            if old.log.levels != config.log.levels && !logging::set_levels(config.log.levels.clone()) {
                tracing::warn!("log.levels has no effect: --log or DR_LOG is given");
            }
            let runs =
                |job: &str| worker.jobs().iter().any(|j| j.slot.name() == job && j.slot.running().is_some());
            for change in &mut changes {
                if change.effect == Effect::JobRestart && !change.job.as_deref().is_some_and(runs) {
                    // No older run of the job has to end.
                    change.effect = Effect::Applied;
                }
            }
            worker.set_config(config);
            Ok(changes)
        }
        Err(error) => Err(error),
    };
    let at_ms = unix_ms();
    let [done, refused] = RELOADS;
    let (reload, outcome) = match reload {
        Ok(changes) => {
            report(&changes);
            (Reload { at_ms, problems: Vec::new(), changes }, done)
        }
        Err(problems) => {
            tracing::error!(
                "the configuration is not reloaded, the old one stays in force: {}",
                problems.join("; ")
            );
            (Reload { at_ms, problems, changes: Vec::new() }, refused)
        }
    };
    counter!("dr_config_reloads_total", "outcome" => outcome).increment(1);
    worker.reloaded(reload);
}

/// The configuration to go on with, and what has changed; or all problems.
async fn read(sources: Sources, worker: &Worker) -> Result<(Config, Vec<Change>), Vec<String>> {
    let old = worker.config();
    let session = worker.session().and_then(|session| session.incarnation());
    let lease = session.map(|session| session.lease_timing());
    let read = move || -> Result<_, Problems> {
        let new = Config::load(&sources)?;
        new.check_node()?;
        let (config, changes) = new.taken_over_from(&old)?;
        lease.map_or(Ok(()), |lease| config.check_timing(lease))?;
        Ok((config, changes))
    };
    // Files and users may be looked up over the network.
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|problems| problems.iter().map(|problem| problem.to_string()).collect()),
        Err(error) => Err(vec![Error::Internal(error.to_string()).to_string()]),
    }
}

fn report(changes: &[Change]) {
    for change in changes.iter().take(LISTED) {
        match (&change.effect, &change.job) {
            (Effect::Applied, Some(job)) => tracing::info!(job, "reloaded: {change}"),
            (Effect::Applied, None) => tracing::info!("reloaded: {change}"),
            (_, Some(job)) => tracing::warn!(job, "reloaded: {change}"),
            (_, None) => tracing::warn!("reloaded: {change}"),
        }
    }
    let waits = |effect| changes.iter().filter(|change| change.effect == effect).count();
    tracing::info!(
        changed = changes.len(),
        need_restart_of_job = waits(Effect::JobRestart),
        need_restart_of_worker = waits(Effect::WorkerRestart),
        "the configuration was reloaded"
    );
}
