//! Asks another version of this program a question, before this process becomes it.

use std::future::pending;
use std::time::Duration;

use job_guard::{Exit, OneShot};

use super::new_guards;

/// The longest answer: it has the files of a configuration.
const MOST: usize = 16 * 1024 * 1024;

/// Runs a command of another version of this program, and returns how it ended, its standard output and its standard error.
///
/// # Errors
/// The reason, as a sentence: it could not be executed, or did not end in time.
///
/// # Cancel safety
/// If the future is dropped, the guard kills the command soon after.
pub(crate) async fn ask_program(
    command: Vec<String>,
    timeout: Duration,
) -> Result<(Exit, String, String), String> {
    let finished = OneShot { command, timeout, hears: Some(MOST), ..OneShot::new("upgrade") }
        .run(&new_guards(), pending())
        .await;
    match (finished.exit, finished.timed_out) {
        (_, Some(after)) => Err(format!("it did not answer within {after:?}")),
        (Ok(exit), None) => {
            let text = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
            Ok((exit, text, finished.stderr))
        }
        (Err(reason), None) => Err(reason),
    }
}
