//! The programs that this process is to execute: another one for an upgrade, and itself for a reload that needs it.
//!
//! ```text
//!   SIGHUP ─▶ read and check ─▶ apply what applies at once ─▶ wait for rest ─▶ execute /proc/self/exe
//!                 │ refused                                      │ not at rest within 10 s, or a new job can't be joined
//!                 └─▶ nothing changes                            └─▶ old values in force, reported; tried again later
//! ```
//!
//! It is the way of an [upgrade](super::upgrade), with the program that runs and the configuration that was accepted. A SIGHUP
//! that comes during an attempt waits for its end, or is passed on to the next program.

use std::{future::pending, path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use zk_session::Session;

use super::{
    join::can_join,
    upgrade::{NextProgram, UpgradeRefusal, Upgrades},
};
use crate::{
    checked::{self, Files},
    config::{Config, Effect, JobConfig},
    error::Error,
    program::ITSELF,
    worker::{
        descriptors,
        emergency::Records,
        state::{Reload, Worker},
        upgrade::{check::can_connect, report::Progress, requested},
    },
};

/// From an attempt that has failed to the next one.
const AGAIN: Duration = Duration::from_secs(30);

/// A configuration that applies when this process executes itself.
pub(super) struct Wanted {
    /// What files, environment and command line say.
    pub(super) base: Arc<Config>,
    /// The files that were read.
    pub(super) files: Files,
    pub(super) reload: Reload,
}

/// The attempts to execute a program.
pub(super) struct Handovers {
    upgrades: Arc<Upgrades>,
    worker: Arc<Worker>,
    session: Session,
    attempt: Option<BoxFuture<'static, Attempted>>,
    /// With the time of the next attempt.
    wanted: Option<(Arc<Wanted>, Instant)>,
}

/// What has failed.
enum Attempted {
    Upgrade,
    Reload(Arc<Wanted>, UpgradeRefusal),
}

impl Handovers {
    pub(super) fn new(upgrades: Arc<Upgrades>, worker: Arc<Worker>, session: Session) -> Self {
        Self { upgrades, worker, session, attempt: None, wanted: None }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.attempt.is_some()
    }

    /// What the last reload wants. Returns whether this process is to execute itself.
    pub(super) fn want(&mut self, wanted: Option<Wanted>) -> bool {
        self.wanted = wanted.map(|wanted| (Arc::new(wanted), Instant::now()));
        self.wanted.is_some()
    }

    /// Waits until an attempt begins or has failed. Returns whether one for a reload has failed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> bool {
        if let Some(attempt) = &mut self.attempt {
            let attempted = attempt.await;
            self.attempt = None;
            return match attempted {
                Attempted::Upgrade => false,
                Attempted::Reload(wanted, (progress, why)) => {
                    self.failed(&wanted, progress, &why);
                    true
                }
            };
        }
        let due = async {
            match &self.wanted {
                Some((wanted, at)) => {
                    sleep_until(*at).await;
                    Arc::clone(wanted)
                }
                None => pending().await,
            }
        };
        let (upgrades, worker, session) =
            (Arc::clone(&self.upgrades), Arc::clone(&self.worker), self.session.clone());
        self.attempt = Some(tokio::select! {
            () = requested() => Box::pin(async move {
                upgrades.attempt(&worker, &session).await;
                Attempted::Upgrade
            }),
            wanted = due => Box::pin(async move {
                let refusal = execute_itself(&upgrades, &worker, &session, &wanted).await;
                Attempted::Reload(wanted, refusal)
            }),
        });
        false
    }

    /// Reports why the old values stay in force.
    fn failed(&mut self, wanted: &Wanted, progress: Progress, why: &str) {
        let mut reload = present(&self.worker, wanted);
        let waits = || reload.changes.iter().filter(|change| change.effect == Effect::Handover);
        let keys = waits().map(|change| change.key.as_str()).collect::<Vec<_>>().join(", ");
        let before = self.worker.last_reload().and_then(|reload| reload.waits);
        let is_final = progress == Progress::Refused;
        if is_final {
            tracing::error!("not applied, restart the worker: {keys}: {why}");
            let waiting = reload.changes.iter_mut().filter(|change| change.effect == Effect::Handover);
            waiting.for_each(|change| change.effect = Effect::WorkerRestart);
            self.wanted = None;
        } else {
            if before.as_deref() == Some(why) {
                tracing::debug!("still not applied: {keys}: {why}");
            } else {
                tracing::warn!("not applied yet, tried again every {AGAIN:?}: {keys}: {why}");
            }
            if let Some((_, at)) = &mut self.wanted {
                *at = Instant::now() + AGAIN;
            }
        }
        reload.waits = Some(why.to_owned());
        self.worker.reloaded(reload);
    }
}

/// Executes this program again with that configuration. Returns only if the worker goes on as it is.
async fn execute_itself(
    upgrades: &Upgrades,
    worker: &Worker,
    session: &Session,
    wanted: &Wanted,
) -> UpgradeRefusal {
    if let Err(why) = upgrades.may_execute(worker) {
        return (Progress::Refused, why);
    }
    let added = || wanted.base.jobs.iter().filter(|job| !is_run(worker, job));
    let files = match check(upgrades, session, &wanted.base, added().cloned().collect()).await {
        Ok(files) => files,
        Err(error) => return (Progress::NotNow, error.to_string()),
    };
    let files = wanted.files.clone().into_iter().chain(files).collect();
    let mut reload = present(worker, wanted);
    for change in reload.changes.iter_mut().filter(|change| change.effect == Effect::Handover) {
        change.effect = Effect::Applied;
    }
    tracing::info!("executing this program again for the reload; jobs run on");
    let next = NextProgram { file: Path::new(ITSELF), files, attempt: 0, reload: Some(reload) };
    upgrades.execute_at_rest(worker, session, &next, || Ok(())).await
}

/// The reload, with what was wrong in a later one.
fn present(worker: &Worker, wanted: &Wanted) -> Reload {
    let problems = worker.last_reload().map_or_else(Vec::new, |last| last.problems);
    Reload { problems, ..wanted.reload.clone() }
}

fn is_run(worker: &Worker, job: &JobConfig) -> bool {
    worker.jobs().iter().any(|run| run.slot.name() == job.name())
}

/// Checks what would end the next program with all jobs. Returns the files besides those of the configuration that it needs.
async fn check(
    upgrades: &Upgrades,
    session: &Session,
    base: &Arc<Config>,
    added: Vec<JobConfig>,
) -> Result<Files, Error> {
    Records::beside(upgrades.lock.path()).refuse(&added)?;
    descriptors::clients_beside(&base.jobs)?;
    let checks = Arc::clone(base);
    let read = spawn_blocking(move || {
        checked::recording(|| {
            checks.check_node()?;
            can_connect(&checks)
        })
    });
    let (checked, files) = read.await.map_err(|error| Error::Internal(error.to_string()))?;
    checked?;
    let incarnation =
        session.incarnation().ok_or_else(|| Error::Unreachable("there is no session".to_owned()))?;
    for job in &added {
        can_join(&incarnation, base, job).await?;
    }
    Ok(files)
}
