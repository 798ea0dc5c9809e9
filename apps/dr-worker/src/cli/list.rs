use std::{
    io::{IsTerminal as _, stdout},
    time::Duration,
};

use election_core::{
    Reason, Skipped,
    operator::ReadError,
    record::{Outgoing, Status, Target},
};
use owo_colors::OwoColorize as _;

use super::{
    Output, control,
    election::Operator,
    output::{self, Accent},
};
use crate::{
    ask,
    config::Sources,
    error::Error,
    view::{Cluster, Leader, MemberRole, OpenRequest, ProblemRow, UnwellSite, hold_of},
    wall::unix_ms,
};

/// Between two looks of `--watch`.
const LOOK: Duration = Duration::from_millis(500);

/// `list`
#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Keep running, and print each change.
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(arguments: &ListArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = tokio::select! {
        result = show(&operator, arguments, how) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    operator.close().await;
    result
}

async fn show(operator: &Operator, arguments: &ListArguments, how: Output) -> Result<(), Error> {
    let mut last = None;
    loop {
        match read(operator, arguments.job.as_deref()).await {
            Ok(clusters) if last.as_ref() == Some(&clusters) => {}
            Ok(clusters) => {
                print(&clusters, how, arguments.watch)?;
                last = Some(clusters);
            }
            // Who watches wants to see it come back.
            Err(error) if arguments.watch => output::say_warning(error),
            Err(error) => return Err(error),
        }
        if !arguments.watch {
            let blank = last.iter().flatten().all(|c| c.is_blank() && !c.unreadable.is_empty());
            return if blank { Err(Error::Failed("nothing could be read".to_owned())) } else { Ok(()) };
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn read(operator: &Operator, job: Option<&str>) -> Result<Vec<Cluster>, Error> {
    let jobs = operator.jobs(job).await?;
    let observer = operator.observer().await?;
    let mut clusters = Vec::new();
    for job in jobs {
        let paths = operator.paths(&job)?;
        let snapshot = match observer.snapshot(&paths).await {
            Ok(snapshot) => snapshot,
            // One election that has just been removed must not hide the others.
            Err(ReadError::NoElection(path)) if !clusters.is_empty() => {
                output::say_warning(format_args!("there is no election at {path} any more"));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let skipped = ask::elector(&job, &snapshot).await;
        let problems =
            ProblemRow::read(&observer, &operator.config.zookeeper, &job, &paths, &snapshot).await?;
        let cluster = Cluster::new(operator.root(), &job, snapshot, unix_ms());
        clusters.push(Cluster { skipped, problems, ..cluster });
    }
    Ok(clusters)
}

fn print(clusters: &[Cluster], how: Output, watch: bool) -> Result<(), Error> {
    if how == Output::Json {
        return clusters.iter().try_for_each(output::print_json);
    }
    if watch && stdout().is_terminal() {
        output::print("\x1b[2J\x1b[H")?;
    }
    for (index, cluster) in clusters.iter().enumerate() {
        if index > 0 {
            output::print("")?;
        }
        for unreadable in &cluster.unreadable {
            output::say_warning(format_args!("{}: {}", unreadable.path, unreadable.why));
        }
        output::print(describe(cluster))?;
    }
    Ok(())
}

/// All that is worth knowing of an election.
fn describe(cluster: &Cluster) -> String {
    let mut lines = vec![headline(cluster)];
    let mut decisions: Vec<_> =
        cluster.slots.iter().map(|slot| format!("  {}: {}", slot.cause, slot.sentence)).collect();
    // The first decision is about all slots at once.
    decisions.dedup();
    lines.extend(decisions);
    // Where all is as it was decided there is nothing to say.
    let is_said = |skipped: &&Skipped| skipped.reason == Reason::Steady || skipped.is_hold();
    if let Some(skipped) = cluster.skipped.as_ref().filter(|skipped| !is_said(skipped)) {
        lines.push(format!("  not decided: {}", skipped.sentence));
    }
    if let Some(elected) = &cluster.elected {
        for exclusion in &elected.exclusions {
            lines.push(format!(
                "  {} is not elected until {}: {}",
                exclusion.member,
                crate::wall::moment(exclusion.until_ms),
                exclusion.reason
            ));
        }
    }
    if let Some(failures) = cluster.elected.as_ref().map(|elected| &elected.failures) {
        lines.extend(failures.iter().map(|failure| {
            format!(
                "  {} failed at {}: {}",
                failure.member,
                crate::wall::moment(failure.at_ms),
                failure.cause
            )
        }));
    }
    lines.extend(cluster.problems.iter().map(|problem| format!("  {problem}")));
    let several = cluster.slots.len() > 1;
    let described = cluster.members.iter().any(|member| !member.attributes.is_empty());
    let rows: Vec<_> = cluster
        .members
        .iter()
        .map(|member| {
            let accent = match member.role {
                _ if !member.health.is_fit() => Accent::Bad,
                MemberRole::Leader => Accent::Good,
                MemberRole::TakingOver | MemberRole::SteppingDown => Accent::Busy,
                MemberRole::Excluded => Accent::Bad,
                MemberRole::Standby => Accent::None,
            };
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let mut cells = vec![
                format!("{}{}", member.member, if member.elector { " *" } else { "" }),
                member.site.to_string(),
                member.role.to_string(),
                or_dash(member.term.map(|term| term.to_string())),
                member.health.to_string(),
                or_dash(member.next.map(|place| place.to_string())),
                or_dash(member.address.clone()),
                or_dash(member.http.clone()),
            ];
            if described {
                let all: Vec<_> =
                    member.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
                cells.push(or_dash((!all.is_empty()).then(|| all.join(" "))));
            }
            if several {
                cells.insert(3, or_dash(member.slot.map(|slot| slot.to_string())));
            }
            (cells, accent)
        })
        .collect();
    if rows.is_empty() {
        lines.push("  nobody takes part".to_owned());
    } else {
        let mut heading = vec!["MEMBER", "SITE", "ROLE", "TERM", "HEALTH", "NEXT", "ADDRESS", "HTTP"];
        if described {
            heading.push("ATTRIBUTES");
        }
        if several {
            heading.insert(3, "SLOT");
        }
        lines.push(output::table(&heading, &rows));
        lines.extend(footnote(cluster.recipe).map(|note| note.dimmed().to_string()));
    }
    let worth_showing =
        |request: &&OpenRequest| !request.outcome.is_final() || Some(*request) == cluster.requests.last();
    lines.extend(cluster.requests.iter().filter(worth_showing).map(request_line));
    lines.join("\n")
}

/// What the table leaves open.
fn footnote(recipe: &str) -> Option<&'static str> {
    match recipe {
        "elector" => Some("  * decides"),
        "single" => Some("  those who wait have no znode, so they are not shown"),
        _ => None,
    }
}

fn headline(cluster: &Cluster) -> String {
    let current_leader = |leader: &Option<Leader>| match leader {
        Some(leader) => {
            let status = match leader.status {
                Status::Ready => "leads",
                Status::Progress => "takes over",
            };
            let token = leader.fencing_token.map(|t| format!(", fencing token {t}")).unwrap_or_default();
            format!("{} ({}) {status}{token}", leader.member, leader.site)
        }
        None => "nobody leads".to_owned(),
    };
    let leader = match &cluster.slots[..] {
        [] | [_] => current_leader(&cluster.leader),
        slots => {
            let all =
                slots.iter().map(|slot| format!("slot {}: {}", slot.slot, current_leader(&slot.leader)));
            all.collect::<Vec<_>>().join("; ")
        }
    };
    let orders = control::words(cluster.mode, &cluster.drained, &cluster.preferred_site, &cluster.site_order);
    let failed = cluster.failed_sites.iter().map(|f| format!("site {} has failed ({})", f.site, f.why));
    let unwell = cluster.unwell_sites.iter().map(UnwellSite::words);
    let orders: String =
        orders.into_iter().chain(failed).chain(unwell).map(|order| format!(", {order}")).collect();
    let hold = cluster.skipped.as_ref().and_then(|skipped| hold_of(skipped, &cluster.election));
    let hold = hold.map(|hold| format!(", {hold}"));
    let recipe = match cluster.recipe {
        "elector" => String::new(),
        other => format!(", recipe {other}"),
    };
    let hold = hold.unwrap_or_default();
    format!("{}: {leader}{hold}, term {}{recipe}{orders}", cluster.election.bold(), cluster.term)
}

fn request_line(request: &OpenRequest) -> String {
    format!(
        "  request {}, {}{}{}: {}",
        request.id,
        request.kind.as_str(),
        outgoing(&request.from),
        target(&request.to),
        request.outcome
    )
}

/// ` from ...`, or nothing.
pub(super) fn outgoing(from: &Outgoing) -> String {
    match from {
        Outgoing::Only => String::new(),
        Outgoing::Member(member) => format!(" from {member}"),
        Outgoing::Slot(slot) => format!(" of slot {slot}"),
    }
}

/// ` to ...`, or nothing.
pub(super) fn target(to: &Target) -> String {
    match to {
        Target::Any => String::new(),
        Target::Member(member) => format!(" to {member}"),
        Target::Site(site) => format!(" to site {site}"),
    }
}
