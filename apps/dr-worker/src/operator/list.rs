use std::time::Duration;

use election_admin::{Observer, ReadError};
use election_core::{
    internals::record::{Current, OrderedBy, Status},
    status::{Reason, Skipped},
};
use futures_util::{StreamExt as _, stream};
use owo_colors::OwoColorize as _;

use super::{
    emergency::Local,
    output::{self, Accent, Output},
    screen::Screen,
    table::{self, Column},
};
use crate::{
    advice,
    commands::{
        Operator,
        moves::{outgoing, target},
        standing::describe_orders,
    },
    config::Sources,
    error::Error,
    view::{
        Cluster, Member, MemberRole, OpenRequest, UnwellSite, absence, diagnose, hold_of,
        statuses::WorkerStatuses,
    },
    wall::{moment, unix_ms},
    znodes::STANDBY_ATTRIBUTE,
};

/// The pause between two reads of `--watch`.
const LOOK: Duration = Duration::from_millis(500);

/// How many elections are read at a time.
const READ_AT_ONCE: usize = 64;

/// `list`
#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// Job [default: all].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Keep running, and show each change.
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(arguments: &ListArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let local = Local::of(sources);
    let operator = Operator::connect(sources).await.inspect_err(|_| local.warn())?;
    let result = tokio::select! {
        result = show(&operator, arguments, &local, how) => result,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    operator.close().await;
    result
}

async fn show(
    operator: &Operator,
    arguments: &ListArguments,
    local: &Local,
    how: Output,
) -> Result<(), Error> {
    if let (true, Output::Pretty, Some(screen)) = (arguments.watch, how, Screen::new()) {
        return redraw(operator, arguments, local, screen).await;
    }
    let (mut last, mut trouble) = (None, None::<String>);
    loop {
        let result = read(operator, local, arguments.job.as_deref()).await;
        if result.is_ok() {
            trouble = None;
        }
        match result {
            Ok(clusters) if last.as_ref() == Some(&clusters) => {}
            Ok(clusters) => {
                // Without a terminal a table follows the last one.
                if last.is_some() && how == Output::Pretty {
                    output::print("")?;
                }
                print(&clusters, how)?;
                last = Some(clusters);
            }
            // `--watch` continues until it works again, and reports each trouble once.
            Err(error) if arguments.watch => {
                let message = error.to_string();
                if trouble.replace(message.clone()).as_ref() != Some(&message) {
                    output::print_warning(message);
                }
            }
            Err(error) => return Err(error),
        }
        if !arguments.watch {
            let blank = last.iter().flatten().all(|c| c.is_blank() && !c.unreadable.is_empty());
            return if blank { Err(Error::Failed("nothing could be read".to_owned())) } else { Ok(()) };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Shows the present state on a terminal, with the time, until this command is ended.
async fn redraw(
    operator: &Operator,
    arguments: &ListArguments,
    local: &Local,
    mut screen: Screen,
) -> Result<(), Error> {
    let mut shown = String::new();
    loop {
        // An unanswered read must not stop the clock.
        let reading = read(operator, local, arguments.job.as_deref());
        tokio::pin!(reading);
        let since = tokio::time::Instant::now();
        let result = loop {
            tokio::select! {
                result = &mut reading => break result,
                () = tokio::time::sleep(LOOK) => {
                    let waits = format!("no answer from ZooKeeper for {} s", since.elapsed().as_secs());
                    screen.draw(&page(&waits, &shown))?;
                }
            }
        };
        let trouble = match result {
            Ok(clusters) => {
                let unreadable = |c: &Cluster| -> String {
                    c.unreadable.iter().map(|u| format!("\n  {}: {}", u.path, u.why)).collect()
                };
                let all: Vec<_> = clusters.iter().map(|c| describe(c) + &unreadable(c)).collect();
                shown = all.join("\n\n");
                String::new()
            }
            Err(error) => error.to_string(),
        };
        screen.draw(&page(&trouble, &shown))?;
        tokio::time::sleep(LOOK).await;
    }
}

/// What a terminal shows: the time, what is wrong, and the elections.
fn page(trouble: &str, shown: &str) -> String {
    let now = moment(unix_ms());
    let head = match trouble {
        "" => now.dimmed().to_string(),
        trouble => format!("{}  {}", now.dimmed(), trouble.red()),
    };
    table::fitted(&format!("{head}\n{shown}"), output::size().0)
}

async fn read(operator: &Operator, local: &Local, job: Option<&str>) -> Result<Vec<Cluster>, Error> {
    let jobs = operator.jobs(job).await?;
    let observer = operator.observer().await?;
    let statuses = WorkerStatuses::new(operator.workers());
    let reads = jobs.iter().map(|job| read_one(operator, local, &observer, &statuses, job));
    let reads: Vec<_> = stream::iter(reads).buffered(READ_AT_ONCE).collect().await;
    let (mut clusters, mut gone) = (Vec::new(), None);
    for read in reads {
        match read? {
            Ok(cluster) => clusters.push(cluster),
            Err(path) => gone = Some(path),
        }
    }
    match gone {
        Some(path) if clusters.is_empty() => Err(ReadError::NoElection(path).into()),
        // A removed election must not hide the others.
        Some(path) => {
            output::print_warning(format_args!("the election at {path} was deleted"));
            Ok(clusters)
        }
        None => Ok(clusters),
    }
}

/// One election; its path if there is none any more.
async fn read_one(
    operator: &Operator,
    local: &Local,
    observer: &Observer,
    statuses: &WorkerStatuses,
    job: &str,
) -> Result<Result<Cluster, String>, Error> {
    let paths = operator.paths(job)?;
    let snapshot = match observer.snapshot(&paths).await {
        Err(ReadError::NoElection(path)) => return Ok(Err(path)),
        snapshot => snapshot?,
    };
    let (skipped, planned_stops, standbys, processes, problems, of_workers) = tokio::join!(
        statuses.skipped(job, &snapshot),
        statuses.planned_stops(job, &snapshot),
        statuses.standbys(job, &snapshot),
        statuses.processes(job, &snapshot),
        diagnose(observer, &operator.config.zookeeper, job, &paths, &snapshot),
        statuses.problems(&snapshot)
    );
    let problems = problems?.into_iter().chain(of_workers).chain(local.problems(&paths)).collect();
    let cluster = Cluster::new(operator.root(), job, snapshot, unix_ms());
    Ok(Ok(Cluster { skipped, planned_stops, standbys, processes, problems, ..cluster }))
}

fn print(clusters: &[Cluster], how: Output) -> Result<(), Error> {
    if how == Output::Json {
        return clusters.iter().try_for_each(output::print_json);
    }
    for (index, cluster) in clusters.iter().enumerate() {
        if index > 0 {
            output::print("")?;
        }
        for unreadable in &cluster.unreadable {
            output::print_warning(format_args!("{}: {}", unreadable.path, unreadable.why));
        }
        output::print_text(&describe(cluster))?;
    }
    Ok(())
}

/// An election as text.
fn describe(cluster: &Cluster) -> String {
    let mut lines = vec![headline(cluster)];
    lines.extend(in_force(cluster));
    if cluster.members.is_empty() {
        lines.push("  no members".to_owned());
    }
    if !(cluster.members.is_empty() && cluster.absent.is_empty()) {
        lines.push(members(cluster));
        lines.extend(footnote(cluster.recipe).map(|note| note.dimmed().to_string()));
    }
    let worth_showing =
        |request: &&OpenRequest| !request.outcome.is_final() || Some(*request) == cluster.requests.last();
    lines.extend(cluster.requests.iter().filter(worth_showing).map(request_line));
    lines.join("\n")
}

/// What was decided and ordered, and what is wrong.
fn in_force(cluster: &Cluster) -> Vec<String> {
    let mut lines: Vec<_> = cluster
        .slots
        .iter()
        .filter_map(|slot| slot.decision.as_ref())
        .map(|decision| format!("  {}: {}", decision.given.cause, decision.given.sentence))
        .collect();
    // The first decision covers all slots.
    lines.dedup();
    // A steady election needs no line.
    let is_shown_elsewhere = |skipped: &&Skipped| skipped.reason == Reason::Steady || skipped.is_hold();
    if let Some(skipped) = cluster.skipped.as_ref().filter(|skipped| !is_shown_elsewhere(skipped)) {
        let why = advice::beside(skipped.reason, &skipped.sentence, &cluster.election);
        lines.push(format!("  not decided: {why}"));
    }
    lines.extend(cluster.planned_stops.iter().map(|stop| format!("  {stop}")));
    lines.extend(cluster.processes.iter().map(|process| format!("  {process}")));
    lines.extend(cluster.standbys.iter().map(|standby| format!("  {standby}")));
    if let OrderedBy { reason: Some(reason), by, at_ms } = &cluster.latest_order {
        lines.push(format!("  latest order by {by} at {}: {reason}", moment(*at_ms)));
    }
    lines.extend(cluster.exclusions.iter().map(|exclusion| {
        let until = moment(exclusion.until_ms);
        format!("  {} is not elected until {until}: {}", exclusion.member, exclusion.reason)
    }));
    lines.extend(cluster.failures.iter().map(|failure| {
        format!("  {} failed at {}: {}", failure.member, moment(failure.at_ms), failure.cause)
    }));
    lines.extend(cluster.problems.iter().map(|problem| format!("  {problem}")));
    lines
}

/// The table of those that take part, and of those that should.
fn members(cluster: &Cluster) -> String {
    let several = cluster.slots.len() > 1;
    // The state of a standby has a line of its own.
    let attributes =
        |member: &Member| member.attributes.clone().into_iter().filter(|(name, _)| name != STANDBY_ATTRIBUTE);
    let described = cluster.members.iter().any(|member| attributes(member).next().is_some());
    let members = cluster.members.iter().map(|member| {
        let accent = match member.role {
            _ if !member.health.is_fit() => Accent::Bad,
            MemberRole::Leader => Accent::Good,
            MemberRole::TakingOver | MemberRole::SteppingDown => Accent::Busy,
            MemberRole::GaveUp | MemberRole::Excluded | MemberRole::SiteFailed => Accent::Bad,
            MemberRole::Standby | MemberRole::Maintenance | MemberRole::Drained | MemberRole::Closed => {
                Accent::None
            }
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
            let all: Vec<_> = attributes(member).map(|(name, value)| format!("{name}={value}")).collect();
            cells.push(or_dash((!all.is_empty()).then(|| all.join(" "))));
        }
        if several {
            cells.insert(3, or_dash(member.slot.map(|slot| slot.to_string())));
        }
        (cells, accent)
    });
    let now_ms = unix_ms();
    let absent = cluster.absent.iter().map(|absent| {
        let none = "-".to_owned();
        let mut cells = vec![absent.member.to_string(), absent.site.to_string(), "absent".to_owned()];
        // It has no slot and no term.
        cells.resize(4 + usize::from(several), none.clone());
        cells.push(absence(absent, now_ms));
        cells.resize(9, none);
        (cells, if absent.stopped { Accent::None } else { Accent::Bad })
    });
    let rows: Vec<_> = members.chain(absent).collect();
    let mut columns = vec![
        Column::key("MEMBER"),
        Column::key("SITE"),
        Column::key("ROLE"),
        Column::key("TERM"),
        Column::detail("FITNESS", 0),
        Column::key("IF LOST"),
        Column::detail("ADDRESS", 1),
        Column::detail("HTTP", 1),
    ];
    if described {
        columns.push(Column::detail("ATTRIBUTES", 2));
    }
    if several {
        columns.insert(3, Column::key("SLOT"));
    }
    output::table(&columns, &rows)
}

/// The footnote of the table.
fn footnote(recipe: &str) -> Option<&'static str> {
    match recipe {
        "elector" => Some("  * elector"),
        "single" => Some("  waiting members have no znode, so they are not shown"),
        _ => None,
    }
}

fn headline(cluster: &Cluster) -> String {
    let describe_leader = |leader: &Option<Current>| match leader {
        Some(leader) => {
            let status = match leader.status {
                Status::Ready => "leads",
                Status::Progress => "takes over",
            };
            let token = leader.fencing_token.map(|t| format!(", fencing token {t}")).unwrap_or_default();
            format!("{} ({}) {status}{token}", leader.member, leader.site)
        }
        None => "no member leads".to_owned(),
    };
    let leader = match &cluster.slots[..] {
        [] => describe_leader(&None),
        [only] => describe_leader(&only.leader),
        slots => {
            let all =
                slots.iter().map(|slot| format!("slot {}: {}", slot.slot, describe_leader(&slot.leader)));
            all.collect::<Vec<_>>().join("; ")
        }
    };
    let orders =
        describe_orders(cluster.mode, &cluster.drained, &cluster.preferred_site, &cluster.site_order);
    let closed = cluster.closed.clone();
    let serviced = cluster.maintenance.iter().map(ToString::to_string);
    let stopped = cluster.stopped.iter().map(|stopped| format!("the job is {stopped}"));
    let standbys = cluster.stopped_standbys.iter().map(ToString::to_string);
    let failed = cluster.failed_sites.iter().map(|f| format!("site {} has failed ({})", f.site, f.why));
    let unwell = cluster.unwell_sites.iter().map(UnwellSite::sentence);
    let orders: String = orders
        .into_iter()
        .chain(closed)
        .chain(serviced)
        .chain(stopped)
        .chain(standbys)
        .chain(failed)
        .chain(unwell)
        .chain(cluster.passing_orders())
        .map(|order| format!(", {order}"))
        .collect();
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
        outgoing(request.kind, &request.from),
        target(&request.to),
        request.kind.progress(&request.outcome)
    )
}
