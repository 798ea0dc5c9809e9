//! Results go to standard output, messages to standard error.

use std::{
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

/// Prints an error: as text on standard error, and with JSON output also on standard output, instead of the result.
pub(super) fn print_error(error: &Error, how: Output) {
    let message = error.to_string();
    let message = mask(&message);
    logging::print(&format!("{} {message}", "error:".red().bold()));
    if how == Output::Json {
        // Standard output itself may be broken.
        let _ = print_json(&json!({ "error": { "code": error.exit_code() as u8, "message": message } }));
    }
}

/// Prints a warning to standard error.
pub(super) fn print_warning(message: impl Display) {
    eprintln!("{} {message}", "warning:".yellow().bold());
}

/// Prints progress to standard error.
pub(super) fn print_progress(message: impl Display) {
    eprintln!("{message}");
}

/// Prints a result for programs: one JSON object on one line.
pub(super) fn print_json(result: &impl Serialize) -> Result<(), Error> {
    let line =
        serde_json::to_string(result).map_err(|e| Error::Internal(format!("can't write JSON: {e}")))?;
    print(line)
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

/// Prints a line of a result. A closed pipe ends the program with exit code 0.
pub(super) fn print(line: impl Display) -> Result<(), Error> {
    match write_line(line) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(ExitCode::Done as i32),
        Err(error) => Err(Error::Failed(format!("can't write to standard output: {error}"))),
    }
}

/// Rows under a heading, in columns that fit the terminal.
pub(super) fn table(columns: &[Column], rows: &[(Vec<String>, Accent)]) -> String {
    table::table(columns, rows, size().0)
}

/// Prints a result for people. On a terminal its lines are folded at words.
pub(super) fn print_text(text: &str) -> Result<(), Error> {
    print(if io::stdout().is_terminal() { table::fitted(text, size().0) } else { text.to_owned() })
}

/// Columns and lines: of the environment (`COLUMNS`), of the terminal, or 80 and 24.
pub(super) fn size() -> (usize, usize) {
    // The examples of the guide, wherever they are tested.
    if cfg!(test) {
        return (80, 24);
    }
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let (width, height) = terminal.map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()));
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    (given.filter(|columns| *columns > 0).unwrap_or(width), height)
}

/// A duration as text.
pub(super) fn span(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}
