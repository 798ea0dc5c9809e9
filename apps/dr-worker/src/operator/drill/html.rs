//! A report as one HTML file: nothing comes from elsewhere, and it has no script.
//!
//! `maud` escapes each text; [`shown`] takes away what is no text.

use election_core::internals::text::shown;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    document::{DocumentSection, ReportDocument},
    timeline::{Bar, Lane},
};
use crate::operator::output::Accent;

/// The width of a drawing, in its own units.
const WIDTH: u64 = 1_000;
/// Its height.
const HEIGHT: u64 = 20;
/// The narrowest bar that can be seen.
const NARROWEST: u64 = 3;

const STYLE: &str = include_str!("report.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The colours of the timeline, and what they mean.
const LEGEND: [(&str, &str); 9] = [
    ("leads", "leads"),
    ("detect", "detect"),
    ("decide", "decide"),
    ("release", "release"),
    ("acquire", "acquire"),
    ("takeover", "takeover"),
    ("ready", "ready"),
    ("served", "answers"),
    ("outage", "no answer"),
];

/// The page.
pub(super) fn page(document: &ReportDocument) -> String {
    let ReportDocument { title, accent, sentence, facts, sections, .. } = document;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (shown(title)) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    header class={ "card " (class(*accent)) } {
                        h1 { (shown(title)) }
                        p #sentence { (shown(sentence)) }
                        dl { @for (name, value) in facts { div { dt { (name) } dd { (shown(value)) } } } }
                    }
                    (timeline(document))
                    @for section in sections { (table(section)) }
                }
            }
        }
    };
    page.into_string()
}

fn table(section: &DocumentSection) -> Markup {
    let id = section.id;
    html! {
        section #(id) aria-labelledby={ "h-" (id) } {
            h2 id={ "h-" (id) } { (section.title) }
            @if !section.rows.is_empty() {
                div .card .scroll tabindex="0" {
                    table {
                        tr { @for column in &section.columns { th { (column.heading.to_lowercase()) } } }
                        @for (cells, accent) in &section.rows { tr { (row(cells, *accent)) } }
                    }
                }
            }
            @if let Some(note) = &section.note { p .soft { (shown(note)) } }
        }
    }
}

fn row(cells: &[String], accent: Accent) -> Markup {
    html! {
        @for (at, cell) in cells.iter().enumerate() {
            td {
                @if at == 0 && accent != Accent::None {
                    span class={ "pill " (class(accent)) } { (shown(cell)) }
                } @else {
                    (shown(cell))
                }
            }
        }
    }
}

fn timeline(ReportDocument { lanes, length: end, .. }: &ReportDocument) -> Markup {
    let end = *end;
    let is_drawn = |class: &str| lanes.iter().flat_map(|lane| &lane.bars).any(|bar| bar.class == class);
    html! {
        section #timeline aria-labelledby="h-timeline" {
            h2 #h-timeline { "Timeline" }
            div .card .lanes {
                @for lane in lanes { (drawn(lane, end)) }
                p .axis {
                    @for part in 0..=4 {
                        span { (format!("{:.1} s", std::time::Duration::from_millis(end * part / 4).as_secs_f64())) }
                    }
                }
                p .legend {
                    @for (class, name) in LEGEND.into_iter().filter(|(class, _)| is_drawn(class)) {
                        span {
                            svg viewBox="0 0 10 10" aria-hidden="true" { rect .(class) width="10" height="10" rx="2" {} }
                            " " (name)
                        }
                    }
                }
            }
        }
    }
}

fn drawn(lane: &Lane, end: u64) -> Markup {
    let titles: Vec<_> = lane.bars.iter().map(|bar| bar.title.as_str()).collect();
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    html! {
        div .lane {
            p { (shown(&lane.label)) }
            svg viewBox=(view) preserveAspectRatio="none" role="img" aria-label=(shown(&titles.join("; "))) {
                rect .ground width=(WIDTH) height=(HEIGHT) {}
                @for bar in &lane.bars {
                    @let (x, width) = place(bar, end);
                    rect .(bar.class) x=(x) width=(width) height=(HEIGHT) { title { (shown(&bar.title)) } }
                }
            }
        }
    }
}

/// Where a bar begins, and how wide it is.
fn place(bar: &Bar, end: u64) -> (u64, u64) {
    let at = |ms: u64| ms.min(end) * WIDTH / end;
    let x = at(bar.from_ms).min(WIDTH - NARROWEST);
    (x, at(bar.to_ms).saturating_sub(x).max(NARROWEST))
}

const fn class(accent: Accent) -> &'static str {
    match accent {
        Accent::Good => "good",
        Accent::Bad => "bad",
        Accent::Busy | Accent::None => "busy",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::golden, *};
    use crate::commands::drill::report::tests::sample;

    #[test]
    fn a_report_is_rendered() {
        let text = page(&ReportDocument::of(&sample()));
        assert_eq!(text.matches(STYLE).count(), 1);
        let text = text.replace(STYLE, "/* report.css */");
        // One line for each element that begins one.
        let lines = ["<head", "<meta", "<body", "<header", "<div", "<section", "<tr", "<svg", "<rect", "<p"];
        let lines = lines.iter().fold(text.clone(), |text, tag| text.replace(tag, &format!("\n{tag}")));
        golden::compare("report.html", &format!("{lines}\n"));
        // Nothing comes from elsewhere.
        for outside in ["src=", "http-equiv=\"refresh", "@import", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
    }

    #[test]
    fn text_of_others_is_no_markup() {
        let mut report = sample();
        report.sentence = "<script>alert('x')</script>\"\u{202e}".to_owned();
        report.timeline[0].what = "</li><img src=x>".to_owned();
        report.moves[0].to.member = "a".parse().expect("a name");
        report.probes[0].found.outages[0].reason = "\"><img src=x>".to_owned();
        let text = page(&ReportDocument::of(&report));
        assert!(text.contains("&lt;script&gt;alert('x')&lt;/script&gt;&quot;\\u{202e}"));
        assert!(text.contains("&quot;&gt;&lt;img src=x&gt;"));
        assert!(!text.contains("<script") && !text.contains("<img"));
    }
}
