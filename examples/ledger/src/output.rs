//! Messages go to standard error, results to standard output.

use std::fmt::Arguments;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Writes one line to standard error.
///
/// Unlike `eprintln!` it does not fail if the reader has gone. A worker that is killed closes the other end of the
/// pipe, and the booking in progress must still end in order.
pub(crate) fn say(words: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{words}");
}

/// Prints a value to standard output as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::Internal(error.to_string()))?;
    print_line(&line)
}

/// Prints one line to standard output.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{line}")
        .map_err(|source| Failure::Write { path: "standard output".into(), source })
}
