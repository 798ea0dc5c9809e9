//! Drills as text on a terminal.

use owo_colors::OwoColorize as _;

use super::{
    super::{
        output::{self, Accent, span},
        table::Column,
    },
    document::{DocumentSection, ReportDocument, accent},
};
use crate::{
    commands::drill::{
        checks::target,
        report::{DrillCheck, DrillReport, Who},
    },
    config::{DrillPlan, job_key},
    typed::Typed,
    wall::moment,
};

/// The outcome of a drill that has just ended.
pub(super) fn summary(report: &DrillReport) -> String {
    let outcome = coloured(report.outcome.as_str(), accent(report.outcome));
    let mut lines = vec![format!("{} {}: {outcome}", "drill".bold(), report.run)];
    lines.push(format!("  {}", report.sentence));
    let phases =
        report.phases.all().into_iter().filter_map(|(name, ms)| Some(format!("{name} {}", span(ms?))));
    let phases: Vec<_> = phases.collect();
    if !phases.is_empty() {
        lines.push(format!("  phases: {}", phases.join(", ")));
    }
    for probed in &report.probes {
        let seen = match probed.outage_ms {
            0 => "no outage".to_owned(),
            longest => format!("an outage of {}", span(longest)),
        };
        lines.push(format!(
            "  probes of {}: {seen} ({} probes, {} failed)",
            probed.who, probed.found.count, probed.found.failed
        ));
    }
    if report.probes.is_empty() {
        let outage = report.outage_ms.map(|ms| format!("outage of {} in the election's records; ", span(ms)));
        let (outage, job) = (outage.unwrap_or_default(), job_key(&report.job));
        lines.push(format!("  {outage}no site probed the service: set {job}.drill.probe to have it probed"));
    }
    for objective in &report.objectives {
        let reached = if objective.passed { "reached" } else { "missed" };
        lines.push(format!("  {}: {reached}: {}", objective.name, objective.sentence));
    }
    let show = Typed::verb("drill show").arg(&report.run).job(&report.job).arg("--format").arg("html");
    lines.push(format!("  report: {show}"));
    lines.join("\n")
}

/// A whole report.
pub(super) fn report(document: &ReportDocument) -> String {
    let ReportDocument { title, accent, sentence, facts, sections, .. } = document;
    let mut lines = vec![coloured(title, *accent), sentence.clone(), String::new()];
    lines.extend(facts.iter().map(|(name, value)| format!("{:<16}{value}", format!("{name}:"))));
    for DocumentSection { title, columns, rows, note, .. } in sections {
        lines.extend([String::new(), title.bold().to_string()]);
        lines.extend((!rows.is_empty()).then(|| output::table(columns, rows)));
        lines.extend(note.clone());
    }
    lines.join("\n")
}

/// A plan, evaluated.
pub(super) fn checked(
    name: Option<&str>,
    plan: &DrillPlan,
    checks: &[DrillCheck],
    proved: Option<&DrillReport>,
) -> String {
    let what = format!("{} of {}, target {}", plan.mode.as_str(), plan.job, target(&plan.to));
    let title = name.map_or_else(|| what.clone(), |name| format!("{name}: {what}"));
    let proved = proved.and_then(|report| Some((report.ended_ms?, report)));
    let proved = proved
        .map(|(at_ms, report)| format!("{}, by {} ({})", moment(at_ms), report.run, report.mode.as_str()));
    evaluated(&title, checks, proved)
}

/// A plan of either kind, evaluated. `proved`: when, and by what.
pub(super) fn evaluated(title: &str, checks: &[DrillCheck], proved: Option<String>) -> String {
    let may = if checks.iter().all(|check| check.passed) { "may run now" } else { "may not run now" };
    let mut lines = vec![format!("{}: {may}", title.bold())];
    lines.extend(checks.iter().map(|DrillCheck { name, passed, sentence }| {
        let mark = if *passed { "ok    ".to_owned() } else { "FAILED".red().to_string() };
        format!("  {mark}  {name}: {sentence}")
    }));
    lines.push(
        proved.map_or_else(|| "  never proved".to_owned(), |proved| format!("  last proved at {proved}")),
    );
    lines.join("\n")
}

/// The reports that are kept.
pub(super) fn table(reports: &[&DrillReport]) -> String {
    let rows: Vec<_> = reports
        .iter()
        .map(|report| {
            let who =
                |who: &Option<Who>| who.as_ref().map_or_else(|| "-".to_owned(), |who| who.member.to_string());
            let cells = vec![
                report.run.clone(),
                report.mode.as_str().to_owned(),
                report.outcome.to_string(),
                who(&report.from),
                who(&report.to),
                report.outage_ms.map_or_else(|| "-".to_owned(), span),
                report.plan.clone().unwrap_or_else(|| "-".to_owned()),
                report.by.clone(),
                report.sentence.clone(),
            ];
            (cells, accent(report.outcome))
        })
        .collect();
    let columns = [
        Column::key("RUN"),
        Column::key("MODE"),
        Column::key("OUTCOME"),
        Column::detail("FROM", 1),
        Column::detail("TO", 1),
        Column::detail("OUTAGE", 1),
        Column::detail("PLAN", 0),
        Column::detail("BY", 0),
        Column::detail("RESULT", 2),
    ];
    output::table(&columns, &rows)
}

fn coloured(text: &str, accent: Accent) -> String {
    match accent {
        Accent::Good => text.green().to_string(),
        Accent::Bad => text.red().to_string(),
        Accent::Busy | Accent::None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::golden, *};
    use crate::commands::drill::report::tests::sample;

    #[test]
    fn a_report_is_rendered() {
        let text = anstream::adapter::strip_str(&report(&ReportDocument::of(&sample()))).to_string();
        golden::compare("report.txt", &format!("{text}\n"));
    }
}
