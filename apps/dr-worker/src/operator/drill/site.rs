//! `drill --plan` of a plan for a site: an evacuation that is measured, and moved back.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{
    super::{
        consent::Consent,
        evacuation::until_ended,
        output::{self, Output},
    },
    DrillShowArguments,
    document::ReportDocument,
    print_report, refused, shown,
};
use crate::{
    commands::{
        Operator, asker,
        drill::report::DrillOutcome,
        evacuation::{
            course::EvacuationPhase,
            order::{Follows, follows},
            practice::{EvaluatedPlan, Examined, evidence, examine, keep, kept, result},
            shown::{Evacuated, way_on},
            site_report::{SiteDrill, SiteDrillReport, assemble},
            store,
        },
        operation::{Author, Election},
    },
    config::SitePlan,
    error::{Error, ExitCode},
    signals::Signals,
    typed::Typed,
    wall::{moment, unix_ms},
    znodes::{Evacuation, PLANS},
};

/// Practises the plan, and prints the report.
pub(super) async fn practise(
    operator: &Operator,
    (name, plan): (&str, &SitePlan),
    reason: Option<&str>,
    consent: Consent,
    how: Output,
) -> Result<(), Error> {
    let by = asker();
    let author = Author { by: &by, reason: reason.or(plan.rules.reason.as_deref()) };
    let of = Election::new(operator, PLANS, author)?;
    let examined = examine(operator, (name, plan), &of.paths, author).await?;
    refused(&examined.evaluated.checks)?;
    let jobs = examined.prepared.plan.steps.len();
    let what = format!("the drill {name} (evacuation of site {}, {jobs} jobs)", plan.site);
    match plan.rules.approval {
        true => consent.approve(&what, &plan.site)?,
        false => consent.ask(&format!("{what}: the jobs move"))?,
    }
    // The operator may have taken a while to approve it.
    let examined = examine(operator, (name, plan), &of.paths, author).await?;
    refused(&examined.evaluated.checks)?;
    let report = carried_out(&of, (name, plan), examined).await?;
    print_report(&report, &ReportDocument::of_site(&report), None, how)?;
    match report.outcome {
        DrillOutcome::Passed => Ok(()),
        outcome => {
            let message = format!("drill of plan {name} {outcome}: {}", report.sentence);
            Err(Error::Reported(ExitCode::Failed, message))
        }
    }
}

/// There, and back unless a move has failed. Both become what was read of them last. A signal turns it back, if the plan moves
/// back, and another one ends the command: workers carry it out.
async fn moved(
    of: &Election<'_>,
    plan: &SitePlan,
    mut signals: Signals,
    away: &mut Evacuation,
    back: &mut Option<Evacuation>,
) -> Result<(), Error> {
    let there = async {
        until_ended(of, away, Some(plan.limit)).await?;
        if plan.back && away.phase() == EvacuationPhase::Done {
            tokio::time::sleep(plan.rules.stay).await;
        }
        Ok::<(), Error>(())
    };
    let aborted = tokio::select! {
        there = there => there.map(|()| None)?,
        signal = signals.next() => Some(Error::NotNow(format!("the command received {signal}"))),
    };
    if plan.back && (aborted.is_some() || away.phase() == EvacuationPhase::Done) {
        let (session, begun) = (&of.operator.session, Some(away.at_ms));
        let turned = async {
            let turned = store::change(session, &of.paths, away, begun, Evacuation::turn_back).await?;
            until_ended(of, back.insert(turned), Some(plan.limit)).await
        };
        tokio::select! {
            turned = turned => turned?,
            signal = signals.next() => return Err(Error::NotNow(format!("the command received {signal}"))),
        }
    }
    aborted.map_or(Ok(()), Err)
}

/// Carries it out, and keeps the report, whatever its end is.
async fn carried_out(
    of: &Election<'_>,
    (name, plan): (&str, &SitePlan),
    Examined { prepared, lags, evaluated }: Examined,
) -> Result<SiteDrillReport, Error> {
    let operator = of.operator;
    let (mut away, mut back) = (prepared.plan, None);
    let signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    let under_way = operator.in_time(store::begin(&operator.session, &of.paths, &mut away)).await?;
    // The same evacuation that is under way is another operator's.
    if let Some(Evacuation { site, by, .. }) = under_way {
        return Err(Error::NotNow(format!(
            "site {site} is being evacuated already, by {by}; nothing was done"
        )));
    }
    let undo = Typed::verb("evacuate").arg(&plan.site).arg("--undo");
    output::print_progress(format_args!(
        "workers carry it out; Ctrl-C aborts it; if this command is lost, `{undo}` moves back"
    ));
    let drill = SiteDrill {
        name,
        plan,
        away: &away,
        back: None,
        cut_short: None,
        unix_ms: unix_ms(),
        stops_with: &Follows::new(),
        evidence: &BTreeMap::new(),
        last_success_ms: evaluated.last_success_ms,
    };
    let mut begun = assemble(&drill, evaluated.checks.clone(), prepared.left_out.clone());
    begun.outcome = DrillOutcome::Running;
    begun.sentence = format!("it has not ended, or its command was lost: `{undo}` moves back");
    if let Err(error) = kept_as(of, &begun).await {
        output::print_warning(format_args!("the report can't be kept yet: {error}"));
    }
    let cut_short = moved(of, plan, signals, &mut away, &mut back).await;
    let cut_short = cut_short.err().map(|error| error.to_string());
    let over_ms = unix_ms();
    if let Some(way_on) = way_on(back.as_ref().unwrap_or(&away)) {
        output::print_warning(way_on);
    }
    let moving: BTreeSet<_> = away.steps.iter().map(|step| step.job.clone()).collect();
    let stops_with = follows(&moving, &operator.config.after).unwrap_or_default();
    let (evidence, unread) = evidence(operator, &away, lags).await;
    if let Some(error) = unread {
        output::print_warning(format_args!("a history could not be read: {error}"));
    }
    let drill = SiteDrill {
        name,
        plan,
        away: &away,
        back: back.as_ref(),
        cut_short,
        unix_ms: over_ms,
        stops_with: &stops_with,
        evidence: &evidence,
        last_success_ms: evaluated.last_success_ms,
    };
    let mut report = assemble(&drill, evaluated.checks, prepared.left_out);
    if let Err(error) = kept_as(of, &report).await {
        // Nothing shows that it passed.
        report.outcome = DrillOutcome::Failed;
        report.sentence = format!("{}; the report could not be kept: {error}", report.sentence);
    }
    Ok(report)
}

/// Keeps the report as the last one of its plan.
async fn kept_as(of: &Election<'_>, report: &SiteDrillReport) -> Result<(), Error> {
    keep(&of.operator.incarnation().await?, &of.paths, report).await
}

/// `drill check`, as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    plan: &'a str,
    #[serde(flatten)]
    evaluated: EvaluatedPlan,
    /// Of a plan that names what is not there nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    evacuation: Option<Evacuated>,
}

/// `drill check`: evaluates the plan, and prints what would move. Returns whether it may be practised now.
pub(super) async fn evaluate(
    operator: &Operator,
    (name, plan): (&str, &SitePlan),
    how: Output,
) -> Result<bool, Error> {
    let by = asker();
    let author = Author { by: &by, reason: None };
    let (evaluated, evacuation) = match examine(operator, (name, plan), &operator.paths(PLANS)?, author).await
    {
        Ok(Examined { prepared, evaluated, .. }) => (evaluated, Some(Evacuated::from(prepared))),
        Err(error) => (result(plan, Err(error))?, None),
    };
    let passed = evaluated.passed;
    match how {
        Output::Json => output::print_json(&Checked { plan: name, evaluated, evacuation })?,
        Output::Pretty => {
            let title = format!("{name}: evacuation of site {}", plan.site);
            let proved = evaluated.last_success_ms.map(moment);
            output::print_text(&shown::evaluated(&title, &evaluated.checks, proved))?;
        }
    }
    Ok(passed)
}

/// `drill show last --plan`: the last report.
pub(super) async fn show(
    operator: &Operator,
    name: &str,
    arguments: &DrillShowArguments,
    how: Output,
) -> Result<(), Error> {
    if arguments.run != "last" {
        let run = &arguments.run;
        return Err(Error::Usage(format!(
            "unknown drill {run}: for a plan of a site only the `last` drill is kept"
        )));
    }
    let paths = operator.paths(PLANS)?;
    let Some(report) = kept(&operator.incarnation().await?, &paths, name).await? else {
        return Err(Error::Failed(format!("plan {name}: no drill yet")));
    };
    print_report(&report, &ReportDocument::of_site(&report), arguments.format, how)
}
