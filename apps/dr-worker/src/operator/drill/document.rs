//! What a report shows to people: the one structure of its text and its HTML.

use super::timeline::{Lane, lanes, length, words};
use crate::{
    commands::drill::report::{DrillCheck, DrillOutcome, DrillReport, Objective, Who},
    operator::{output::Accent, table::Column},
    wall::{exact_moment, moment},
};

/// A report, as people read it.
pub(super) struct ReportDocument {
    pub(super) title: String,
    pub(super) accent: Accent,
    pub(super) sentence: String,
    /// Facts that are known, by name.
    pub(super) facts: Vec<(&'static str, String)>,
    /// What is drawn.
    pub(super) lanes: Vec<Lane>,
    /// The time that is drawn, in milliseconds.
    pub(super) length: u64,
    pub(super) sections: Vec<DocumentSection>,
}

/// A table under a title.
pub(super) struct DocumentSection {
    /// For links.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) columns: Vec<Column>,
    /// Of a row with an accent, the first cell has its result.
    pub(super) rows: Vec<(Vec<String>, Accent)>,
    /// What the table doesn't say.
    pub(super) note: Option<String>,
}

impl ReportDocument {
    pub(super) fn of(report: &DrillReport) -> Self {
        let sections = [
            objectives(report.objectives.iter().map(|own| (String::new(), own))),
            phases(report),
            decisions(report),
            probes(report),
            events(report),
            checks(&report.checks),
            members(report),
        ];
        Self {
            title: format!("Drill {} of {}: {}", report.run, report.job, report.outcome),
            accent: accent(report.outcome),
            sentence: report.sentence.clone(),
            facts: facts(report),
            lanes: lanes(report),
            length: length(report),
            sections: sections.into_iter().filter(|s| !s.rows.is_empty() || s.note.is_some()).collect(),
        }
    }
}

impl DocumentSection {
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        columns: &[Column],
        rows: impl IntoIterator<Item = (Vec<String>, Accent)>,
    ) -> Self {
        Self { id, title, columns: columns.to_vec(), rows: rows.into_iter().collect(), note: None }
    }
}

fn facts(report: &DrillReport) -> Vec<(&'static str, String)> {
    let who = |who: &Option<Who>| who.as_ref().map(ToString::to_string);
    let facts = [
        ("Mode", Some(report.mode.as_str().to_owned())),
        ("Began", Some(exact_moment(report.started_ms))),
        ("Ended", report.ended_ms.map(exact_moment)),
        ("Leader before", who(&report.from)),
        ("Took over", who(&report.to)),
        ("Longest outage", report.outage_ms.map(words)),
        ("Target", Some(report.target.clone())),
        ("Plan", report.plan.clone()),
        ("By", Some(report.by.clone())),
        ("Reason", report.reason.clone()),
        ("Software", Some(report.software.clone())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A result, and its accent.
fn result(passed: bool, [good, bad]: [&str; 2]) -> (String, Accent) {
    if passed { (good.to_owned(), Accent::Good) } else { (bad.to_owned(), Accent::Bad) }
}

pub(super) fn known(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), words)
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{:.3} s", std::time::Duration::from_millis(ms).as_secs_f64())
}

/// Each objective with what follows its name.
pub(super) fn objectives<'a>(all: impl IntoIterator<Item = (String, &'a Objective)>) -> DocumentSection {
    let columns = [
        Column::key("RESULT"),
        Column::key("OBJECTIVE"),
        Column::key("MEASURED"),
        Column::key("AT MOST"),
        Column::detail("WHY", 0),
    ];
    let rows = all.into_iter().map(|(of, objective)| {
        let (result, accent) = result(objective.passed, ["reached", "missed"]);
        let (measured, most) = (known(objective.measured_ms), words(objective.most_ms));
        let name = format!("{}{of}", objective.name.to_uppercase());
        (vec![result, name, measured, most, objective.sentence.clone()], accent)
    });
    DocumentSection::new("objectives", "Objectives", &columns, rows)
}

fn phases(report: &DrillReport) -> DocumentSection {
    let columns = ["", "DETECT", "DECIDE", "RELEASE", "ACQUIRE", "TAKEOVER", "READY", "TOGETHER"];
    let back = report.moves.iter().filter(|change| change.back).map(|change| ("Move back", change.phases));
    let rows = [("Failover", report.phases)].into_iter().chain(back).map(|(name, phases)| {
        let all = phases.all().map(|(_, ms)| known(ms)).into_iter().chain([known(phases.sum())]);
        ([name.to_owned()].into_iter().chain(all).collect(), Accent::None)
    });
    DocumentSection::new("phases", "Phases", &columns.map(Column::key), rows)
}

fn decisions(report: &DrillReport) -> DocumentSection {
    let columns = [
        Column::key("TERM"),
        Column::key("LEADER"),
        Column::key("CAUSE"),
        Column::key("DECIDED BY"),
        Column::detail("WHY", 0),
    ];
    let rows = report.moves.iter().map(|change| {
        let back = if change.back { ", back" } else { "" };
        let cause = change.cause.map_or("-", |cause| cause.as_str()).to_owned();
        let (leader, by) = (format!("{}{back}", change.to), change.decided_by.clone());
        (vec![change.term.to_string(), leader, cause, by, change.sentence.clone()], Accent::None)
    });
    DocumentSection::new("decisions", "Decisions", &columns, rows)
}

fn probes(report: &DrillReport) -> DocumentSection {
    let columns = [
        Column::key("AT THE END"),
        Column::key("SITE"),
        Column::key("MEMBER"),
        Column::key("LONGEST OUTAGE"),
        Column::key("PROBES"),
        Column::key("FAILED"),
        Column::detail("TARGET", 0),
    ];
    let rows = report.probes.iter().map(|probed| {
        let (result, accent) = result(probed.serves, ["serves", "no answer"]);
        let (found, who) = (&probed.found, &probed.who);
        let target = format!("{}, every {}", found.target, words(found.interval_ms));
        let (count, failed) = (found.count.to_string(), found.failed.to_string());
        let outage = words(probed.outage_ms);
        (vec![result, who.site.to_string(), who.member.to_string(), outage, count, failed, target], accent)
    });
    let note = report.probes.is_empty().then(|| "No site probed the service.".to_owned());
    DocumentSection { note, ..DocumentSection::new("probes", "Seen from outside", &columns, rows) }
}

fn events(report: &DrillReport) -> DocumentSection {
    let columns = [Column::key("TIME"), Column::key("WHO"), Column::detail("WHAT", 0)];
    let rows = report
        .timeline
        .iter()
        .map(|event| (vec![seconds(event.at_ms), event.who.clone(), event.what.clone()], Accent::None));
    DocumentSection::new("events", "What happened", &columns, rows)
}

pub(super) fn checks(all: &[DrillCheck]) -> DocumentSection {
    let columns = [Column::key("RESULT"), Column::key("CHECK"), Column::detail("WHY", 0)];
    let rows = all.iter().map(|check| {
        let (result, accent) = result(check.passed, ["ok", "failed"]);
        (vec![result, check.name.clone(), check.sentence.clone()], accent)
    });
    DocumentSection::new("checks", "Checks before", &columns, rows)
}

fn members(report: &DrillReport) -> DocumentSection {
    let columns = ["MEMBER", "SITE", "ROLE", "HEALTH", "SOFTWARE", "CONFIGURATION"];
    let rows = report.members.iter().map(|member| {
        let (who, version) = (&member.who, format!("version {}", member.config_version));
        let cells = [who.member.as_str(), who.site.as_str(), &member.role, &member.health, &member.software];
        (cells.map(str::to_owned).into_iter().chain([version]).collect(), Accent::None)
    });
    let note = Some(format!("As of {}, when the drill began.", moment(report.started_ms)));
    DocumentSection { note, ..DocumentSection::new("members", "Members", &columns.map(Column::key), rows) }
}

pub(super) const fn accent(outcome: DrillOutcome) -> Accent {
    match outcome {
        DrillOutcome::Passed => Accent::Good,
        DrillOutcome::Failed | DrillOutcome::Aborted | DrillOutcome::Interrupted => Accent::Bad,
        DrillOutcome::Running | DrillOutcome::Unknown => Accent::None,
    }
}
