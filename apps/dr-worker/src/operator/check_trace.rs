//! `check-trace`: whether a deployment kept what is promised, by its history.

use std::path::PathBuf;

use robustness::{checker::Report, history::Files};

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
    /// Or a directory of which all log.* are read.
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
    /// Of the clock that the history was written by.
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 0)]
    ahead: u64,
}

pub(super) fn run(arguments: &CheckTraceArguments, how: Output) -> Result<(), Error> {
    let CheckTraceArguments { histories, logs, root, job, ahead } = arguments;
    let (histories, logs) = (histories.clone(), logs.clone());
    let files = Files { histories, logs, root: root.clone(), job: job.clone(), ahead: *ahead };
    let history = files.read().map_err(|error| Error::Usage(error.to_string()))?;
    let report = Report::of(&history);
    match how {
        Output::Pretty => output::print(report.text(&history).trim_end())?,
        Output::Json => output::print_json(&report.json(&history))?,
    }
    match report.held() {
        true => Ok(()),
        false => {
            let broken: Vec<_> = report.broken().collect();
            let message = format!("the history breaks a promise: {}", broken.join(", "));
            Err(Error::Reported(ExitCode::Failed, message))
        }
    }
}
