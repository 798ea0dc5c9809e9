//! A report as one HTML file: nothing comes from elsewhere, and it has no script.

use election_core::text::shown;
use std::fmt::{self, Display, Write as _};

use super::timeline::{Bar, Lane, lanes, length, words};
use crate::{
    commands::drill::report::{Outcome, Report, Who},
    wall::{exact_moment, moment},
};

/// The width of a drawing, in its own units.
const WIDTH: u64 = 1_000;
/// Its height.
const HEIGHT: u64 = 20;
/// The narrowest bar that can be seen.
const NARROWEST: u64 = 3;

const STYLE: &str = include_str!("report.css");

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut text = String::new();
    // It can't fail.
    let _ = write(report, &mut text);
    text
}

fn write(report: &Report, to: &mut String) -> fmt::Result {
    let title = format!("Drill {} of {}: {}", report.run, report.job, report.outcome);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    writeln!(
        to,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>",
        Escaped(&title)
    )?;
    header(report, to)?;
    objectives(report, to)?;
    timeline(report, to)?;
    phases(report, to)?;
    decisions(report, to)?;
    probes(report, to)?;
    events(report, to)?;
    checks(report, to)?;
    members(report, to)?;
    writeln!(to, "</main>\n</body>\n</html>")
}

fn header(report: &Report, to: &mut String) -> fmt::Result {
    let class = class_of(report.outcome);
    writeln!(
        to,
        "<header class=\"card {class}\">\n<p class=\"soft\">Drill {}</p>\n<h1>{} of {} <span class=\"pill {class}\">{}</span></h1>\n\
         <p id=\"sentence\">{}</p>\n<dl>",
        Escaped(&report.run),
        Escaped(report.mode.as_str()),
        Escaped(&report.job),
        report.outcome,
        Escaped(&report.sentence)
    )?;
    let who = |who: &Option<Who>| who.as_ref().map(ToString::to_string);
    for (name, value) in [
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
    ] {
        if let Some(value) = value {
            writeln!(to, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value))?;
        }
    }
    writeln!(to, "</dl>\n</header>")
}

fn objectives(report: &Report, to: &mut String) -> fmt::Result {
    if report.objectives.is_empty() {
        return Ok(());
    }
    section(to, "objectives", "Objectives")?;
    writeln!(to, "<div class=\"cards\">")?;
    for objective in &report.objectives {
        let (class, result) = if objective.passed { ("good", "reached") } else { ("bad", "missed") };
        writeln!(
            to,
            "<div class=\"card {class}\"><h3>{} <span class=\"pill {class}\">{result}</span></h3><p class=\"figure\">{} \
             <span class=\"soft\">of {}</span></p><p>{}</p></div>",
            Escaped(&objective.name.to_uppercase()),
            Escaped(&objective.measured_ms.map_or_else(|| "unknown".to_owned(), words)),
            Escaped(&words(objective.most_ms)),
            Escaped(&objective.sentence)
        )?;
    }
    writeln!(to, "</div>\n</section>")
}

fn timeline(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "timeline", "Timeline")?;
    let end = length(report);
    writeln!(to, "<div class=\"card lanes\">")?;
    for lane in lanes(report) {
        draw(&lane, end, to)?;
    }
    write!(to, "<p class=\"axis\">")?;
    for part in 0..=4 {
        write!(to, "<span>{:.1} s</span>", std::time::Duration::from_millis(end * part / 4).as_secs_f64())?;
    }
    writeln!(to, "</p>\n<p class=\"legend\">")?;
    for (class, name) in [
        ("leads", "leads"),
        ("detect", "detect"),
        ("decide", "decide"),
        ("release", "release"),
        ("acquire", "acquire"),
        ("takeover", "takeover"),
        ("ready", "ready"),
        ("served", "answers"),
        ("outage", "no answer"),
    ] {
        let square = "<rect width=\"10\" height=\"10\" rx=\"2\"";
        writeln!(
            to,
            "<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\">{square} class=\"{class}\"/></svg> {name}</span>"
        )?;
    }
    writeln!(to, "</p>\n</div>\n</section>")
}

fn draw(lane: &Lane, end: u64, to: &mut String) -> fmt::Result {
    let says: Vec<_> = lane.bars.iter().map(|bar| bar.title.as_str()).collect();
    writeln!(
        to,
        "<div class=\"lane\"><p>{}</p><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{}\">",
        Escaped(&lane.label),
        Escaped(&says.join("; "))
    )?;
    writeln!(to, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>")?;
    for Bar { from_ms, to_ms, class, title } in &lane.bars {
        let at = |ms: u64| ms.min(end) * WIDTH / end;
        let x = at(*from_ms).min(WIDTH - NARROWEST);
        let width = at(*to_ms).saturating_sub(x).max(NARROWEST);
        writeln!(
            to,
            "<rect class=\"{class}\" x=\"{x}\" width=\"{width}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            Escaped(title)
        )?;
    }
    writeln!(to, "</svg></div>")
}

fn phases(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "phases", "Phases")?;
    let mut rows = vec![("Failover".to_owned(), report.phases)];
    rows.extend(report.moves.iter().filter(|m| m.back).map(|m| ("Move back".to_owned(), m.phases)));
    let heads: Vec<_> = report.phases.all().iter().map(|(name, _)| *name).collect();
    table(
        to,
        &[&[""], &heads[..], &["together"]].concat(),
        rows.iter().map(|(name, phases)| {
            let cells = phases.all().into_iter().map(|(_, ms)| ms).chain([phases.sum()]);
            let cells = cells.map(|ms| ms.map_or_else(|| "-".to_owned(), words));
            [name.clone()].into_iter().chain(cells).collect()
        }),
    )?;
    writeln!(to, "</section>")
}

fn decisions(report: &Report, to: &mut String) -> fmt::Result {
    if report.moves.is_empty() {
        return Ok(());
    }
    section(to, "decisions", "Decisions")?;
    writeln!(to, "<ol class=\"list\">")?;
    for change in &report.moves {
        let cause = change.cause.map(|cause| cause.as_str()).unwrap_or_default();
        writeln!(
            to,
            "<li><b>Term {}: {}{}</b><p>{}</p><p class=\"soft\">{} decided by {}</p></li>",
            change.term,
            Escaped(&change.to.to_string()),
            if change.back { ", back" } else { "" },
            Escaped(&change.sentence),
            Escaped(&if cause.is_empty() { String::new() } else { format!("{cause};") }),
            Escaped(&change.decided_by)
        )?;
    }
    writeln!(to, "</ol>\n</section>")
}

fn probes(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "probes", "Seen from outside")?;
    if report.probes.is_empty() {
        return writeln!(to, "<p class=\"card\">No site probed the service.</p>\n</section>");
    }
    let heads = ["site", "member", "target", "probes", "failed", "longest outage", "at the end"];
    table(
        to,
        &heads,
        report.probes.iter().map(|probed| {
            let found = &probed.found;
            vec![
                probed.who.site.to_string(),
                probed.who.member.to_string(),
                format!("{}, every {}", found.target, words(found.interval_ms)),
                found.count.to_string(),
                found.failed.to_string(),
                words(probed.outage_ms),
                if probed.serves { "serves" } else { "no answer" }.to_owned(),
            ]
        }),
    )?;
    writeln!(to, "</section>")
}

fn events(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "events", "What happened")?;
    writeln!(to, "<ol class=\"list times\">")?;
    for event in &report.timeline {
        let seconds = std::time::Duration::from_millis(event.at_ms).as_secs_f64();
        writeln!(
            to,
            "<li><span class=\"time\">{seconds:.3} s</span><span><b>{}</b> {}</span></li>",
            Escaped(&event.who),
            Escaped(&event.what)
        )?;
    }
    writeln!(to, "</ol>\n</section>")
}

fn checks(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "checks", "Checks before")?;
    writeln!(to, "<ul class=\"list\">")?;
    for check in &report.checks {
        let (class, result) = if check.passed { ("good", "ok") } else { ("bad", "failed") };
        writeln!(
            to,
            "<li><span class=\"pill {class}\">{result}</span> <b>{}</b> {}</li>",
            Escaped(&check.name),
            Escaped(&check.sentence)
        )?;
    }
    writeln!(to, "</ul>\n</section>")
}

fn members(report: &Report, to: &mut String) -> fmt::Result {
    section(to, "members", "Members")?;
    let heads = ["member", "site", "role", "health", "software", "configuration"];
    table(
        to,
        &heads,
        report.members.iter().map(|member| {
            vec![
                member.who.member.to_string(),
                member.who.site.to_string(),
                member.role.clone(),
                member.health.clone(),
                member.software.clone(),
                format!("version {}", member.config_version),
            ]
        }),
    )?;
    writeln!(
        to,
        "<p class=\"soft\">As of {}, when the drill began.</p>\n</section>",
        moment(report.started_ms)
    )
}

fn section(to: &mut String, id: &str, title: &str) -> fmt::Result {
    writeln!(to, "<section aria-labelledby=\"h-{id}\" id=\"{id}\">\n<h2 id=\"h-{id}\">{title}</h2>")
}

fn table(to: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> fmt::Result {
    write!(to, "<div class=\"card scroll\" tabindex=\"0\"><table>\n<tr>")?;
    heads.iter().try_for_each(|head| write!(to, "<th>{}</th>", Escaped(head)))?;
    writeln!(to, "</tr>")?;
    for row in rows {
        write!(to, "<tr>")?;
        row.iter().try_for_each(|cell| write!(to, "<td>{}</td>", Escaped(cell)))?;
        writeln!(to, "</tr>")?;
    }
    writeln!(to, "</table></div>")
}

const fn class_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "good",
        Outcome::Running | Outcome::Unknown => "busy",
        Outcome::Failed | Outcome::Aborted | Outcome::Interrupted => "bad",
    }
}

/// Text that is no markup.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0).chars().try_for_each(|character| match character {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::golden, *};
    use crate::commands::drill::report::tests::sample;

    #[test]
    fn a_report_is_rendered() {
        let text = page(&sample());
        assert_eq!(text.matches(STYLE).count(), 1);
        golden::compare("report.html", &text.replace(STYLE, "/* report.css */\n"));
        // Nothing comes from elsewhere.
        for outside in ["src=", "http-equiv=\"refresh", "@import", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
    }

    #[test]
    fn text_of_others_is_no_markup() {
        let mut report = sample();
        report.sentence = "<script>alert('x')</script>\"".to_owned();
        report.timeline[0].what = "</li><img src=x>".to_owned();
        let text = page(&report);
        assert!(text.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;"));
        assert!(!text.contains("<script") && !text.contains("<img"));
    }
}
