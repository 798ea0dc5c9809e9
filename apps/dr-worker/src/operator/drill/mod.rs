//! `drill`: practises a failover, evaluates plans, and shows the reports.

mod assembly;
mod begin;
mod conduct;
mod course;
mod document;
#[cfg(test)]
mod golden;
mod html;
mod right;
mod script;
mod seen;
mod shown;
mod site;
mod site_document;
mod timeline;
mod trace;

use crate::znodes::DrillMode;
use clap::{Args, Subcommand, ValueEnum, builder::PossibleValue};
use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::{record::Target, text::Text},
};
use serde::Serialize;
use serde_json::json;

use super::{
    consent::Consent,
    global::OneJob,
    output::{self, Output},
};
use crate::{
    commands::{
        Operator,
        drill::{
            checks::{self, State, target},
            report::{DrillCheck, DrillOutcome, DrillReport},
            runs,
        },
        evacuation::practice::gather_for_drill,
    },
    config::{DrillPlan, Sources},
    error::{Error, ExitCode},
    typed::Typed,
    view::is_absent,
    wall::unix_ms,
};
use begin::Drill;
use document::ReportDocument;

/// `drill`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DrillArguments {
    #[command(subcommand)]
    verb: Option<DrillVerb>,
    #[command(flatten)]
    run: DrillRunArguments,
}

#[derive(Debug, Subcommand)]
enum DrillVerb {
    /// Check whether a drill may run now; exit code 75 if not.
    ///
    /// It evaluates the plan, or each plan of the configuration, and changes nothing.
    Check(DrillCheckArguments),
    /// List the reports of drills.
    List(OneJob),
    /// Show the report of a drill.
    Show(DrillShowArguments),
}

#[derive(Debug, Args)]
struct DrillRunArguments {
    /// What is practised [default: rehearse].
    ///
    /// rehearse: a standby member starts the job without a token, and stops it again; nothing is moved. switchover: the
    /// job moves. kill-standby: the process of a standby is killed; nothing is moved. kill-job: its process is killed.
    /// kill-worker: the leader's worker is killed. cut-site: the workers of the leader's site are cut off from ZooKeeper for
    /// a time.
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true)]
    mode: Option<DrillMode>,
    /// Plan: [drill.NAME], or [plan.NAME] of a site.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["mode", "job", "to", "to_site", "back"])]
    plan: Option<String>,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Member that takes over, rehearses or kills its standby.
    #[arg(long, value_name = "MEMBER", conflicts_with = "to_site")]
    to: Option<MemberId>,
    /// The site of that member.
    #[arg(long, value_name = "SITE")]
    to_site: Option<SiteId>,
    /// Move the job back at the end.
    #[arg(long)]
    back: bool,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Args)]
struct DrillCheckArguments {
    /// Plan: [drill.NAME] or [plan.NAME] [default: all].
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    plan: Option<String>,
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

#[derive(Debug, Args)]
struct DrillShowArguments {
    /// Id of the drill, as printed by `drill list`, or `last`.
    #[arg(value_name = "RUN")]
    run: String,
    /// Format: text, json or html [default: text].
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    format: Option<Format>,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Plan of a site, instead of a job: its last drill.
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    plan: Option<String>,
}

impl ValueEnum for DrillMode {
    fn value_variants<'a>() -> &'a [Self] {
        Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()).help(self.describe().trim_start()))
    }
}

/// Formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal.
    Text,
    /// One JSON object.
    Json,
    /// One HTML file, with the timeline drawn.
    Html,
}

pub(super) async fn run(arguments: &DrillArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    Operator::with(sources, async |operator| match &arguments.verb {
        None => practise(operator, &arguments.run, how).await,
        Some(DrillVerb::Check(check)) => evaluate(operator, check, how).await,
        Some(DrillVerb::List(list)) => list_runs(operator, list, how).await,
        Some(DrillVerb::Show(show)) => show_run(operator, show, how).await,
    })
    .await
}

impl DrillRunArguments {
    /// The plan, with its name if it has one.
    async fn plan(&self, operator: &Operator) -> Result<(Option<String>, DrillPlan), Error> {
        if let Some(name) = &self.plan {
            let plan = planned(operator, name)?;
            return Ok((Some(name.clone()), plan));
        }
        let mode = self.mode.unwrap_or(DrillMode::Rehearse);
        if self.back && mode.spares_leader() {
            return Err(Error::Usage(format!("--back: {} moves nothing", mode.as_str())));
        }
        let to = match (&self.to, &self.to_site) {
            (Some(member), _) => Target::Member(member.clone()),
            (None, Some(site)) => Target::Site(site.clone()),
            (None, None) => Target::Any,
        };
        let job = operator.one(self.job.as_deref()).await?;
        Ok((None, DrillPlan { back: self.back, ..DrillPlan::unplanned(job, mode, to) }))
    }
}

fn planned(operator: &Operator, name: &str) -> Result<DrillPlan, Error> {
    let mut plans = operator.config.drills()?;
    let known: Vec<_> = plans.keys().cloned().chain(operator.config.site_plans()?.into_keys()).collect();
    plans.remove(name).ok_or_else(|| {
        let known = if known.is_empty() { "none is configured".to_owned() } else { known.join(", ") };
        Error::Usage(format!(
            "unknown plan {name}: there is no [drill.{name}] and no [plan.{name}]; plans: {known}"
        ))
    })
}

/// The state of the election that a plan is about, and the checks.
async fn examine(
    operator: &Operator,
    paths: &Paths,
    plan: &DrillPlan,
    own_run: Option<&str>,
) -> Result<(State, Vec<DrillCheck>), Error> {
    let (snapshot, mut state) = gather_for_drill(operator, paths, plan).await?;
    if own_run.is_some() && state.present.conducted.as_deref() == own_run {
        state.present.conducted = None;
    }
    let mut checks = checks::check(&state, plan);
    if let Err(unknown) = check_names(operator, plan, &snapshot) {
        checks.push(DrillCheck { name: "names".to_owned(), passed: false, sentence: unknown });
    }
    Ok((state, checks))
}

fn check_names(
    operator: &Operator,
    plan: &DrillPlan,
    snapshot: &election_admin::Snapshot,
) -> Result<(), String> {
    match &plan.to {
        Target::Site(site) => crate::commands::check_sites(operator, &plan.job, [site], snapshot, ""),
        Target::Member(member) if snapshot.members.iter().all(|known| known.member != *member) => {
            let unknown = || format!("unknown member {member}");
            Err(is_absent(member, snapshot, unix_ms()).unwrap_or_else(unknown))
        }
        Target::Member(_) | Target::Any => Ok(()),
    }
}

fn refused(checks: &[DrillCheck]) -> Result<(), Error> {
    let failed = checks.iter().filter(|check| !check.passed);
    let failed: Vec<_> = failed.map(|check| format!("{}: {}", check.name, check.sentence)).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::NotNow(format!("the drill may not run now, and nothing was done: {}", failed.join("; "))))
}

async fn practise(operator: &Operator, arguments: &DrillRunArguments, how: Output) -> Result<(), Error> {
    if let Some(name) = &arguments.plan
        && let Some(plan) = operator.config.site_plans()?.remove(name)
    {
        let reason = arguments.reason.as_deref();
        return site::practise(operator, (name, &plan), reason, arguments.consent, how).await;
    }
    let (name, plan) = arguments.plan(operator).await?;
    let paths = operator.paths(&plan.job)?;
    let (mut state, mut checks) = examine(operator, &paths, &plan, None).await?;
    if state.present.conducted.is_none() && !state.present.interrupted().is_empty() {
        right::end_interrupted(operator, &paths, &state).await?;
        (state, checks) = examine(operator, &paths, &plan, None).await?;
    }
    drop(state);
    refused(&checks)?;
    approve(arguments.consent, name.as_deref(), &plan)?;

    let run = right::lock(operator, &paths).await?;
    let result = conducted(operator, arguments, name.as_deref(), &plan, &paths, run).await;
    right::unlock(operator, &paths).await;
    let (report, has_begun) = result?;
    match how {
        Output::Json => output::print_json(&report)?,
        Output::Pretty => output::print_text(&shown::summary(&report))?,
    }
    match report.outcome {
        DrillOutcome::Passed => Ok(()),
        outcome => {
            let message = format!("drill {} {outcome}: {}", report.run, report.sentence);
            let code = if has_begun { ExitCode::Failed } else { ExitCode::NotNow };
            Err(Error::Reported(code, message))
        }
    }
}

/// Once no other command can begin one.
async fn conducted(
    operator: &Operator,
    arguments: &DrillRunArguments,
    name: Option<&str>,
    plan: &DrillPlan,
    paths: &Paths,
    run: String,
) -> Result<(DrillReport, bool), Error> {
    // The operator may have taken a while to approve it.
    let (state, checks) = examine(operator, paths, plan, Some(&run)).await?;
    refused(&checks)?;
    for DrillCheck { name, sentence, .. } in &checks {
        output::print_progress(format_args!("check {name}: {sentence}"));
    }
    let reason = arguments.reason.clone().map(Text::into_string);
    let drill = Drill { operator, paths, plan, name, reason, checks, state };
    conduct::conduct(&drill, run).await
}

fn approve(consent: Consent, name: Option<&str>, plan: &DrillPlan) -> Result<(), Error> {
    let DrillPlan { job, mode, .. } = plan;
    let what = format!("{} of {job}, target {}", mode.as_str(), target(&plan.to));
    if plan.rules.approval {
        return consent.approve(&format!("the drill {} ({what})", name.unwrap_or_default()), job);
    }
    let danger = match mode {
        DrillMode::Rehearse => {
            "a second copy of the job's program starts on a standby, while the first one runs"
        }
        DrillMode::Switchover => "the job moves",
        DrillMode::KillStandby => "a standby is killed, and started again",
        DrillMode::KillJob => "the job is killed on its leader",
        DrillMode::KillWorker => "the leader's worker is killed",
        DrillMode::CutSite => "all workers of the leader's site are cut off from ZooKeeper",
        DrillMode::Unknown => "a mode that this program does not know",
    };
    consent.ask(&format!("drill: {what}: {danger}"))
}

async fn evaluate(operator: &Operator, arguments: &DrillCheckArguments, how: Output) -> Result<(), Error> {
    let mut of_sites = operator.config.site_plans()?;
    of_sites.retain(|name, _| match &arguments.plan {
        Some(plan) => plan == name,
        None => arguments.job.is_none(),
    });
    let mut plans: Vec<_> = match &arguments.plan {
        Some(name) if of_sites.contains_key(name) => Vec::new(),
        Some(name) => vec![(Some(name.clone()), planned(operator, name)?)],
        None => {
            let is_meant = |plan: &DrillPlan| arguments.job.as_ref().is_none_or(|job| plan.job == *job);
            let all = operator.config.drills()?.into_iter().filter(|(_, plan)| is_meant(plan));
            all.map(|(name, plan)| (Some(name), plan)).collect()
        }
    };
    if plans.is_empty() && of_sites.is_empty() {
        let job = operator.one(arguments.job.as_deref()).await?;
        plans = vec![(None, DrillPlan::unplanned(job, DrillMode::Switchover, Target::Any))];
    }
    let mut failed = Vec::new();
    for (index, (name, plan)) in plans.iter().enumerate() {
        let (checks, kept) = match evaluate_drill(operator, plan).await {
            // A plan that names what is not there has failed, and no other one with it.
            Err(Error::Usage(sentence)) if name.is_some() => {
                (vec![DrillCheck { name: "plan".to_owned(), passed: false, sentence }], Vec::new())
            }
            found => found?,
        };
        let proved = runs::last_success(&kept);
        let passed = checks.iter().all(|check| check.passed);
        if !passed {
            failed.push(name.clone().unwrap_or_else(|| plan.job.clone()));
        }
        match how {
            Output::Json => output::print_json(&json!({
                "plan": name, "job": plan.job, "mode": plan.mode, "target": target(&plan.to), "at_ms": unix_ms(),
                "passed": passed, "checks": checks,
                "last_success": proved.map(|report| json!({ "run": report.run, "ended_ms": report.ended_ms })),
            }))?,
            Output::Pretty => {
                if index > 0 {
                    output::print("")?;
                }
                output::print_text(&shown::checked(name.as_deref(), plan, &checks, proved))?;
            }
        }
    }
    for (name, plan) in &of_sites {
        if !site::evaluate(operator, (name, plan), how).await? {
            failed.push(name.clone());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!("may not run now: {}", failed.join(", "));
    Err(Error::Reported(ExitCode::NotNow, message))
}

/// The checks of a plan, and the reports of its job.
async fn evaluate_drill(
    operator: &Operator,
    plan: &DrillPlan,
) -> Result<(Vec<DrillCheck>, Vec<runs::Kept>), Error> {
    let paths = operator.paths(&plan.job)?;
    let (_, checks) = examine(operator, &paths, plan, None).await?;
    Ok((checks, runs::all(&operator.incarnation().await?, &paths).await?))
}

async fn list_runs(operator: &Operator, arguments: &OneJob, how: Output) -> Result<(), Error> {
    let job = operator.one(arguments.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    let incarnation = operator.incarnation().await?;
    incarnation.barrier().await?;
    let kept = runs::all(&incarnation, &paths).await?;
    let present = runs::Present::read(&incarnation, &paths).await?;
    let interrupted = present.interrupted();
    for unreadable in kept.iter().filter_map(|kept| kept.as_ref().err()) {
        output::print_warning(unreadable);
    }
    for run in &interrupted {
        output::print_warning(format_args!(
            "drill {run} was interrupted; the next `{}` ends it",
            Typed::verb("drill").job(&job)
        ));
    }
    let reports: Vec<_> = kept.iter().flatten().collect();
    match how {
        Output::Json => {
            let row = |report: &&DrillReport| {
                let DrillReport {
                    run, plan, mode, target, by, started_ms, ended_ms, outcome, sentence, ..
                } = report;
                json!({
                    "run": run, "plan": plan, "mode": mode, "target": target, "by": by, "started_ms": started_ms,
                    "ended_ms": ended_ms, "outcome": outcome, "sentence": sentence, "from": report.from, "to": report.to,
                    "outage_ms": report.outage_ms, "phases": report.phases,
                })
            };
            let drills: Vec<_> = reports.iter().map(row).collect();
            output::print_json(&json!({
                "election": job, "drills": drills, "under_way": present.conducted, "interrupted": interrupted,
            }))
        }
        Output::Pretty if reports.is_empty() => {
            output::print_progress(format_args!("{job}: no drill yet"));
            Ok(())
        }
        Output::Pretty => output::print(shown::table(&reports)),
    }
}

async fn show_run(operator: &Operator, arguments: &DrillShowArguments, how: Output) -> Result<(), Error> {
    if let Some(plan) = &arguments.plan {
        return site::show(operator, plan, arguments, how).await;
    }
    let job = operator.one(arguments.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    let incarnation = operator.incarnation().await?;
    incarnation.barrier().await?;
    let names = runs::names(&incarnation, &paths).await?;
    let run = match arguments.run.as_str() {
        "last" => names.last().cloned().ok_or_else(|| Error::Failed(format!("{job}: no drill yet")))?,
        run => run.to_owned(),
    };
    // The id would become part of a path.
    let found = if names.contains(&run) { runs::read(&incarnation, &paths, &run).await? } else { None };
    let report = match found {
        Some(Ok(report)) => report,
        Some(Err(unreadable)) => return Err(Error::Failed(unreadable)),
        None => {
            let list = Typed::verb("drill list").job(&job);
            let message = format!("{job}: there is no drill {run}; `{list}` shows those that are kept");
            return Err(Error::Failed(message));
        }
    };
    print_report(&report, &ReportDocument::of(&report), arguments.format, how)
}

/// Prints a report of either kind.
fn print_report(
    report: &impl Serialize,
    document: &ReportDocument,
    format: Option<Format>,
    how: Output,
) -> Result<(), Error> {
    match (format, how) {
        (Some(Format::Json), _) | (None, Output::Json) => output::print_json(report),
        (Some(Format::Html), _) => output::print(html::page(document)),
        (Some(Format::Text) | None, _) => output::print_text(&shown::report(document)),
    }
}
