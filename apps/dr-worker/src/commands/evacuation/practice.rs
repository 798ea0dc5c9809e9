//! A plan for a site: whether it could be practised now, and what the elections record of a drill.

use std::{collections::BTreeMap, time::Duration};

use election_admin::Snapshot;
use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::{record::HistoryEntry, text::shown},
};
use schemars::JsonSchema;
use serde::Serialize;
use zk_session::Incarnation;

use super::{
    course::EvacuationPhase,
    gather::{Prepared, prepare},
    site_report::{JobEvidence, SiteDrillReport},
    store,
};
use crate::{
    commands::{
        Operator,
        drill::{
            checks::{CALENDAR, State, calendar_of, lag_within, seconds},
            gather::gather,
            report::DrillCheck,
            runs,
        },
        operation::Author,
    },
    config::{DrillPlan, SitePlan},
    error::Error,
    typed::Typed,
    wall::unix_ms,
    znodes::{Evacuation, PLANS, WorkerPaths as _},
};

/// The state that the checks of a drill need, with the evacuation that is under way.
///
/// # Errors
/// If ZooKeeper does not answer, or there is no such election.
pub(crate) async fn gather_for_drill(
    operator: &Operator,
    paths: &Paths,
    plan: &DrillPlan,
) -> Result<(Snapshot, State), Error> {
    let (snapshot, mut state) = gather(operator, paths, plan).await?;
    let plans = operator.paths(PLANS)?;
    let evacuation = operator.in_time(store::read(&operator.session, &plans)).await?;
    let running = evacuation.filter(|evacuation| evacuation.phase() == EvacuationPhase::Running);
    state.evacuated = running.map(|evacuation| evacuation.site);
    Ok((snapshot, state))
}

/// The time whose data each member of each job would lose now.
pub(crate) type Lags = BTreeMap<String, BTreeMap<MemberId, Duration>>;

/// A plan for a site as it was evaluated last.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EvaluatedPlan {
    /// The site that it empties.
    pub(crate) site: String,
    /// When, in milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// Whether it could have been practised then.
    pub(crate) passed: bool,
    /// The checks, one for each job that takes part among them.
    pub(crate) checks: Vec<DrillCheck>,
    /// The end of its last drill that passed.
    pub(crate) last_success_ms: Option<u64>,
}

/// What was read for a plan.
pub(crate) struct Examined {
    pub(crate) prepared: Prepared,
    pub(crate) lags: Lags,
    pub(crate) evaluated: EvaluatedPlan,
}

/// Reads what would move now, and evaluates the plan.
///
/// # Errors
/// As of [`prepare`].
pub(crate) async fn examine(
    operator: &Operator,
    (name, plan): (&str, &SitePlan),
    paths: &Paths,
    author: Author<'_>,
) -> Result<Examined, Error> {
    let site = SiteId::new(plan.site.clone()).map_err(|wrong| Error::Usage(wrong.to_string()))?;
    let mut record = store::new(&site, author.by, author.reason);
    record.to_site.clone_from(&plan.to_site);
    let prepared = prepare(operator, record, &plan.jobs, &plan.order).await?;
    let lags = lags(operator, plan, &prepared.plan).await?;
    let at_ms = unix_ms();
    let present = operator.in_time(store::read(&operator.session, paths)).await?;
    let mut checks = evaluate(plan, &prepared, &lags, at_ms);
    let before = present.and_then(|present| in_the_way(present, &prepared.plan));
    checks.extend(before.map(|why| DrillCheck::new("evacuation", Err(why))));
    let last = kept(&operator.incarnation().await?, paths, name).await?;
    let evaluated = EvaluatedPlan {
        site: plan.site.clone(),
        at_ms,
        passed: checks.iter().all(|check| check.passed),
        checks,
        last_success_ms: last.and_then(|last| last.proved_ms()),
    };
    Ok(Examined { prepared, lags, evaluated })
}

/// Why the last evacuation is in the way of one that is practised.
fn in_the_way(present: Evacuation, plan: &Evacuation) -> Option<String> {
    let is_away = plan.clone().inherit(&present);
    match store::joined(Some(present), plan) {
        Err(error) => Some(error.to_string()),
        Ok(Some(Evacuation { site, by, .. })) => {
            Some(format!("site {site} is being evacuated already, by {by}"))
        }
        Ok(None) => is_away.then(|| {
            let (site, undo) = (&plan.site, Typed::verb("evacuate").arg(&plan.site).arg("--undo"));
            format!("site {site} is evacuated already; `{undo}` moves back what was moved")
        }),
    }
}

/// The result of a plan that was examined. One that names what is not there has failed; of one that could not be read nothing is
/// known.
///
/// # Errors
/// If ZooKeeper did not answer.
pub(crate) fn result(plan: &SitePlan, found: Result<Examined, Error>) -> Result<EvaluatedPlan, Error> {
    match found {
        Ok(examined) => Ok(examined.evaluated),
        Err(Error::Usage(sentence) | Error::Failed(sentence)) => Ok(EvaluatedPlan {
            site: plan.site.clone(),
            at_ms: unix_ms(),
            passed: false,
            checks: vec![DrillCheck::new("plan", Err(sentence))],
            last_success_ms: None,
        }),
        Err(error) => Err(error),
    }
}

/// The checks of a plan: its calendar, and each of its jobs. It may be practised if all have passed. Pure.
fn evaluate(plan: &SitePlan, prepared: &Prepared, lags: &Lags, unix_ms: u64) -> Vec<DrillCheck> {
    let is_meant = |job: &&str| plan.jobs.iter().any(|named| named == job);
    let left_out = prepared.left_out.iter().filter(|note| is_meant(&note.job.as_str()));
    let left_out = left_out.map(|note| (note.job.as_str(), Err(note.why.clone())));
    let obstacles = |job: &str| {
        let whys = prepared.obstacles.iter().filter(|note| note.job == job);
        whys.map(|note| note.why.as_str()).collect::<Vec<_>>().join("; ")
    };
    let jobs = prepared.plan.steps.iter().map(|step| {
        let (job, why_not) = (step.job.as_str(), obstacles(&step.job));
        let found = match (&step.from, &step.predicted) {
            _ if !why_not.is_empty() => Err(why_not),
            (Some(from), Some(to)) => lag_of(plan, job, &to.member, lags)
                .map(|lag| format!("from {} to {} of site {}{lag}", from.member, to.member, to.site)),
            (Some(from), None) => Ok(format!("stays on {} of site {}", from.member, from.site)),
            (None, _) => Err("no member leads".to_owned()),
        };
        (job, found)
    });
    let moves = prepared.plan.steps.iter().any(|step| step.predicted.is_some());
    let site = moves.then(|| (plan.site.as_str(), Ok(String::new())));
    let site = site.unwrap_or_else(|| (&plan.site, Err("no job would move out of this site".to_owned())));
    let calendar = (CALENDAR, calendar_of(&plan.rules.windows, &plan.rules.blocked_dates, unix_ms));
    let all = [calendar, site].into_iter().chain(jobs).chain(left_out);
    let checks = all.map(|(name, found)| DrillCheck::new(name, found));
    checks.filter(|check| !check.sentence.is_empty()).collect()
}

/// Whether the data that this member would lose is within the objective of the job.
fn lag_of(plan: &SitePlan, job: &str, member: &MemberId, lags: &Lags) -> Result<String, String> {
    let objectives = plan.objectives_of(job);
    let (Some(rpo), Some(attribute)) = (objectives.rpo, objectives.lag) else { return Ok(String::new()) };
    let lag = lags.get(job).and_then(|lags| lags.get(member)).copied();
    lag_within(rpo, &attribute, member, lag).map(|lag| format!(", {attribute} is {lag}"))
}

async fn lags(operator: &Operator, plan: &SitePlan, prepared: &Evacuation) -> Result<Lags, Error> {
    let observer = operator.observer().await?;
    let mut found = Lags::new();
    for step in &prepared.steps {
        let Some(attribute) = plan.objectives_of(&step.job).lag else { continue };
        let snapshot = observer.snapshot(&operator.paths(&step.job)?).await?;
        let lags = snapshot.members.into_iter().filter_map(|member| {
            let lag = seconds(member.attributes.get(&attribute)?)?;
            Some((member.member, lag))
        });
        found.insert(step.job.clone(), lags.collect());
    }
    Ok(found)
}

/// What the elections have recorded, and why the record of a job could not be read: nothing of it is known then. `lags`: what was
/// measured before the drill.
pub(crate) async fn evidence(
    operator: &Operator,
    away: &Evacuation,
    mut lags: Lags,
) -> (BTreeMap<String, JobEvidence>, Option<Error>) {
    let (mut found, mut unread) = (BTreeMap::new(), None);
    for step in &away.steps {
        let read = match unread {
            // It would be waited for once for each job.
            Some(Error::Unreachable(_)) => Ok(Vec::new()),
            _ => history(operator, &step.job).await,
        };
        let history = match read {
            Ok(history) => history,
            Err(error) => {
                unread = Some(error);
                Vec::new()
            }
        };
        let lags = lags.remove(&step.job).unwrap_or_default();
        found.insert(step.job.clone(), JobEvidence { history, lags });
    }
    (found, unread)
}

async fn history(operator: &Operator, job: &str) -> Result<Vec<HistoryEntry>, Error> {
    Ok(operator.observer().await?.history(&operator.paths(job)?).await?.0)
}

/// Keeps the report as the last one of its plan. `paths` are those of plans.
///
/// # Errors
/// If ZooKeeper does not answer.
pub(crate) async fn keep(
    session: &Incarnation,
    paths: &Paths,
    report: &SiteDrillReport,
) -> Result<(), Error> {
    runs::put(session, &report_path(paths, &report.plan)?, report).await
}

/// Where the report of a plan is.
fn report_path(paths: &Paths, plan: &str) -> Result<String, Error> {
    if matches!(plan, "" | "." | "..") || plan.contains(|c: char| c == '/' || c.is_control()) {
        let plan = shown(plan);
        return Err(Error::Usage(format!(
            "{plan:?} is not the name of a plan: it would become part of a path"
        )));
    }
    Ok(paths.drill_run(plan))
}

/// The last report of a plan.
///
/// # Errors
/// If ZooKeeper does not answer, another program has written it, or no plan can have this name.
pub(crate) async fn kept(
    session: &Incarnation,
    paths: &Paths,
    plan: &str,
) -> Result<Option<SiteDrillReport>, Error> {
    let path = report_path(paths, plan)?;
    session.barrier().await?;
    let Some(node) = session.get(&path).await? else { return Ok(None) };
    let report: SiteDrillReport = serde_json::from_slice(&node.data)
        .map_err(|error| Error::Failed(format!("the report of plan {plan}: {}", runs::quoted(&error))))?;
    runs::check_format(&format!("plan {plan}"), report.v).map_err(Error::Failed)?;
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use election_core::internals::calendar::Windows;

    use super::*;
    use crate::{
        commands::evacuation::{course::StepOutcome, gather::JobNote},
        config::{Dates, DrillRules, Objectives},
        znodes::{EvacuationLeader, EvacuationStep},
    };

    #[test]
    fn a_plan_that_names_what_is_not_there_has_failed() {
        let found = |error: Error| result(&plan(), Err(error));
        let why = "unknown job shop; jobs: db";
        let evaluated = found(Error::Usage(why.to_owned())).unwrap();
        assert!(!evaluated.passed);
        let checks: Vec<_> =
            evaluated.checks.iter().map(|check| (check.passed, check.sentence.as_str())).collect();
        assert_eq!(checks, [(false, why)]);
        assert!(found(Error::Unreachable(String::new())).is_err(), "nothing is known of it");
    }

    #[test]
    fn no_other_znode_is_taken_for_a_report() {
        let paths = Paths::new("/dr", "plans").unwrap();
        assert_eq!(report_path(&paths, "east is lost").unwrap(), "/dr/plans/drill/runs/east is lost");
        for name in ["", ".", "..", "a/b", "../../evacuation", "a\u{0}"] {
            assert!(report_path(&paths, name).is_err(), "{name:?}");
        }
    }

    fn leader(member: &str, site: &str) -> Option<EvacuationLeader> {
        Some(EvacuationLeader { member: member.parse().unwrap(), site: site.parse().unwrap() })
    }

    /// A job that would move from east to west, one that leads in west, and one that is left out.
    fn prepared() -> Prepared {
        let mut plan = Evacuation::new("east".parse().unwrap(), "ann", 1);
        let step = |job: &str| EvacuationStep::new(job, std::collections::BTreeSet::new());
        plan.steps = vec![
            EvacuationStep {
                from: leader("east-1", "east"),
                predicted: leader("west-1", "west"),
                ..step("db")
            },
            EvacuationStep { from: leader("west-1", "west"), ..step("app") },
        ];
        let note = |job: &str, why: &str| JobNote { job: job.to_owned(), why: why.to_owned() };
        Prepared { plan, obstacles: Vec::new(), left_out: vec![note("queue", "it has no elector")] }
    }

    fn plan() -> SitePlan {
        SitePlan { site: "east".to_owned(), ..SitePlan::default() }
    }

    /// The checks that failed.
    fn failed(plan: &SitePlan, prepared: &Prepared, lags: &Lags) -> Vec<(String, String)> {
        // Sunday, 2026-11-29 20:00 UTC.
        let checks = evaluate(plan, prepared, lags, 1_795_982_400_000);
        checks.into_iter().filter(|check| !check.passed).map(|check| (check.name, check.sentence)).collect()
    }

    fn one(name: &str, sentence: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), sentence.to_owned())]
    }

    #[test]
    fn a_plan_that_may_be_practised_says_what_each_job_would_do() {
        let checks = evaluate(&plan(), &prepared(), &Lags::new(), 0);
        let found: Vec<_> =
            checks.iter().map(|check| (check.passed, check.name.as_str(), check.sentence.as_str())).collect();
        assert_eq!(
            found,
            [
                (true, "db", "from east-1 to west-1 of site west"),
                (true, "app", "stays on west-1 of site west")
            ]
        );
    }

    #[test]
    fn an_obstacle_a_job_that_is_left_out_and_nothing_to_move_fail_it() {
        let mut with_obstacle = prepared();
        let why = "request r-1, a restart, is open".to_owned();
        with_obstacle.obstacles.push(JobNote { job: "db".to_owned(), why: why.clone() });
        assert_eq!(failed(&plan(), &with_obstacle, &Lags::new()), one("db", &why));

        let named = SitePlan { jobs: vec!["db".to_owned(), "queue".to_owned()], ..plan() };
        assert_eq!(failed(&named, &prepared(), &Lags::new()), one("queue", "it has no elector"));

        let mut nothing = prepared();
        nothing.plan.steps.remove(0);
        assert_eq!(
            failed(&plan(), &nothing, &Lags::new()),
            one("east", "no job would move out of this site")
        );
    }

    #[test]
    fn an_evacuation_whose_jobs_have_not_returned_is_in_the_way() {
        let (mut before, plan) = (prepared().plan, prepared().plan);
        assert!(
            in_the_way(before.clone(), &plan).unwrap().starts_with("site east is being evacuated already")
        );
        for at in 0..before.steps.len() {
            before.begin(at, Some(1), 1);
            before.settle(at, StepOutcome::Leads(leader("west-1", "west").unwrap()), 2);
        }
        let again = Evacuation { steps: vec![before.steps[1].clone()], ..plan.clone() };
        let undo = "`dr-worker evacuate east --undo` moves";
        assert!(in_the_way(before.clone(), &again).unwrap().contains(undo));
        let west = Evacuation { site: "west".parse().unwrap(), ..plan };
        assert!(in_the_way(before, &west).unwrap().contains(undo));
    }

    #[test]
    fn a_closed_window_and_a_blocked_date_fail_it() {
        let failed_on = |change: fn(&mut DrillRules)| {
            let mut plan = plan();
            change(&mut plan.rules);
            failed(&plan, &prepared(), &Lags::new())
        };
        assert_eq!(failed_on(|rules| rules.windows = Windows::read(&["Sun 19:00-21:00"]).unwrap()), []);
        let why = "no window is open; the next one opens at 2026-12-06T02:00:00Z";
        let closed = failed_on(|rules| rules.windows = Windows::read(&["Sun 02:00-04:00"]).unwrap());
        assert_eq!(closed, one("calendar", why));
        let blocked = failed_on(|rules| rules.blocked_dates = Dates::read(&["11-29"]).unwrap());
        assert_eq!(blocked, one("calendar", "today is one of the blocked dates (11-29)"));
    }

    #[test]
    fn a_job_whose_next_leader_would_lose_too_much_fails_it() {
        let objectives = |seconds: u64| Objectives {
            rpo: Some(Duration::from_secs(seconds)),
            lag: Some("lag".to_owned()),
            ..Objectives::default()
        };
        let whole = SitePlan { objectives: objectives(5), ..plan() };
        assert_eq!(
            failed(&whole, &prepared(), &Lags::new()),
            one("db", "west-1 has no attribute lag with a number of seconds")
        );
        let lags: Lags =
            [("db".to_owned(), [("west-1".parse().unwrap(), Duration::from_secs(3))].into())].into();
        assert_eq!(failed(&whole, &prepared(), &lags), []);
        let own = SitePlan { each: [("db".to_owned(), objectives(2))].into(), ..whole };
        assert_eq!(
            failed(&own, &prepared(), &lags),
            one("db", "lag of west-1 is 3s, above the objective of 2s")
        );
    }
}
