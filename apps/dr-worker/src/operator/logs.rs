//! `logs`: the last output of a job on this node.

use std::{io, thread, time::Duration};

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
    /// The job [default: the only one of this node].
    job: Option<String>,
    /// Number of lines.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Keep running, and print each line that is added.
    ///
    /// Lines are missing if a job writes more than 128 KiB within 200 ms.
    #[arg(short = 'f', long)]
    follow: bool,
}

/// The pause between two looks at the files.
const LOOK: Duration = Duration::from_millis(200);

/// `logs`
pub(super) fn run(logs: &LogsArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let (id, state_dir, configured) = NodeConfig::load_local(sources)?;
    let job = match (&logs.job, &configured[..]) {
        (Some(job), _) | (None, [job]) => job.as_str(),
        (None, []) => return Err(Error::Usage("no job is configured on this node; name one".to_owned())),
        (None, several) => {
            return Err(Error::Usage(format!("there are several jobs; name one: {}", several.join(", "))));
        }
    };
    let kept = KeptOutput::of(&state_dir, id.as_str());
    let unreadable = |error: io::Error| {
        Error::Failed(format!("can't read the output of job {job}: {error}; run this as the worker's user"))
    };
    if logs.follow && configured.iter().any(|name| name == job) {
        let mut followed = kept.follow(job).map_err(unreadable)?;
        let mut lines = followed.more().map_err(unreadable)?;
        lines.drain(..lines.len().saturating_sub(logs.lines));
        loop {
            lines.iter().try_for_each(|line| print(line, how))?;
            if output::is_unread() {
                return Ok(());
            }
            thread::sleep(LOOK);
            lines = followed.more().map_err(unreadable)?;
        }
    }
    let last = kept.last(job, logs.lines).map_err(unreadable)?;
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
