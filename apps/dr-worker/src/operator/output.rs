//! Results go to standard output, messages to standard error.

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _},
    process,
};

use anstream::eprintln;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;
use serde::Serialize;

use serde_json::json;

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

/// Prints a line of a result. A closed pipe ends the program with exit code 0.
pub(super) fn print(line: impl Display) -> Result<(), Error> {
    let mut stdout = anstream::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(ExitCode::Done as i32),
        Err(error) => Err(Error::Failed(format!("can't write to standard output: {error}"))),
    }
}

/// The accent of a line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accent {
    None,
    Good,
    Busy,
    Bad,
}

/// Rows under a heading, in columns.
pub(super) fn table(heading: &[&str], rows: &[(Vec<String>, Accent)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading);
    for (row, _) in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    let accents = std::iter::once(Accent::None).chain(rows.iter().map(|(_, accent)| *accent));
    let lines = text.lines().zip(accents).enumerate().map(|(index, (line, accent))| {
        let line = line.trim_end();
        match accent {
            _ if index == 0 => line.bold().to_string(),
            Accent::None => line.to_owned(),
            Accent::Good => line.green().to_string(),
            Accent::Busy => line.yellow().to_string(),
            Accent::Bad => line.red().to_string(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A duration as text.
pub(super) fn span(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            (vec!["east-1".to_owned(), "leader".to_owned()], Accent::None),
            (vec!["w".to_owned(), "standby".to_owned()], Accent::None),
        ];
        let text = table(&["MEMBER", "ROLE"], &rows);
        let column = |line: &str, word: &str| line.find(word).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(column(lines[1], "leader"), column(lines[2], "standby"), "{text}");
    }
}
