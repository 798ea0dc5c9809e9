//! Evaluates the plans of drills and of sites while this member leads their job, and reports the last proof: for metrics only.

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
        drill::{
            checks::{CALENDAR, check},
            report::{DrillCheck, DrillOutcome},
            runs,
        },
        evacuation::{
            course::EvacuationPhase,
            practice::{EvaluatedPlan, examine, gather_for_drill, result},
            store,
        },
        operation::Author,
    },
    config::{DrillPlan, SitePlan},
    error::Error,
    wall::unix_ms,
    znodes::{PLANS, WorkerPaths as _},
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
    for (at, job) in worker.jobs().iter().enumerate() {
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
    /// The last result of each plan of a drill.
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
                // What is found later, by this member or another one, is not what was found now.
                for plan in std::mem::take(&mut self.passed).keys() {
                    measure_drill((job.slot.name(), plan), None);
                }
                self.forget(job);
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
            let is_unfinished = self.read_proof(job.slot.name()).await.unwrap_or_else(|error| {
                tracing::debug!(job = job.slot.name(), %error, "the reports of drills can't be read");
                true
            });
            look_at = is_unfinished.then(|| Instant::now() + LOOK);
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
        let drills = config.drill.plans.iter().filter(|(_, plan)| plan.job == job.slot.name());
        let drills = drills.map(|(name, plan)| (name, plan.rules.check_every, Plan::Drill(plan)));
        let sites =
            config.plans.iter().filter(|(_, plan)| evaluator(plan, &self.worker) == Some(job.slot.name()));
        let sites = sites.map(|(name, plan)| (name, plan.rules.check_every, Plan::Site(plan)));
        let plans: Vec<_> = drills.chain(sites).filter(|(_, every, _)| !every.is_zero()).collect();
        // A plan that was added is evaluated now.
        due.retain(|name, _| plans.iter().any(|(known, ..)| *known == name));
        self.forget(job);
        for (name, every, plan) in plans {
            if due.get(name).is_some_and(|at| *at > Instant::now()) {
                continue;
            }
            let result = match &plan {
                Plan::Drill(plan) => self.evaluate(name, plan).await,
                Plan::Site(plan) => self.evaluate_site(name, plan).await,
            };
            if let Err(error) = result {
                tracing::debug!(plan = name.as_str(), %error, "the plan can't be evaluated");
                plan.set_unknown(name);
            }
            due.insert(name.clone(), Instant::now() + every.max(SOON));
        }
        // A configuration that has been reloaded may have other plans.
        let latest = Instant::now() + Duration::from_secs(60);
        due.values().copied().min().unwrap_or(latest).min(latest)
    }

    /// Forgets the plans that are not evaluated here any more.
    fn forget(&mut self, job: &Job) {
        let (config, name) = (self.worker.config(), job.slot.name());
        self.passed.retain(|plan, _| {
            let known = config.drill.plans.get(plan);
            let is_kept = known.is_some_and(|known| known.job == name && !known.rules.check_every.is_zero());
            if !is_kept {
                measure_drill((name, plan), None);
            }
            is_kept
        });
        let leads = |name: &str| {
            let mut jobs = self.worker.jobs().iter();
            jobs.any(|job| job.slot.name() == name && job.election.status().now().leads_now())
        };
        self.worker.retain_plans(|plan| {
            let known = config.plans.get(plan).filter(|known| !known.rules.check_every.is_zero());
            let is_kept = known.and_then(|known| evaluator(known, &self.worker)).is_some_and(leads);
            if !is_kept {
                measure_site(plan, None);
            }
            is_kept
        });
    }

    fn operator(&self) -> Result<Operator, Error> {
        let mut config = self.worker.config().what_if(&[])?;
        config.others = self.worker.others().all_led();
        Ok(Operator { config, session: self.session.clone() })
    }

    async fn evaluate_site(&mut self, name: &str, plan: &SitePlan) -> Result<(), Error> {
        let operator = self.operator()?;
        let paths = operator.paths(PLANS)?;
        let present = store::read(&self.session, &paths).await?;
        // The result would only be that it is under way.
        if present.is_some_and(|present| present.phase() == EvacuationPhase::Running) {
            return Ok(());
        }
        let author = Author { by: self.worker.node().id.as_str(), reason: None };
        let evaluated = result(plan, examine(&operator, (name, plan), &paths, author).await)?;
        measure_site(name, Some(&evaluated));
        let (passed, why) = (evaluated.passed, why_not(&evaluated.checks));
        let former = self.worker.evaluated(name, evaluated);
        if former.is_none_or(|former| former.passed != passed) {
            let result =
                if passed { "the plan may be practised now" } else { "the plan may not be practised now" };
            tracing::info!(from_site = plan.site, plan = name, why, "{result}");
        }
        Ok(())
    }

    async fn evaluate(&mut self, name: &str, plan: &DrillPlan) -> Result<(), Error> {
        let (_, state) = gather_for_drill(&self.operator()?, &self.paths, plan).await?;
        // The result would only be that a drill is under way.
        if state.present.conducted.is_some() {
            return Ok(());
        }
        let checks = check(&state, plan);
        let passed = checks.iter().all(|check| check.passed);
        measure_drill((&plan.job, name), Some((whatever_the_calendar(&checks), unix_ms())));
        if self.passed.insert(name.to_owned(), passed) != Some(passed) {
            let why = why_not(&checks);
            let result = if passed { "the drill may run now" } else { "the drill may not run now" };
            tracing::info!(job = plan.job, plan = name, why, "{result}");
        }
        Ok(())
    }
}

/// A plan that is evaluated.
enum Plan<'a> {
    Drill(&'a DrillPlan),
    Site(&'a SitePlan),
}

impl Plan<'_> {
    /// The last result does not count any more, and there is no new one.
    fn set_unknown(&self, name: &str) {
        let plan = name.to_owned();
        match self {
            Self::Drill(DrillPlan { job, .. }) => {
                gauge!("dr_drill_check_passed", "job" => job.clone(), "plan" => plan).set(f64::NAN);
            }
            Self::Site(_) => gauge!("dr_plan_check_passed", "plan" => plan).set(f64::NAN),
        }
    }
}

/// The job whose leader evaluates a plan of a site: its first one that this worker knows, and does not leave.
fn evaluator<'a>(plan: &SitePlan, worker: &'a Worker) -> Option<&'a str> {
    let jobs = worker.lasting_jobs().map(|job| job.slot.name());
    jobs.filter(|job| plan.jobs.is_empty() || plan.jobs.iter().any(|named| named == job)).min()
}

/// The metrics of a plan of a site; of one that is not evaluated here any more NaN, as a gauge can't be removed.
fn measure_site(plan: &str, evaluated: Option<&EvaluatedPlan>) {
    let label = [("plan", plan.to_owned())];
    let passed = evaluated.map(|evaluated| f64::from(whatever_the_calendar(&evaluated.checks)));
    gauge!("dr_plan_check_passed", &label).set(passed.unwrap_or(f64::NAN));
    let at = evaluated.map(|evaluated| seconds(evaluated.at_ms));
    gauge!("dr_plan_check_timestamp_seconds", &label).set(at.unwrap_or(f64::NAN));
    let proved = evaluated.and_then(|evaluated| evaluated.last_success_ms).map(seconds);
    gauge!("dr_plan_last_success_timestamp_seconds", &label).set(proved.unwrap_or(f64::NAN));
}

/// The same of a plan of a drill: whether it has passed, and when.
fn measure_drill((job, plan): (&str, &str), evaluated: Option<(bool, u64)>) {
    let labels = [("job", job.to_owned()), ("plan", plan.to_owned())];
    let passed = evaluated.map(|(passed, _)| f64::from(passed));
    gauge!("dr_drill_check_passed", &labels).set(passed.unwrap_or(f64::NAN));
    let at = evaluated.map_or(f64::NAN, |(_, at_ms)| seconds(at_ms));
    gauge!("dr_drill_check_timestamp_seconds", &labels).set(at);
    if evaluated.is_none_or(|(passed, _)| passed) {
        gauge!("dr_drill_check_last_passed_timestamp_seconds", &labels).set(at);
    }
}

/// Whether all checks have passed but that of the calendar: a plan that waits for its next window is no fault.
fn whatever_the_calendar(checks: &[DrillCheck]) -> bool {
    // It is the first one. The others may have the names of jobs.
    checks.iter().enumerate().all(|(at, check)| check.passed || at == 0 && check.name == CALENDAR)
}

fn why_not(checks: &[DrillCheck]) -> String {
    let failed = checks.iter().filter(|check| !check.passed).map(|check| check.sentence.as_str());
    failed.collect::<Vec<_>>().join("; ")
}

/// Unix time in seconds, exact to the millisecond.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

    use super::*;

    fn evaluated(checks: Vec<DrillCheck>, last_success_ms: Option<u64>) -> EvaluatedPlan {
        let passed = checks.iter().all(|check| check.passed);
        EvaluatedPlan { site: "east".to_owned(), at_ms: 1_000, passed, checks, last_success_ms }
    }

    fn values(recorder: &PrometheusRecorder) -> Vec<f64> {
        let text = recorder.handle().render();
        let series = text.lines().filter(|line| line.contains('{'));
        series.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect()
    }

    #[test]
    fn a_plan_that_is_not_evaluated_any_more_has_no_value() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            measure_site("east-is-lost", Some(&evaluated(Vec::new(), Some(1_000))));
            measure_drill(("orders", "weekly"), Some((true, 1_000)));
            assert_eq!(values(&recorder), [1.0; 6]);
            measure_site("east-is-lost", None);
            measure_drill(("orders", "weekly"), None);
            let values = values(&recorder);
            assert!(values.len() == 6 && values.iter().all(|value| value.is_nan()), "{values:?}");
        });
    }

    #[test]
    fn a_drill_that_failed_is_no_proof_and_a_plan_that_can_not_be_read_has_not_passed() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            measure_site("east-is-lost", Some(&evaluated(Vec::new(), Some(1_000))));
            measure_site("east-is-lost", Some(&evaluated(Vec::new(), None)));
            let nan = |values: Vec<f64>| values.iter().filter(|value| value.is_nan()).count();
            assert_eq!(nan(values(&recorder)), 1);
            Plan::Site(&SitePlan::default()).set_unknown("east-is-lost");
            assert_eq!(nan(values(&recorder)), 2);
        });
    }

    #[test]
    fn a_closed_calendar_is_no_fault() {
        let check =
            |name: &str, passed| DrillCheck { name: name.to_owned(), passed, sentence: String::new() };
        assert!(whatever_the_calendar(&[check(CALENDAR, false), check("lag", true)]));
        assert!(!whatever_the_calendar(&[check(CALENDAR, true), check("lag", false)]));
    }
}
