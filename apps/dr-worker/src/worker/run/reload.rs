//! Takes over another configuration while the worker runs: that of the files when they are read again, and that of ZooKeeper
//! when it has changed.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use election_admin::AdminError;
use election_core::{
    Paths,
    internals::record::{AppliedOverlay, Outgoing, RequestKind, Target},
    status::Role,
};
use job_guard::JobRun;
use metrics::counter;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, spawn_blocking},
};
use zk_session::{Incarnation, LeaseTiming, Session};

use super::{handover::Wanted, http_port::HttpPort, other_servers, overlays::FollowedOverlays, parts::Parts};
use crate::{
    checked::{self, Files},
    config::{Config, Effect, KeyChange, Problems, Recipe, Sources, Usable},
    connect::can_connect,
    error::Error,
    logging,
    wall::unix_ms,
    worker::{
        metrics::RELOADS,
        state::{Job, Reload, Worker},
    },
    znodes::Overlay,
};

/// The longest list of changes in the log.
const LISTED: usize = 50;

/// The delay before a restart that an overlay needs is requested again, while something else is under way.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The parts of the present configuration.
pub(super) struct PresentConfig {
    /// What files, environment and command line say.
    base: Arc<Config>,
    pub(super) overlays: FollowedOverlays,
}

/// A configuration that a worker can take over.
struct Next {
    /// What is in force from now on; `None` if all of it waits.
    config: Option<Config>,
    changes: Vec<KeyChange>,
    usable: Usable,
    /// Where it listens now, if that has changed.
    listener: Option<TcpListener>,
}

/// The files, environment and command line, while they are read again. The worker goes on meanwhile, because a file's disk can
/// hang.
#[derive(Default)]
pub(super) struct Reading(Option<JoinHandle<Result<ReadConfig, Problems>>>);

/// What was read, and its files.
pub(super) struct ReadConfig {
    config: Config,
    files: Files,
}

/// What was read is not taken over. What was accepted before still is.
pub(super) struct Refused;

impl Reading {
    pub(super) fn begin(&mut self, sources: &Sources) {
        let sources = sources.clone();
        self.0 = Some(spawn_blocking(move || {
            let (config, files) = checked::recording(|| Config::load(&sources));
            let config = config?;
            config.check_node()?;
            can_connect(&config)?;
            Ok(ReadConfig { config, files })
        }));
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// What was read, or all problems; never if nothing is being read. Cancel safe.
    pub(super) async fn done(&mut self) -> Result<ReadConfig, Vec<String>> {
        let Some(reading) = &mut self.0 else { return pending().await };
        let read = reading.await;
        self.0 = None;
        match read {
            Ok(read) => read.map_err(|problems| listed(&problems)),
            Err(error) => Err(vec![error.to_string()]),
        }
    }
}

impl PresentConfig {
    /// Before the worker joins: the configuration with the overlays that this node can apply, and what it reports about them.
    pub(super) async fn first(
        base: &Config,
        session: &Session,
        incarnation: &Incarnation,
    ) -> Result<(Self, Config, BTreeMap<String, AppliedOverlay>), Error> {
        let base = Arc::new(base.clone());
        let overlays = FollowedOverlays::follow(session, incarnation, &base).await?;
        let mut present = Self { base: Arc::clone(&base), overlays };
        let lease = incarnation.lease_timing();
        let usable =
            usable(base, present.overlays.present(), move |config| config.check_timing(lease)).await?;
        let states = present.overlays.used(&usable);
        Ok((present, usable.config, states))
    }

    /// Does what was read as far as that is possible in this process. If anything in it is wrong, nothing changes. Returns what
    /// applies when this process executes itself.
    ///
    /// # Errors
    /// If anything in it is wrong, which is reported.
    pub(super) async fn reload(
        &mut self,
        read: Result<ReadConfig, Vec<String>>,
        worker: &Worker,
        parts: &mut Parts,
    ) -> Result<Option<Wanted>, Refused> {
        let next = match read {
            Ok(ReadConfig { config, files }) => {
                let (base, lease) = (Arc::new(config), granted(worker));
                let fits = move |config: &Config| lease.map_or(Ok(()), |lease| config.check_timing(lease));
                let next = next(Arc::clone(&base), self.overlays.settled(), fits, worker).await;
                next.map(|next| (files, base, next))
            }
            Err(problems) => Err(problems),
        };
        let (at_ms, mut files) = (unix_ms(), None);
        let [done, refused] = RELOADS;
        let (reload, outcome) = match next {
            Ok((read, base, next)) => {
                self.base = base;
                files = Some(read);
                let mut changes = self.take_over(next, worker, parts);
                let needs_restart = changes.iter().any(|change| change.effect == Effect::WorkerRestart);
                changes.extend(returning(&self.base, worker, needs_restart));
                report(&changes);
                let waits = |effect| changes.iter().filter(|change| change.effect == effect).count();
                tracing::info!(
                    changed = changes.len(),
                    need_restart_of_job = waits(Effect::JobRestart),
                    need_handover = waits(Effect::Handover),
                    need_restart_of_worker = waits(Effect::WorkerRestart),
                    "the configuration was reloaded"
                );
                (Reload { at_ms, problems: Vec::new(), changes, waits: None }, done)
            }
            Err(problems) => {
                let all = problems.join("; ");
                tracing::error!("the configuration is not reloaded, the old one stays in force: {all}");
                (Reload { at_ms, problems, changes: Vec::new(), waits: None }, refused)
            }
        };
        counter!("dr_config_reloads_total", "outcome" => outcome).increment(1);
        worker.reloaded(reload.clone());
        let files = files.ok_or(Refused)?;
        let needs_handover = reload.changes.iter().any(|change| change.effect == Effect::Handover);
        Ok(needs_handover.then(|| Wanted { base: Arc::clone(&self.base), files, reload }))
    }

    /// Applies the overlays as they are now, and has jobs restarted here that need it.
    pub(super) async fn overlay_changed(&mut self, worker: &Worker, parts: &mut Parts) {
        let (old, lease) = (worker.config(), granted(worker));
        // One that does not fit the values that stay in force costs no other.
        let fits = move |config: &Config| config.check_after(&old, lease);
        let next = match next(Arc::clone(&self.base), self.overlays.present(), fits, worker).await {
            Ok(next) => next,
            Err(problems) => {
                let all = problems.join("; ");
                tracing::error!(
                    "overlays in ZooKeeper are not applied, the old configuration stays in force: {all}"
                );
                return;
            }
        };
        let mut changes = self.take_over(next, worker, parts);
        for job in worker.jobs().iter().filter(|job| is_decided(worker, job)) {
            let name = job.slot.name();
            let Some(run) = job.slot.running() else { continue };
            // These don't wait for the next start.
            let needs = |change: &mut KeyChange| {
                change.effect == Effect::JobRestart && change.job.as_deref() == Some(name)
            };
            let keys: Vec<_> = changes.extract_if(.., needs).map(|change| change.key).collect();
            if !keys.is_empty() {
                let version = self.overlays.in_force().get(name).map_or(0, |overlay| overlay.version);
                let reason = format!("configuration version {version} changes {}", keys.join(", "));
                restart(worker, job, run, reason);
            }
        }
        report(&changes);
    }

    /// Does what the configuration says from now on, and returns what has changed.
    fn take_over(&mut self, next: Next, worker: &Worker, parts: &mut Parts) -> Vec<KeyChange> {
        let Next { config, mut changes, mut usable, listener } = next;
        let old = worker.config();
        let config = config.unwrap_or_else(|| {
            // The overlays wait with the rest.
            (usable.config, usable.used) = (Config::clone(&old), self.overlays.in_force().clone());
            Config::clone(&old)
        });
        let states = self.overlays.used(&usable);
        parts.take_over(&old, &config, &states, listener);
        if let Some(session) = worker.session() {
            other_servers::take_over(session, &old, &config);
        }
        if old.log.levels != config.log.levels && !logging::set_levels(config.log.levels.clone()) {
            tracing::warn!("log.levels has no effect: --log or DR_LOG is given");
        }
        let runs =
            |job: &str| worker.jobs().iter().any(|of| of.slot.name() == job && of.slot.running().is_some());
        for change in &mut changes {
            if change.effect == Effect::JobRestart && !change.job.as_deref().is_some_and(runs) {
                // No older run of the job has to end.
                change.effect = Effect::Applied;
            }
        }
        worker.set_config(config);
        changes
    }
}

/// The jobs that this worker has left since it was last executed, and that are configured again. With a key that needs a
/// restart of the worker they wait for that too, as other jobs do.
fn returning(base: &Config, worker: &Worker, needs_restart: bool) -> Vec<KeyChange> {
    let left = worker.jobs().iter().filter(|job| job.is_removed()).map(|job| job.slot.name());
    let effect = if needs_restart { Effect::WorkerRestart } else { Effect::Handover };
    let change = |left| KeyChange { effect, ..KeyChange::of_job(left) };
    left.filter(|left| base.jobs.iter().any(|job| job.name() == *left)).map(change).collect()
}

/// The configuration with those of the newest overlays that it can have, instead of the present ones.
async fn usable(
    base: Arc<Config>,
    (newest, present): (BTreeMap<String, Overlay>, BTreeMap<String, Overlay>),
    check: impl Fn(&Config) -> Result<(), Problems> + Send + 'static,
) -> Result<Usable, Error> {
    let usable = spawn_blocking(move || base.with_usable_overlays(&newest, &present, check)).await;
    usable.map_err(|error| Error::Internal(error.to_string()))
}

/// The configuration to go on with, as of [`usable`]; or all problems.
async fn next(
    base: Arc<Config>,
    overlays: (BTreeMap<String, Overlay>, BTreeMap<String, Overlay>),
    check: impl Fn(&Config) -> Result<(), Problems> + Send + 'static,
    worker: &Worker,
) -> Result<Next, Vec<String>> {
    let wrong = |error: Error| vec![error.to_string()];
    let usable = usable(base, overlays, check).await.map_err(wrong)?;
    let old = worker.config();
    // Both that which is in force now and that of the next program.
    usable.config.check_after(&old, granted(worker)).map_err(|problems| listed(&problems))?;
    let (config, changes) =
        usable.config.clone().taken_over_from(&old).map_err(|problems| listed(&problems))?;
    let now = config.as_ref().unwrap_or(&old);
    if let Some(session) = worker.session() {
        other_servers::check_same_ensemble(session, &old, now).await.map_err(wrong)?;
    }
    let listener = HttpPort::other(&old, now).await.map_err(wrong)?;
    Ok(Next { config, changes, usable, listener })
}

/// The timing that the servers have granted.
fn granted(worker: &Worker) -> Option<LeaseTiming> {
    worker.session()?.incarnation().map(|incarnation| incarnation.lease_timing())
}

fn listed(problems: &Problems) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// Whether the job's election has requests, by which it can be restarted.
fn is_decided(worker: &Worker, job: &Job) -> bool {
    let config = worker.config();
    config.jobs.iter().any(|of| of.name() == job.slot.name() && of.recipe == Recipe::Elector)
}

/// Has the leader, this member, restart the job as if an operator had asked for it, unless this run has ended meanwhile.
fn restart(worker: &Worker, job: &Job, run: Arc<JobRun>, reason: String) {
    let (name, me) = (job.slot.name().to_owned(), worker.node().id.clone());
    let (Some(session), Ok(paths)) = (worker.session().cloned(), Paths::new(worker.root(), &name)) else {
        tracing::warn!(job = name, "{reason}: this applies at the next start of the job");
        return;
    };
    tracing::info!(job = name, "{reason}: the job is to be restarted here");
    let (slot, election) = (Arc::clone(&job.slot), job.election.clone());
    tokio::spawn(async move {
        loop {
            if slot.running().is_none_or(|now| !Arc::ptr_eq(&now, &run)) {
                return;
            }
            if election.status().now().role == Role::Leader {
                let request = election_admin::new_request(
                    RequestKind::Restart,
                    Outgoing::Member(me.clone()),
                    Target::Any,
                    false,
                    Some(reason.clone()),
                    format!("dr-worker on {me}"),
                );
                match election_admin::ask(&session, &paths, request).await {
                    Ok(filed) => {
                        let request = filed.which.name;
                        return tracing::info!(job = name, request, "{reason}: restarting the job");
                    }
                    Err(AdminError::Closed) => return,
                    Err(error) => {
                        tracing::debug!(job = name, %error, "can't request the restart of the job yet")
                    }
                }
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    });
}

fn report(changes: &[KeyChange]) {
    for change in changes.iter().take(LISTED) {
        match (&change.effect, &change.job) {
            (Effect::Applied, Some(job)) => tracing::info!(job, "configuration: {change}"),
            (Effect::Applied, None) => tracing::info!("configuration: {change}"),
            (_, Some(job)) => tracing::warn!(job, "configuration: {change}"),
            (_, None) => tracing::warn!("configuration: {change}"),
        }
    }
}
