//! `explain`: why the current leaders lead.

use election_admin::{ReadError, Snapshot};
use election_core::internals::{
    explain::{Bound, Obstacle},
    record::{Cause, Mode, Status},
};
use owo_colors::OwoColorize as _;

use super::{
    global::AllJobs,
    output::{self, Accent, Output},
    table::Column,
};
use crate::{
    advice,
    commands::Operator,
    config::Sources,
    error::Error,
    view::{Candidate, Explained, ExplainedSlot, diagnose, statuses},
    wall::unix_ms,
};

/// The columns of candidates.
const COLUMNS: [Column; 5] = [
    Column::key("RANK"),
    Column::key("MEMBER"),
    Column::key("SITE"),
    Column::key("AHEAD BY"),
    Column::detail("WHY", 0),
];

/// `explain`
pub(super) async fn run(arguments: &AllJobs, sources: &Sources, how: Output) -> Result<(), Error> {
    let all =
        Operator::with(sources, async |operator| read(operator, arguments.job.as_deref()).await).await?;
    for (index, explained) in all.iter().enumerate() {
        warn_of(explained);
        match how {
            Output::Json => output::print_json(explained)?,
            Output::Pretty => {
                if index > 0 {
                    output::print("")?;
                }
                output::print_text(&describe(explained))?;
            }
        }
    }
    if all.iter().all(|e| e.slots.is_empty()) {
        return Err(Error::Failed("nothing could be read".to_owned()));
    }
    Ok(())
}

fn warn_of(explained: &Explained) {
    for unreadable in &explained.unreadable {
        output::print_warning(format_args!("{}: {}", unreadable.path, unreadable.why));
    }
    if explained.other_policy {
        output::print_warning(format_args!(
            "{}: this configuration has another policy than the elector; give \
             the workers' configuration with --config",
            explained.election
        ));
    }
    if explained.other_line {
        output::print_warning(format_args!(
            "{}: the line of succession in ZooKeeper differs from that of this configuration; give the workers' \
             configuration with --config, unless it has just changed",
            explained.election
        ));
    }
}

async fn read(operator: &Operator, job: Option<&str>) -> Result<Vec<Explained>, Error> {
    let mut all = Vec::new();
    for (job, snapshot) in snapshots(operator, job).await? {
        let mut explained = Explained::new(&job, &snapshot, &operator.config, unix_ms());
        explained.skipped = statuses::skipped(operator.workers(), &job, &snapshot).await;
        let observer = operator.observer().await?;
        explained.problems =
            diagnose(&observer, &operator.config.zookeeper, &job, &operator.paths(&job)?, &snapshot).await?;
        all.push(explained);
    }
    Ok(all)
}

/// Snapshots of the named job, or of all jobs.
pub(super) async fn snapshots(
    operator: &Operator,
    job: Option<&str>,
) -> Result<Vec<(String, Snapshot)>, Error> {
    let jobs = match job {
        Some(job) => vec![operator.one(Some(job)).await?],
        None => operator.elections().await?,
    };
    let observer = operator.observer().await?;
    let mut found = Vec::new();
    for job in jobs {
        match observer.snapshot(&operator.paths(&job)?).await {
            Ok(snapshot) => found.push((job, snapshot)),
            // A removed election must not hide the others.
            Err(ReadError::NoElection(path)) if !found.is_empty() => {
                output::print_warning(format_args!("the election at {path} was deleted"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The explanation as text.
pub(super) fn describe(explained: &Explained) -> String {
    let decides = match (&explained.elector, explained.recipe) {
        (Some(elector), _) => format!("{elector} decides"),
        (None, "elector") => "no elector".to_owned(),
        (None, recipe) => format!("recipe {recipe}"),
    };
    let mode = match explained.mode {
        Mode::Auto => String::new(),
        mode => format!(", mode {mode}"),
    };
    let mut lines = vec![format!("{}: {decides}{mode}", explained.election.bold())];
    let next = if explained.next.acts { "about to decide" } else { "now" };
    lines.push(format!("  {next}: {}", explained.next.sentence));
    if let Some(skipped) = explained.skipped.as_ref().filter(|s| s.sentence != explained.next.sentence) {
        let why = advice::beside(skipped.reason, &skipped.sentence, &explained.election);
        lines.push(format!("  the elector reports: {why}"));
    }
    lines.extend(explained.other_jobs.iter().map(|sentence| format!("  {sentence}")));
    let several = explained.slots.len() > 1;
    for slot in &explained.slots {
        if several {
            lines.push(format!("  slot {}", slot.slot));
        }
        lines.extend(slot.order_lines().into_iter().map(|line| format!("  {line}")));
        lines.extend(describe_slot(&explained.election, slot));
    }
    lines.extend(explained.problems.iter().map(|problem| format!("  {problem}")));
    lines.join("\n")
}

/// A slot as text, for `explain` and `simulate`.
pub(super) fn describe_slot(job: &str, slot: &ExplainedSlot) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(leader) = &slot.leader {
        let does = match leader.status {
            Status::Ready => "leads",
            Status::Progress => "takes over",
        };
        let stays = if slot.stays { ", and stays until the next change of leader, by `stay`" } else { "" };
        lines.push(format!("  leader: {} ({}) {does}{stays}", leader.member, leader.site));
    }
    if let Some(cause) = slot.question {
        let leader = slot.named.as_ref().map_or_else(|| "no member".to_owned(), ToString::to_string);
        lines.push(format!("  question: {} ({cause})", question(cause, &leader)));
    }
    if slot.candidates.is_empty() {
        lines.push("  no members".to_owned());
    } else {
        let rows: Vec<_> = slot.candidates.iter().map(row).collect();
        lines.push(output::table(&COLUMNS, &rows));
    }
    if let Some(proposal) = &slot.proposal {
        let when = if slot.obstacles.is_empty() { "at once" } else { "if nothing blocked it" };
        lines.push(format!("  would be decided {when}: {}", proposal.sentence));
    }
    lines.extend(slot.obstacles.iter().map(|obstacle| in_the_way(job, obstacle)));
    lines
}

/// An obstacle as text, with the time when it ends.
pub(super) fn in_the_way(job: &str, obstacle: &Obstacle) -> String {
    let until = obstacle.until_ms.map(crate::wall::moment);
    let until = match (until, obstacle.bound) {
        (None, _) => String::new(),
        (Some(at), Bound::Earliest) => format!(", until {at} at the earliest"),
        (Some(at), Bound::Latest) => format!(", until {at} at the latest"),
        (Some(at), Bound::Exactly) => format!(", until {at}"),
    };
    let why = advice::beside(obstacle.reason, &obstacle.sentence, job);
    format!("  in the way: {}: {why}{until}", obstacle.reason)
}

fn row(candidate: &Candidate) -> (Vec<String>, Accent) {
    let why = match &candidate.refused_by {
        Some(stage) => format!("{stage}: {}", candidate.reasons.join(", ")),
        None => candidate.reasons.join(", "),
    };
    let cells = vec![
        candidate.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        candidate.member.to_string(),
        candidate.site.to_string(),
        candidate.ahead_of.as_ref().map_or_else(String::new, |ahead| ahead.stage.clone()),
        why,
    ];
    let accent = match candidate.rank {
        Some(1) => Accent::Good,
        Some(_) => Accent::None,
        None => Accent::Bad,
    };
    (cells, accent)
}

/// The question as text.
fn question(cause: Cause, leader: &str) -> String {
    match cause {
        Cause::Startup => "who leads first?".to_owned(),
        Cause::MemberJoined => "who leads, as there is no leader?".to_owned(),
        Cause::BetterCandidate => format!("is another member better than {leader}?"),
        Cause::Switchover | Cause::Failover => format!("who replaces {leader}, on an operator's request?"),
        _ => format!("who replaces {leader}?"),
    }
}
