//! The programs that this process is to execute: another one for an upgrade, and itself for a reload that needs it.
//!
//! ```text
//!   SIGHUP ─▶ read and check ─▶ apply what applies at once ─▶ look at added jobs ─▶ leave removed ones ─▶ wait for rest ─▶
//!                 │ refused                                        │ can't be joined       execute /proc/self/exe ◀──┤
//!                 └─▶ nothing changes                              └─▶ reported; tried again later ◀── not within 10 s ┘
//! ```
//!
//! It is the way of an [upgrade](super::upgrade), with the program that runs and the configuration that was accepted. A SIGHUP
//! that comes during an attempt waits for its end, or is passed on to the next program.

use std::{future::pending, path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until},
};
use zk_session::Session;

use super::{
    join::can_join,
    roster,
    upgrade::{NextProgram, UpgradeRefusal, Upgrades},
};
use crate::{
    checked::{self, Files},
    config::{Config, Effect, JobConfig},
    connect::can_connect,
    error::Error,
    program::ITSELF,
    worker::{
        descriptors,
        emergency::Records,
        state::{Job, Reload, Worker},
        upgrade::{check::ResumeQuestion, report::Progress, requested},
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
    /// The jobs that leave, because the configuration has them no more.
    leaving: JoinSet<()>,
}

/// What an attempt came to.
enum Attempted {
    Upgrade,
    /// Some jobs are to leave first.
    Leave(Arc<Wanted>),
    Reload(Arc<Wanted>, UpgradeRefusal),
}

impl Handovers {
    pub(super) fn new(upgrades: Arc<Upgrades>, worker: Arc<Worker>, session: Session) -> Self {
        Self { upgrades, worker, session, attempt: None, wanted: None, leaving: JoinSet::new() }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.attempt.is_some()
    }

    /// What the last reload wants. Returns whether this process is to execute itself, and waits for no removed job before.
    pub(super) fn want(&mut self, wanted: Option<Wanted>) -> bool {
        while self.leaving.try_join_next().is_some() {}
        self.wanted = wanted.map(|wanted| (Arc::new(wanted), Instant::now()));
        self.wanted.is_some() && self.leaving.is_empty()
    }

    /// Waits until an attempt begins or is over. Returns whether a reload is as far as it comes for the moment.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> bool {
        if let Some(attempt) = &mut self.attempt {
            let attempted = attempt.await;
            self.attempt = None;
            return match attempted {
                Attempted::Upgrade => false,
                Attempted::Leave(wanted) => {
                    // The reason of an earlier attempt does not apply any more.
                    self.worker.reloaded(present(&self.worker, &wanted));
                    self.leave(&wanted);
                    true
                }
                Attempted::Reload(wanted, (progress, why)) => {
                    self.failed(&wanted, progress, &why);
                    true
                }
            };
        }
        let (wanted, leaving) = (&self.wanted, &mut self.leaving);
        let due = async move {
            let Some((wanted, at)) = wanted else { return pending().await };
            sleep_until(*at).await;
            while leaving.join_next().await.is_some() {}
            Arc::clone(wanted)
        };
        let (upgrades, worker, session) =
            (Arc::clone(&self.upgrades), Arc::clone(&self.worker), self.session.clone());
        self.attempt = Some(tokio::select! {
            () = requested() => Box::pin(async move {
                upgrades.attempt(&worker, &session).await;
                Attempted::Upgrade
            }),
            wanted = due => Box::pin(async move { execute_itself(&upgrades, &worker, &session, wanted).await }),
        });
        false
    }

    /// Has the jobs leave that are not wanted any more, as when the worker ends.
    fn leave(&mut self, wanted: &Wanted) {
        for (at, job) in self.worker.jobs().iter().enumerate() {
            if wanted.has(job) || !job.remove() {
                continue;
            }
            let (worker, session) = (Arc::clone(&self.worker), self.session.clone());
            self.leaving.spawn(async move {
                let Some(job) = worker.jobs().get(at) else { return };
                let name = job.slot.name();
                tracing::info!(
                    job = name,
                    "leaving the election: the configuration does not have the job any more"
                );
                job.election.leave().await;
                if let Some(standby) = job.slot.standby() {
                    standby.end(job.slot.hastened()).await;
                }
                roster::sign_off(&session, &worker, |left| left == name).await;
                job.set_left();
            });
        }
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

impl Wanted {
    fn has(&self, job: &Job) -> bool {
        self.base.jobs.iter().any(|of| of.name() == job.slot.name())
    }
}

/// Executes this program again with that configuration. Returns only if the worker goes on as it is.
async fn execute_itself(
    upgrades: &Upgrades,
    worker: &Worker,
    session: &Session,
    wanted: Arc<Wanted>,
) -> Attempted {
    if let Err(why) = upgrades.may_execute(worker) {
        return Attempted::Reload(wanted, (Progress::Refused, why));
    }
    let kept = ResumeQuestion::about(worker, worker.lasting_jobs().filter(|job| wanted.has(job)));
    if let Err(why) = kept.fixed.fit(&wanted.base) {
        return Attempted::Reload(wanted, (Progress::Refused, why.to_string()));
    }
    let is_run = |job: &&JobConfig| !worker.lasting_jobs().any(|run| run.slot.name() == job.name());
    let added = wanted.base.jobs.iter().filter(is_run).cloned().collect();
    let files = match check(upgrades, session, &wanted.base, added).await {
        Ok(files) => files,
        Err(error) => return Attempted::Reload(wanted, (Progress::NotNow, error.to_string())),
    };
    if worker.lasting_jobs().any(|job| !wanted.has(job)) {
        return Attempted::Leave(wanted);
    }
    let files = wanted.files.clone().into_iter().chain(files).collect();
    let mut reload = present(worker, &wanted);
    for change in reload.changes.iter_mut().filter(|change| change.effect == Effect::Handover) {
        change.effect = Effect::Applied;
    }
    tracing::info!("executing this program again for the reload; jobs run on");
    let next = NextProgram { file: Path::new(ITSELF), files, attempt: 0, reload: Some(reload) };
    let refusal = upgrades.execute_at_rest(worker, session, &next, || Ok(())).await;
    Attempted::Reload(wanted, refusal)
}

/// The reload, with what was wrong in a later one.
fn present(worker: &Worker, wanted: &Wanted) -> Reload {
    let problems = worker.last_reload().map_or_else(Vec::new, |last| last.problems);
    Reload { problems, ..wanted.reload.clone() }
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
