//! `logs`: the last output of a job on this node, or on another one through its worker.

use std::{io, thread, time::Duration};

use anstream::adapter::strip_str;
use clap::Args;
use election_admin::Snapshot;
use election_core::{
    config::MemberId,
    internals::{record::MemberRecord, text::shown},
};
use job_guard::KeptOutput;
use serde::Deserialize;

use super::{
    global::block_on,
    output::{self, Output},
};
use crate::{
    commands::{Operator, which_job},
    config::{NodeConfig, Sources, process_name},
    error::Error,
    typed::Typed,
    view::is_absent,
    wall::unix_ms,
    worker::job::{ShownLine, WhoseOutput},
};

#[derive(Debug, Args)]
pub(super) struct LogsArguments {
    /// Job [default: the only one of this node].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show the output of the job's standby.
    #[arg(long)]
    standby: bool,
    /// Show only this process of the job [default: all].
    #[arg(long, value_name = "NAME", value_parser = process_name, conflicts_with = "standby")]
    process: Option<String>,
    /// Number of lines.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = ShownLine::USUAL)]
    lines: usize,
    /// Show the output on the node of this member.
    ///
    /// It asks that member's worker by HTTP, over TLS with the certificate of `http.tls`, which that worker must admit: its
    /// `http.access.status` or `http.access.control` is `certificate`.
    #[arg(long, value_name = "MEMBER", conflicts_with = "follow")]
    node: Option<MemberId>,
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
    if let Some(member) = &logs.node {
        return block_on(show_of(logs, member, sources, how));
    }
    let (id, state_dir, configured) = NodeConfig::load_local(sources)?;
    let job = match (&logs.job, &configured[..]) {
        (Some(job), _) | (None, [job]) => job.as_str(),
        (None, []) => {
            return Err(Error::Usage("no job is configured on this node; name one with --job".to_owned()));
        }
        (None, several) => return Err(which_job("--job JOB", several)),
    };
    let kept = KeptOutput::of(&state_dir, id.as_str());
    let unreadable = |error: io::Error| {
        Error::Failed(format!("can't read the output of job {job}: {error}; run this as the worker's user"))
    };
    let whose = WhoseOutput::of(logs.standby, logs.process.as_deref());
    if logs.follow && configured.iter().any(|name| name == job) {
        let mut followed = whose.follow(&kept, job).map_err(unreadable)?;
        let mut lines = followed.more().map_err(unreadable)?;
        if lines.is_empty() {
            show_leader(logs, job, &id, sources, None);
        }
        lines.drain(..lines.len().saturating_sub(logs.lines));
        loop {
            lines.into_iter().try_for_each(|line| print(line, how))?;
            if output::is_unread() {
                return Ok(());
            }
            thread::sleep(LOOK);
            lines = followed.more().map_err(unreadable)?;
        }
    }
    let last = whose.last(&kept, job, logs.lines).map_err(unreadable)?;
    let Some(last) = last else {
        if !configured.iter().any(|name| name == job) {
            return Err(Error::Usage(format!(
                "unknown job {job:?}: not configured on this node, and no output of it is kept; configured: {configured:?}"
            )));
        }
        let dir = state_dir.display();
        let of = logs.process.as_ref().map(|process| format!("process {process} of ")).unwrap_or_default();
        output::print_progress(format_args!(
            "no output of {of}job {job} of {id} is kept in {dir}: it has not run there"
        ));
        show_leader(logs, job, &id, sources, Some(how));
        return Ok(());
    };
    last.into_iter().try_for_each(|line| print(line, how))?;
    if !logs.standby {
        show_leader(logs, job, &id, sources, None);
    }
    Ok(())
}

/// Says which other member leads, and where its output is, if ZooKeeper answers soon. With a format, shows it.
fn show_leader(logs: &LogsArguments, job: &str, me: &MemberId, sources: &Sources, how: Option<Output>) {
    let read = async {
        let operator = Operator::connect(sources).await?;
        let snapshot = operator.observer().await?.snapshot(&operator.paths(job)?).await?;
        let leaders = snapshot.leader_znodes.iter().flatten().map(|znode| &znode.record.member);
        for leader in leaders.filter(|member| *member != me) {
            let record = snapshot.members.iter().find(|member| member.member == *leader);
            let address = record.and_then(|record| record.address.as_ref());
            let address = address.map(|address| format!(" ({address})")).unwrap_or_default();
            let verb = Typed::verb("logs").job(job).arg("--node").arg(leader);
            output::print_progress(format_args!(
                "{leader} leads {job}: its output is on that node{address}; `{verb}` shows it"
            ));
            if let (Some(how), Some(record)) = (how, record) {
                let lines = fetch(&operator, record, job, logs).await?;
                lines.into_iter().try_for_each(|line| print(line, how))?;
            }
        }
        operator.close().await;
        Ok::<_, Error>(())
    };
    let result = block_on(async { tokio::time::timeout(QUESTION, read).await.unwrap_or(Ok(())) });
    // What is on this node has been printed.
    if let (Err(error), Some(_)) = (result, how) {
        output::print_warning(error);
    }
}

/// `--node`
async fn show_of(
    logs: &LogsArguments,
    member: &MemberId,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let lines = Operator::with(sources, async |operator| {
        let job = operator.one(logs.job.as_deref()).await?;
        let snapshot = operator.observer().await?.snapshot(&operator.paths(&job)?).await?;
        fetch(operator, record_of(member, &job, &snapshot)?, &job, logs).await
    });
    lines.await?.into_iter().try_for_each(|line| print(line, how))
}

fn record_of<'a>(member: &MemberId, job: &str, snapshot: &'a Snapshot) -> Result<&'a MemberRecord, Error> {
    if let Some(record) = snapshot.members.iter().find(|known| known.member == *member) {
        return Ok(record);
    }
    let members: Vec<_> = snapshot.members.iter().map(|member| member.member.as_str()).collect();
    let unknown = || Error::Usage(format!("{job}: unknown member {member}; members: {}", members.join(", ")));
    Err(is_absent(member, snapshot, unix_ms())
        .map_or_else(unknown, |absent| Error::NotNow(format!("{job}: {absent}"))))
}

/// The answer of `/logs`.
#[derive(Deserialize)]
struct LogsAnswer {
    member: MemberId,
    lines: Vec<ShownLine>,
}

/// The last output of a job on the node of this member, by its worker.
async fn fetch(
    operator: &Operator,
    record: &MemberRecord,
    job: &str,
    logs: &LogsArguments,
) -> Result<Vec<ShownLine>, Error> {
    let member = &record.member;
    let failed = |why: &str| Error::Failed(format!("the output of {job} on {member} can't be read: {why}"));
    let url = record.http.as_deref().ok_or_else(|| failed("its worker has no HTTP endpoints"))?;
    let workers = operator.workers().ok_or_else(|| failed("http.tls can't be used here"))?;
    let standby = if logs.standby { "&standby=true" } else { "" };
    let process = logs.process.as_ref().map(|process| format!("&process={process}")).unwrap_or_default();
    let endpoint = format!("{url}/logs?job={job}&lines={}{standby}{process}", logs.lines);
    let asked = workers.read(&endpoint, ShownLine::MOST);
    let refused = format!("no answer from {url}/logs, or its http.access admits no certificate of this node");
    let body = tokio::time::timeout(QUESTION, asked).await.ok().flatten().ok_or_else(|| failed(&refused))?;
    let answer: LogsAnswer = serde_json::from_slice(&body).map_err(|error| failed(&error.to_string()))?;
    if answer.member != *member {
        return Err(failed(&format!("{} answers at {url}", answer.member)));
    }
    Ok(answer.lines)
}

/// Without colours, and with escapes: output of a job must not control the terminal.
fn print(line: ShownLine, how: Output) -> Result<(), Error> {
    match how {
        Output::Json => output::print_json(&line),
        Output::Pretty => {
            let ShownLine { time, stream, process, line } = line;
            let process = process.map(|process| format!("{}  ", shown(&process))).unwrap_or_default();
            output::print(format_args!(
                "{}  {:6}  {process}{}",
                shown(&time),
                shown(&stream),
                shown(&strip_str(&line).to_string())
            ))
        }
    }
}
