//! `logs`: the last output of a job on this node.

use anstream::adapter::strip_str;
use clap::Args;
use election_core::text::shown;
use serde_json::json;

use super::output::{self, Output};
use crate::{
    config::{NodeConfig, Sources},
    error::Error,
    wall,
    worker::job::{KeptLine, KeptOutput},
};

#[derive(Debug, Args)]
pub(super) struct LogsArguments {
    /// The job.
    job: String,
    /// Number of lines.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 100)]
    lines: usize,
}

/// `logs`
pub(super) fn run(logs: &LogsArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let (id, state_dir, configured) = NodeConfig::load_local(sources)?;
    let job = logs.job.as_str();
    let last = KeptOutput::of(&state_dir, id.as_str()).last(job, logs.lines).map_err(|error| {
        Error::Failed(format!("can't read the output of job {job}: {error}; run this as the worker's user"))
    })?;
    let Some(last) = last else {
        if !configured.iter().any(|name| name == job) {
            return Err(Error::Usage(format!(
                "unknown job {job:?}: not configured on this node, and no output of it is kept; configured: {configured:?}"
            )));
        }
        let dir = state_dir.display();
        output::print_progress(format_args!(
            "no output of job {job} of {id} is kept in {dir}: it has not run there"
        ));
        return Ok(());
    };
    last.iter().try_for_each(|line| print(line, how))
}

fn print(kept: &KeptLine, how: Output) -> Result<(), Error> {
    let time = wall::exact_moment(kept.at_ms);
    let stream = kept.stream.map_or("worker", |stream| stream.as_str());
    match how {
        Output::Json => output::print_json(&json!({ "time": time, "stream": stream, "line": kept.line })),
        // Without colours, and with escapes: output of a job must not control the terminal.
        Output::Pretty => {
            output::print(format_args!("{time}  {stream:6}  {}", shown(&strip_str(&kept.line).to_string())))
        }
    }
}
