//! What the report of a drill of a whole site shows to people, and its lanes: one for each job.

use super::{
    document::{DocumentSection, ReportDocument, accent, checks, known, objectives, seconds},
    timeline::{Bar, Lane, words},
};
use crate::{
    commands::evacuation::site_report::{JobInDrill, SiteDrillReport},
    operator::{output::Accent, table::Column},
    wall::exact_moment,
    znodes::EvacuationLeader,
};

impl ReportDocument {
    pub(super) fn of_site(report: &SiteDrillReport) -> Self {
        let whole = report.objectives.iter().map(|own| (String::new(), own));
        let all = report
            .jobs
            .iter()
            .flat_map(|job| job.objectives.iter().map(move |own| (format!(" of {}", job.job), own)));
        let sections = [objectives(whole.chain(all)), jobs(report), checks(&report.checks), left_out(report)];
        Self {
            title: format!("Drill of plan {}, site {}: {}", report.plan, report.site, report.outcome),
            accent: accent(report.outcome),
            sentence: report.sentence.clone(),
            facts: facts(report),
            lanes: report.jobs.iter().map(|job| lane(job, report.took_ms)).collect(),
            length: report.took_ms.max(1),
            sections: sections.into_iter().filter(|section| !section.rows.is_empty()).collect(),
        }
    }
}

fn facts(report: &SiteDrillReport) -> Vec<(&'static str, String)> {
    let facts = [
        ("Began", Some(exact_moment(report.started_ms))),
        ("Ended", report.ended_ms.map(exact_moment)),
        ("The whole took", Some(words(report.took_ms))),
        ("Predicted", Some(report.predicted_ms.map_or_else(|| "unknown".to_owned(), words))),
        ("Longest chain", Some(report.longest_chain.join(", then "))),
        ("Longest outage", report.longest_outage_ms.map(words)),
        ("Move back took", report.back_ms.map(words)),
        ("By", Some(report.by.clone())),
        ("Reason", report.reason.clone()),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn jobs(report: &SiteDrillReport) -> DocumentSection {
    let columns = [
        Column::key("JOB"),
        Column::key("OUTAGE"),
        Column::key("PREDICTED"),
        Column::detail("BACK", 2),
        Column::key("BEGAN AT"),
        Column::detail("TOOK", 2),
        Column::key("WAITED FOR"),
        Column::detail("RESULT", 1),
    ];
    let rows = report.jobs.iter().map(|job| {
        let unexpected = job.predicted.as_ref().filter(|other| Some(*other) != job.leader.as_ref());
        let unexpected = unexpected.map(|other| format!("; {} was expected", other.member));
        let after = if job.after.is_empty() { "-".to_owned() } else { job.after.join(", ") };
        let cells = vec![
            job.job.clone(),
            known(job.outage_ms),
            known(job.predicted_outage_ms),
            known(job.back_outage_ms),
            job.waited_ms.map_or_else(|| "-".to_owned(), seconds),
            known(job.took_ms),
            after,
            format!("{}{}", job.sentence, unexpected.unwrap_or_default()),
        ];
        (cells, Accent::None)
    });
    DocumentSection::new("jobs", "Jobs", &columns, rows)
}

fn left_out(report: &SiteDrillReport) -> DocumentSection {
    let columns = [Column::key("JOB"), Column::detail("WHY", 0)];
    let rows = report.left_out.iter().map(|note| (vec![note.job.clone(), note.why.clone()], Accent::None));
    DocumentSection::new("left-out", "Left out", &columns, rows)
}

/// Who led a job until its outage, and since then.
fn lane(job: &JobInDrill, end: u64) -> Lane {
    let leads = |from, to, who: &EvacuationLeader| {
        Bar::new(from, to, "leads", format!("{} of site {} leads", who.member, who.site))
    };
    let moved = job.waited_ms.zip(job.took_ms).map(|(waited, took)| waited + took);
    let out = moved.unwrap_or(end).saturating_sub(job.outage_ms.unwrap_or(0));
    let before = job.from.as_ref().map(|from| leads(0, out, from));
    let outage = moved.zip(job.outage_ms).map(|(moved, outage)| {
        Bar::new(out, moved, "outage", format!("does not serve for {}", words(outage)))
    });
    let after = moved.zip(job.leader.as_ref()).map(|(moved, leader)| leads(moved, end, leader));
    Lane { label: job.job.clone(), bars: [before, outage, after].into_iter().flatten().collect() }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{golden, html, shown},
        *,
    };
    use crate::commands::evacuation::site_report::tests::sample;

    #[test]
    fn a_report_of_a_site_is_rendered() {
        let document = ReportDocument::of_site(&sample());
        let text = anstream::adapter::strip_str(&shown::report(&document)).to_string();
        golden::compare("site.txt", &format!("{text}\n"));
        let page = html::page(&document);
        for part in ["quarterly &lt;practice&gt;", "east-1 of site east leads", "no answer", "Left out"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("class=\"takeover\""), "the legend explains only what is drawn");
    }

    #[test]
    fn each_job_has_a_lane_that_ends_with_the_whole() {
        let lanes = ReportDocument::of_site(&sample()).lanes;
        let bars: Vec<_> = lanes
            .iter()
            .map(|lane| {
                let bars = lane.bars.iter().map(|bar| format!("{} {}-{}", bar.class, bar.from_ms, bar.to_ms));
                (lane.label.as_str(), bars.collect::<Vec<_>>().join(", "))
            })
            .collect();
        let expected = [
            ("db", "leads 0-450, outage 450-2000, leads 2000-3000"),
            ("cache", "leads 0-150, outage 150-600, leads 600-3000"),
            ("app", "leads 0-0, outage 0-3000, leads 3000-3000"),
            ("batch", "leads 0-3000"),
        ];
        assert_eq!(bars, expected.map(|(job, bars)| (job, bars.to_owned())));
    }
}
