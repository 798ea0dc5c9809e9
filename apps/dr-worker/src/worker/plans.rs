//! Evaluates the plans of drills while this member leads their job, and reports the last proof: for metrics only.

use crate::znodes::WorkerPaths as _;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use election_core::Paths;
use metrics::gauge;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use zk_session::Session;

use super::state::{Job, Worker};
use crate::{
    commands::{
        Operator,
        drill::{checks::check, gather::gather, report::DrillOutcome, runs},
    },
    config::DrillPlan,
    error::Error,
    wall::unix_ms,
};

/// The pause between two reads of a report that is not finished.
const LOOK: Duration = Duration::from_secs(5);

/// How soon a plan is evaluated that has changed.
const SOON: Duration = Duration::from_secs(1);

/// Follows all jobs once the worker has joined, until this is dropped.
pub(super) async fn run(worker: Arc<Worker>) {
    worker.until_joined().await;
    let Some(session) = worker.session() else { return };
    let mut tasks = JoinSet::new();
    for at in 0..worker.jobs().len() {
        let Some(job) = worker.jobs().get(at) else { continue };
        let Ok(paths) = Paths::new(worker.root(), job.slot.name()) else { continue };
        let desk = JobDrills {
            worker: Arc::clone(&worker),
            at,
            paths,
            session: session.clone(),
            passed: BTreeMap::new(),
        };
        tasks.spawn(desk.follow());
    }
    while tasks.join_next().await.is_some() {}
}

/// The drills of one job.
struct JobDrills {
    worker: Arc<Worker>,
    /// Which job of the worker.
    at: usize,
    paths: Paths,
    session: Session,
    /// The last result of each plan.
    passed: BTreeMap<String, bool>,
}

impl JobDrills {
    async fn follow(mut self) {
        let worker = Arc::clone(&self.worker);
        let Some(job) = worker.jobs().get(self.at) else { return };
        let mut status = job.election.status();
        loop {
            if status.now().leads_now() {
                tokio::select! {
                    () = self.lead(job) => return,
                    () = async {
                        while status.changed().await.is_some() && status.now().leads_now() {}
                    } => {}
                }
            } else if status.changed().await.is_none() {
                return;
            }
        }
    }

    /// Until the leadership ends, which drops it.
    async fn lead(&mut self, job: &Job) {
        let mut runs = self.session.watch_children(self.paths.drill_runs());
        let mut due = BTreeMap::new();
        // When a report that is not finished is read again.
        let mut look_at: Option<Instant> = None;
        loop {
            let next = self.evaluate_due(job, &mut due).await;
            tokio::select! {
                seen = runs.next_allowed() => if seen.is_err() { return },
                () = sleep_until(look_at.unwrap_or(next)), if look_at.is_some() => {}
                () = sleep_until(next) => continue,
            }
            let is_finished = match self.read_proof(job.slot.name()).await {
                Ok(is_unfinished) => !is_unfinished,
                Err(error) => {
                    tracing::debug!(job = job.slot.name(), %error, "the reports of drills can't be read");
                    false
                }
            };
            look_at = (!is_finished).then(|| Instant::now() + LOOK);
        }
    }

    /// Reports the last drill that passed. Returns whether one is under way.
    async fn read_proof(&self, job: &str) -> Result<bool, Error> {
        let incarnation = self.session.active().await.map_err(|e| Error::Unreachable(e.to_string()))?;
        let kept = runs::all(&incarnation, &self.paths).await?;
        if let Some(at_ms) = runs::last_success(&kept).and_then(|report| report.ended_ms) {
            gauge!("dr_drill_last_success_timestamp_seconds", "job" => job.to_owned()).set(seconds(at_ms));
        }
        Ok(kept.iter().flatten().any(|report| report.outcome == DrillOutcome::Running))
    }

    /// Evaluates the plans whose time has come. Returns when the next one is due.
    async fn evaluate_due(&mut self, job: &Job, due: &mut BTreeMap<String, Instant>) -> Instant {
        let config = self.worker.config();
        let plans = config.drill.plans.iter();
        let plans: Vec<_> =
            plans.filter(|(_, plan)| plan.job == job.slot.name() && !plan.check_every.is_zero()).collect();
        // A plan that was added is evaluated now.
        due.retain(|name, _| plans.iter().any(|(known, _)| *known == name));
        for (name, plan) in &plans {
            let now = Instant::now();
            if due.get(*name).is_some_and(|at| *at > now) {
                continue;
            }
            if let Err(error) = self.evaluate(name, plan).await {
                tracing::debug!(job = plan.job, plan = name.as_str(), %error, "the plan can't be evaluated");
            }
            due.insert((*name).clone(), Instant::now() + plan.check_every.max(SOON));
        }
        // A configuration that has been reloaded may have other plans.
        let latest = Instant::now() + Duration::from_secs(60);
        due.values().copied().min().unwrap_or(latest).min(latest)
    }

    async fn evaluate(&mut self, name: &str, plan: &DrillPlan) -> Result<(), Error> {
        let mut config = self.worker.config().what_if(&[])?;
        config.others = self.worker.others().all_led();
        let operator = Operator { config, session: self.session.clone() };
        let (_, state) = gather(&operator, &self.paths, plan).await?;
        // The result would only be that a drill is under way.
        if state.present.conducted.is_some() {
            return Ok(());
        }
        let checks = check(&state, plan);
        let passed = checks.iter().all(|check| check.passed);
        let labels = [("job", plan.job.clone()), ("plan", name.to_owned())];
        gauge!("dr_drill_check_passed", &labels).set(if passed { 1.0 } else { 0.0 });
        gauge!("dr_drill_check_timestamp_seconds", &labels).set(seconds(unix_ms()));
        if passed {
            gauge!("dr_drill_check_last_passed_timestamp_seconds", &labels).set(seconds(unix_ms()));
        }
        if self.passed.insert(name.to_owned(), passed) != Some(passed) {
            let failed = checks.iter().filter(|check| !check.passed).map(|check| check.sentence.as_str());
            let why = failed.collect::<Vec<_>>().join("; ");
            let result = if passed { "the drill may run now" } else { "the drill may not run now" };
            tracing::info!(job = plan.job, plan = name, why, "{result}");
        }
        Ok(())
    }
}

/// Unix time in seconds, exact to the millisecond.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1000.0
}
