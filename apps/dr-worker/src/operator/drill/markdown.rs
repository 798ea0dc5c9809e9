//! A report as Markdown.

use std::fmt::Write as _;

use election_core::text::shown;

use super::timeline::words;
use crate::{
    commands::drill::report::{Event, Report},
    wall::exact_moment,
};

/// The report. Text of others is escaped.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    // It can't fail.
    let _ = write(report, &mut text);
    text
}

fn write(report: &Report, to: &mut String) -> std::fmt::Result {
    let dash = || "-".to_owned();
    let known = |ms: Option<u64>| ms.map_or_else(dash, words);
    writeln!(to, "# Drill {}: {}\n", escaped(&report.run), report.outcome)?;
    writeln!(to, "{}.\n", escaped(&report.sentence))?;
    let who = |who: &Option<crate::commands::drill::report::Who>| {
        who.as_ref().map_or_else(dash, |who| escaped(&who.to_string()))
    };
    let optional = |text: &Option<String>| text.as_deref().map_or_else(dash, escaped);
    writeln!(to, "| | |\n|---|---|")?;
    for (name, value) in [
        ("job", escaped(&report.job)),
        ("mode", report.mode.as_str().to_owned()),
        ("target", escaped(&report.target)),
        ("plan", optional(&report.plan)),
        ("leader before", who(&report.from)),
        ("took over", who(&report.to)),
        ("longest outage", known(report.outage_ms)),
        ("by", escaped(&report.by)),
        ("reason", optional(&report.reason)),
        ("began", exact_moment(report.started_ms)),
        ("ended", report.ended_ms.map_or_else(dash, exact_moment)),
        ("software", escaped(&report.software)),
    ] {
        writeln!(to, "| {name} | {value} |")?;
    }
    if !report.objectives.is_empty() {
        writeln!(
            to,
            "\n## Objectives\n\n| objective | result | at most | measured | |\n|---|---|---|---|---|"
        )?;
        for objective in &report.objectives {
            let result = if objective.passed { "reached" } else { "**missed**" };
            let (most, measured) = (words(objective.most_ms), known(objective.measured_ms));
            let (name, sentence) = (escaped(&objective.name), escaped(&objective.sentence));
            writeln!(to, "| {name} | {result} | {most} | {measured} | {sentence} |")?;
        }
    }
    writeln!(to, "\n## Phases\n\n| phase | time |\n|---|---|")?;
    for (name, ms) in report.phases.all() {
        writeln!(to, "| {name} | {} |", known(ms))?;
    }
    if !report.moves.is_empty() {
        writeln!(to, "\n## Decisions\n")?;
    }
    for change in &report.moves {
        let back = if change.back { ", back" } else { "" };
        let phases =
            change.phases.all().into_iter().filter_map(|(name, ms)| Some(format!("{name} {}", words(ms?))));
        writeln!(
            to,
            "- Term {}{back}: {} follows {}. {} (decided by {}; {})",
            change.term,
            escaped(&change.to.to_string()),
            who(&change.from),
            escaped(&change.sentence),
            escaped(&change.decided_by),
            phases.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(to, "\n## Seen from outside\n")?;
    if report.probes.is_empty() {
        writeln!(to, "No site probed the service.")?;
    } else {
        writeln!(
            to,
            "| site | member | target | probes | failed | longest outage | at the end |\n|---|---|---|---|---|---|---|"
        )?;
    }
    for probed in &report.probes {
        let found = &probed.found;
        writeln!(
            to,
            "| {} | {} | {} | {} | {} | {} | {} |",
            escaped(probed.who.site.as_str()),
            escaped(probed.who.member.as_str()),
            escaped(&found.target),
            found.count,
            found.failed,
            words(probed.outage_ms),
            if probed.serves { "serves" } else { "**no answer**" }
        )?;
    }
    writeln!(to, "\n## Timeline\n")?;
    for Event { at_ms, who, what } in &report.timeline {
        let seconds = std::time::Duration::from_millis(*at_ms).as_secs_f64();
        writeln!(to, "- {seconds:.3} s, {}: {}", escaped(who), escaped(what))?;
    }
    writeln!(to, "\n## Checks before\n")?;
    for check in &report.checks {
        let mark = if check.passed { "x" } else { " " };
        writeln!(to, "- [{mark}] {}: {}", escaped(&check.name), escaped(&check.sentence))?;
    }
    writeln!(
        to,
        "\n## Members\n\n| member | site | role | health | software | configuration |\n|---|---|---|---|---|---|"
    )?;
    for member in &report.members {
        let cells = [
            member.who.member.as_str(),
            member.who.site.as_str(),
            &member.role,
            &member.health,
            &member.software,
        ];
        let cells: Vec<_> = cells.into_iter().map(escaped).collect();
        writeln!(to, "| {} | version {} |", cells.join(" | "), member.config_version)?;
    }
    Ok(())
}

/// Text of one line that is no markup: neither of Markdown nor of HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in shown(text).chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' => {
                escaped.push('\\');
                escaped.push(character);
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{super::golden, *};
    use crate::commands::drill::report::tests::sample;

    #[test]
    fn a_report_is_rendered() {
        golden::compare("report.md", &report(&sample()));
    }

    #[test]
    fn text_of_others_is_no_markup() {
        assert_eq!(escaped("a|b <img> `x` *y*"), "a\\|b &lt;img&gt; \\`x\\` \\*y\\*");
        assert_eq!(escaped("a\n| b\u{202e}"), "a\\\\n\\| b\\\\u{202e}");
    }
}
