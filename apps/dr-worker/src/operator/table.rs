//! Tables that fit a width.
//!
//! A table that is too wide loses the columns of its details, the last group first: they follow below each row, by name.
//! If it is still too wide, the longest cells are shortened in the middle, where names differ least.

use owo_colors::OwoColorize as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The accent of a line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accent {
    None,
    Good,
    Busy,
    Bad,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) heading: &'static str,
    /// The group of details, of which the highest is the first to go below the rows.
    group: Option<usize>,
}

impl Column {
    /// A column that stays in the table.
    pub(super) const fn key(heading: &'static str) -> Self {
        Self { heading, group: None }
    }

    /// A column that goes below the rows with the others of its group.
    pub(super) const fn detail(heading: &'static str, group: usize) -> Self {
        Self { heading, group: Some(group) }
    }
}

/// The space between two columns.
const GAP: usize = 2;

/// The space before details.
const INDENT: usize = 4;

/// Cells are not shortened below this.
const SHORTEST: usize = 8;

/// Rows under a heading, in columns.
pub(super) fn table(columns: &[Column], rows: &[(Vec<String>, Accent)], width: usize) -> String {
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let natural: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            rows.iter().map(|(row, _)| cell(row, at).width()).max().unwrap_or(0).max(column.heading.width())
        })
        .collect();
    let total =
        |shown: &[usize], widths: &[usize]| shown.iter().map(|at| widths[*at] + GAP).sum::<usize>() - GAP;
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let mut below: Vec<Vec<usize>> = Vec::new();
    while total(&shown, &natural) > width
        && let Some(last) = shown.iter().filter_map(|at| columns[*at].group).max()
    {
        let (gone, rest) = shown.into_iter().partition(|at| columns[*at].group == Some(last));
        below.insert(0, gone);
        shown = rest;
    }
    let mut widths = natural;
    while total(&shown, &widths) > width
        && let Some(widest) =
            shown.iter().copied().max_by_key(|at| widths[*at]).filter(|at| widths[*at] > SHORTEST)
    {
        widths[widest] -= 1;
    }
    let line = |cells: &dyn Fn(usize) -> String| -> String {
        let cells = shown.iter().map(|at| {
            let text = shortened(&cells(*at), widths[*at]);
            let fill = " ".repeat(widths[*at] - text.width().min(widths[*at]) + GAP);
            text + &fill
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    let mut lines = vec![line(&|at| columns[at].heading.to_owned()).bold().to_string()];
    for (row, accent) in rows {
        let text = line(&|at| cell(row, at));
        lines.push(match accent {
            Accent::None => text,
            Accent::Good => text.green().to_string(),
            Accent::Busy => text.yellow().to_string(),
            Accent::Bad => text.red().to_string(),
        });
        for group in &below {
            let details = group.iter().filter(|at| !matches!(cell(row, **at).as_str(), "" | "-"));
            let details =
                details.map(|at| format!("{}: {}", columns[*at].heading.to_lowercase(), cell(row, *at)));
            let details = details.collect::<Vec<_>>().join(", ");
            if !details.is_empty() {
                lines.extend(folded(&details, width, INDENT));
            }
        }
    }
    lines.join("\n")
}

/// A text without its middle, if it is wider than `width`.
fn shortened(text: &str, width: usize) -> String {
    const MIDDLE: &str = "..";
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(MIDDLE.len());
    let start = fitting(text.chars(), kept.div_ceil(2));
    let end: String = fitting(text.chars().rev(), kept / 2).chars().rev().collect();
    format!("{start}{MIDDLE}{end}")
}

/// As many characters as fit.
fn fitting(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    characters
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// A text in lines of this width at most, each with this indent. A longer word has a line of its own.
pub(super) fn folded(text: &str, width: usize, indent: usize) -> Vec<String> {
    let space = " ".repeat(indent);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if visible(line) + 1 + visible(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{space}{word}")),
        }
    }
    lines
}

/// A text whose lines that are too wide are folded, with the indent that each has.
pub(super) fn fitted(text: &str, width: usize) -> String {
    let lines = text.lines().flat_map(|line| match visible(line) > width {
        true => folded(line, width, line.len() - line.trim_start().len()),
        false => vec![line.to_owned()],
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The width of a text without the escape sequences of colours.
fn visible(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::key("MEMBER"),
        Column::key("ROLE"),
        Column::detail("DECIDE", 0),
        Column::detail("TAKEOVER", 0),
        Column::detail("REASON", 1),
    ];

    fn at(width: usize) -> String {
        let row = |member: &str, role: &str, reason: &str| {
            (vec![member, role, "12ms", "-", reason].into_iter().map(str::to_owned).collect(), Accent::None)
        };
        let rows = [
            row("east-1", "leader", "it is the first that has joined"),
            row("a-member-with-a-long-name-17", "standby", ""),
        ];
        let text = table(&COLUMNS, &rows, width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn a_wide_terminal_shows_one_line_for_each_row() {
        assert_eq!(
            at(200),
            "MEMBER                        ROLE     DECIDE  TAKEOVER  REASON\n\
             east-1                        leader   12ms    -         it is the first that has joined\n\
             a-member-with-a-long-name-17  standby  12ms    -"
        );
    }

    #[test]
    fn details_go_below_the_rows_by_group() {
        assert_eq!(
            at(60),
            "MEMBER                        ROLE     DECIDE  TAKEOVER\n\
             east-1                        leader   12ms    -\n    \
                 reason: it is the first that has joined\n\
             a-member-with-a-long-name-17  standby  12ms    -"
        );
        assert_eq!(
            at(39),
            "MEMBER                        ROLE\n\
             east-1                        leader\n    \
                 decide: 12ms\n    \
                 reason: it is the first that has\n    \
                 joined\n\
             a-member-with-a-long-name-17  standby\n    \
                 decide: 12ms"
        );
    }

    #[test]
    fn long_names_lose_their_middle() {
        let text = at(25);
        assert!(text.contains("a-membe..name-17  standby"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 25), "{text}");
        // Not below what can be read.
        assert!(at(1).contains("a-m..-17"), "{}", at(1));
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(shortened("東京東京東京", 8), "東..京京".replace("京京", "京"));
        assert_eq!(shortened("orders", 6), "orders");
    }

    #[test]
    fn texts_are_folded_at_words() {
        let text = format!("{} of the election", "orders".bold());
        let lines: Vec<_> =
            folded(&text, 14, 2).iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(lines, ["  orders of", "  the election"]);
        assert_eq!(fitted("  one two\n  short", 6), "  one\n  two\n  short");
        assert_eq!(folded("a-word-that-is-longer b", 10, 0), ["a-word-that-is-longer", "b"]);
    }
}
