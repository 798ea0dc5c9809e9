//! `logs`: the last output of a job on this node.

use std::{io, thread, time::Duration};

use anstream::adapter::strip_str;
use clap::Args;
use election_core::{MemberId, text::shown};
use serde_json::json;

use super::{
    election::Operator,
    global::block_on,
    output::{self, Output},
};
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

/// How long the question who leads may take. The output of this node is shown without ZooKeeper, too.
const QUESTION: Duration = Duration::from_secs(3);

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
        if lines.is_empty() {
            show_leader(job, &id, sources);
        }
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
        show_leader(job, &id, sources);
        return Ok(());
    };
    last.iter().try_for_each(|line| print(line, how))?;
    show_leader(job, &id, sources);
    Ok(())
}

/// Says which other member leads, and where its output is, if ZooKeeper answers soon.
fn show_leader(job: &str, me: &MemberId, sources: &Sources) {
    let leaders = async {
        let operator = Operator::connect(sources).await?;
        let snapshot = operator.observer().await?.snapshot(&operator.paths(job)?).await?;
        operator.close().await;
        let others = snapshot.leader_znodes.iter().flatten().map(|znode| &znode.record.member);
        let others = others.filter(|member| *member != me).map(|leader| {
            let record = snapshot.members.iter().find(|member| member.member == *leader);
            let address = record.and_then(|record| record.address.as_ref());
            let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
            format!("{leader} leads {job}: its output is on that node{address}")
        });
        others.for_each(output::print_progress);
        Ok::<_, Error>(())
    };
    // What is asked for has been printed.
    let _ = block_on(async { tokio::time::timeout(QUESTION, leaders).await.unwrap_or(Ok(())) });
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
