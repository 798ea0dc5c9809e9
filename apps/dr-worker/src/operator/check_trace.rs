//! `check-trace`: whether a deployment kept what is promised, by its history.

use std::{path::PathBuf, time::Duration};

use robustness::{
    checker::{CHECKS, Report},
    history::Files,
};

use super::output::{self, Output};
use crate::error::{Error, ExitCode};

/// `check-trace`
#[derive(Debug, clap::Args)]
pub(super) struct CheckTraceArguments {
    /// Files of JSON lines, or directories of *.jsonl.
    #[arg(value_name = "HISTORY", required = true)]
    histories: Vec<PathBuf>,
    /// Transaction log of a server; repeatable.
    ///
    /// Or a directory of which all log.* are read. Give those of all servers: one that was away lacks what it has missed.
    #[arg(long = "txn-log", value_name = "PATH")]
    logs: Vec<PathBuf>,
    /// Parent znode in these logs.
    #[arg(long, value_name = "ROOT", default_value = "/dr")]
    root: String,
    /// Job in these logs.
    #[arg(long, value_name = "JOB", default_value = "orders")]
    job: String,
    /// How far the servers' clock is ahead.
    ///
    /// Of the clock that the history was written by; negative if it is behind. Default: as the first line of the history
    /// says, else 0.
    #[arg(long, value_name = "NANOSECONDS", allow_negative_numbers = true)]
    ahead: Option<i64>,
    /// Tolerance for the servers' times.
    ///
    /// By how much they may differ from those of the history. The default suits one machine. For several, give the greatest
    /// difference of their clocks.
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = humantime::parse_duration)]
    tolerance: Duration,
}

pub(super) fn run(arguments: &CheckTraceArguments, how: Output) -> Result<(), Error> {
    let CheckTraceArguments { histories, logs, root, job, ahead, tolerance } = arguments;
    let files = Files {
        histories: histories.clone(),
        logs: logs.clone(),
        root: root.clone(),
        job: job.clone(),
        ahead: *ahead,
        tolerance: u64::try_from(tolerance.as_nanos()).unwrap_or(u64::MAX),
    };
    let history = files.read().map_err(|error| Error::Usage(error.to_string()))?;
    let report = Report::of(&history);
    if report.idle().count() == CHECKS.len() {
        return Err(Error::Usage("the history has no line that a check examines".to_owned()));
    }
    match how {
        Output::Pretty => output::print(report.text(&history).trim_end())?,
        Output::Json => output::print_json(&report.json(&history))?,
    }
    let broken: Vec<_> = report.broken().collect();
    if broken.is_empty() {
        return Ok(());
    }
    let message = format!("the history breaks a promise: {}", broken.join(", "));
    Err(Error::Reported(ExitCode::Failed, message))
}
