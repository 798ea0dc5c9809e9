//! Results go to standard output, messages to standard error.

use election_core::internals::text::is_plain;
use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    os::fd::AsFd as _,
    process,
};

use anstream::eprintln;
use clap::ValueEnum;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use owo_colors::OwoColorize as _;
use serde::Serialize;
use serde_json::json;

pub(super) use super::table::Accent;
use super::table::{self, Column};
use crate::{
    error::{Error, ExitCode},
    logging,
    mask::mask,
};

/// Format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Pretty,
    /// For programs.
    Json,
}

/// Prints an error: as text on standard error, and with JSON output also on standard output, unless the result is there.
pub(super) fn print_error(error: &Error, how: Output) {
    let message = error.to_string();
    let message = mask(&message);
    logging::print(&format!("{} {}", "error:".red().bold(), harmless(&message)));
    if how == Output::Json && !matches!(error, Error::Reported(..)) {
        // Standard output itself may be broken.
        let _ = print_json(&json!({ "error": { "code": error.exit_code() as u8, "message": message } }));
    }
}

/// Prints a warning to standard error.
pub(super) fn print_warning(message: impl Display) {
    eprintln!("{} {}", "warning:".yellow().bold(), harmless(&message.to_string()));
}

/// Prints progress to standard error.
pub(super) fn print_progress(message: impl Display) {
    eprintln!("{}", harmless(&message.to_string()));
}

/// Prints a result for programs: one JSON object on one line.
pub(super) fn print_json(result: &impl Serialize) -> Result<(), Error> {
    let line =
        serde_json::to_string(result).map_err(|e| Error::Internal(format!("can't write JSON: {e}")))?;
    print_line(line)
}

/// The text with escapes for what is no text, except for ends of lines, tabs and colours, which are this program's: texts of
/// records have none. It must not control the terminal.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| is_plain(c) || c == '\n') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for (at, character) in text.char_indices() {
        let is_kept = match character {
            '\n' | '\t' => true,
            '\x1b' => is_colour(&text[at..]),
            other => is_plain(other),
        };
        if is_kept {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// Whether this begins with a sequence that sets a colour, such as `ESC [ 1 ; 31 m`.
fn is_colour(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("\x1b[") else { return false };
    rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
}

/// Writes a line of a result.
pub(super) fn write_line(line: impl Display) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush())
}

/// Whether standard output is a pipe that no program reads any more.
pub(super) fn is_unread() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let is_ready = poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    is_ready && polled[0].revents().is_some_and(|is| is.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

/// Prints a line of a result for people.
pub(super) fn print(line: impl Display) -> Result<(), Error> {
    print_line(harmless(&line.to_string()))
}

/// Prints a line of a result. A closed pipe ends the program with exit code 0.
fn print_line(line: impl Display) -> Result<(), Error> {
    match write_line(line) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(ExitCode::Done as i32),
        Err(error) => Err(Error::Failed(format!("can't write to standard output: {error}"))),
    }
}

/// Rows under a heading, in columns that fit the terminal; elsewhere one line for each, unless `COLUMNS` is set.
pub(super) fn table(columns: &[Column], rows: &[(Vec<String>, Accent)]) -> String {
    table::table(columns, rows, size().0)
}

/// Prints a result for people. On a terminal its lines are folded at words.
pub(super) fn print_text(text: &str) -> Result<(), Error> {
    print(if io::stdout().is_terminal() { table::fitted(text, size().0) } else { text.to_owned() })
}

/// Columns and lines: of the environment (`COLUMNS`), or of the terminal; elsewhere as many columns as it takes, and 24 lines.
pub(super) fn size() -> (usize, usize) {
    // The examples of the guide, wherever they are tested.
    if cfg!(test) {
        return (80, 24);
    }
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let (width, height) =
        terminal.map_or((usize::MAX, 24), |(width, height)| (width.0.into(), height.0.into()));
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    (given.filter(|columns| *columns > 0).unwrap_or(width), height)
}

/// A duration as text.
pub(super) fn span(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_can_not_control_the_terminal() {
        for (text, shown) in [
            ("plain\n\tü", "plain\n\tü"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\x1b[2J\r\u{9b}1m", "\\u{1b}[2J\\r\\u{9b}1m"),
            ("\u{202e}eno\u{2028}two", "\\u{202e}eno\\u{2028}two"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }
}
