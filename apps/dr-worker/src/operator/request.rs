//! `switchover`, `failover` and `cancel`.
//!
//! A command that waits leaves no request behind: when it ends by its timeout or by a signal, it withdraws a request
//! that is not begun. If the command is killed, the request expires after about the same time.

use crate::advice;
use std::time::Duration;

use election_admin::{Layout, Snapshot, Withdrawal};
use election_core::{
    internals::record::{AdminRequest, FiledRequest, RequestKind, RequestRef},
    strategy::in_words,
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    consent::Consent,
    contest, dry_run,
    election::{Operator, asker},
    leading::until_proved,
    list::{outgoing, target},
    moves::Move,
    output::{self, Output},
    underway::{Filing, longest_move, report_leader},
};
use crate::{
    commands::{moves, plan},
    config::Sources,
    error::Error,
    typed::Typed,
    wall::unix_ms,
};

/// `switchover`
#[derive(Debug, clap::Args)]
pub(super) struct SwitchoverArguments {
    #[command(flatten)]
    wanted: Move,
    /// Plan it for this time.
    ///
    /// RFC 3339 (2026-11-26T02:30:00+01:00), the next HH:MM in UTC, or a delay (+30m). The elector's clock decides.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["wait", "dry_run"])]
    at: Option<String>,
    /// How late it may begin [default: 5m].
    #[arg(long, value_name = "DURATION", requires = "at", value_parser = humantime::parse_duration)]
    within: Option<Duration>,
}

/// `failover`
#[derive(Debug, clap::Args)]
pub(super) struct FailoverArguments {
    #[command(flatten)]
    wanted: Move,
    /// Replace a leader that does not stop in time.
    ///
    /// The leader is asked to stop, and has its stop budget for that. A leader that is frozen or cut off has not stopped
    /// then: two may act, and the job's resource must check fencing tokens.
    #[arg(long)]
    force: bool,
    /// With --force: do not wait for the leader to stop.
    ///
    /// Two act until the leader has stopped.
    #[arg(long, requires = "force")]
    now: bool,
    #[command(flatten)]
    consent: Consent,
}

/// `cancel`
#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    /// Request id, as printed by `list`: r-0000000000.
    #[arg(value_name = "ID", value_parser = request_id)]
    id: String,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

/// The id becomes part of a path.
fn request_id(text: &str) -> Result<String, String> {
    if RequestRef::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("a request's id is 'r-' and its number, such as r-0000000000".to_owned())
}

pub(super) async fn cancel(arguments: &CancelArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = withdraw(&operator, arguments, how).await;
    operator.close().await;
    result
}

async fn withdraw(operator: &Operator, arguments: &CancelArguments, how: Output) -> Result<(), Error> {
    let job = operator.one(arguments.job.as_deref()).await?;
    let (paths, id) = (operator.paths(&job)?, &arguments.id);
    let filed = election_admin::request(&operator.session, &paths, id).await?;
    let why = format!("by {}", asker());
    let request = match election_admin::cancel(&operator.session, &paths, &filed.which, &why).await? {
        Withdrawal::Withdrawn(request) => request,
        Withdrawal::TooLate(AdminRequest { kind, state, .. }) => {
            let progress = kind.progress(&state);
            return Err(Error::Failed(format!("request {id} can't be withdrawn any more: {progress}")));
        }
    };
    match how {
        Output::Json => {
            output::print_json(&json!({ "election": job, "request": id, "outcome": request.state }))
        }
        Output::Pretty => output::print(format_args!("request {id} is withdrawn")),
    }
}

pub(super) async fn switchover(
    arguments: &SwitchoverArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let SwitchoverArguments { wanted, at, within } = arguments;
    let request = wanted.request(RequestKind::Switchover, false);
    let Some(at) = at else { return ask(wanted, request, None, sources, how).await };
    let request = plan::plan(request, at, *within, unix_ms())?;
    let operator = Operator::connect(sources).await?;
    let result = file_plan(&operator, wanted, request, how).await;
    operator.close().await;
    result
}

pub(super) async fn failover(
    arguments: &FailoverArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let FailoverArguments { wanted, force, now, consent } = arguments;
    let mut request = wanted.request(RequestKind::Failover, *force);
    request.now = *now;
    ask(wanted, request, Some(*consent), sources, how).await
}

/// Files a planned switchover, and prints how its time was understood.
async fn file_plan(
    operator: &Operator,
    wanted: &Move,
    request: AdminRequest,
    how: Output,
) -> Result<(), Error> {
    let job = operator.one(wanted.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    moves::check_plan(operator, &job, &paths, &request).await?;
    let filed = election_admin::ask(&operator.session, &paths, request).await?;
    let FiledRequest { which, request } = &filed;
    output::print_progress(format_args!(
        "request {}: {} of {job}{}{}, planned for {}",
        which.name,
        request.kind.as_str(),
        outgoing(&request.from),
        target(&request.to),
        plan::understood(request, unix_ms()).unwrap_or_default()
    ));
    output::print_progress(format_args!(
        "it expires unless an elector begins it within {} of that time; `{}` shows it, `{}` withdraws it",
        in_words(request.valid_for()),
        Typed::verb("list").job(&job),
        Typed::verb("cancel").arg(&which.name).job(&job)
    ));
    match how {
        Output::Json => output::print_json(&plan::shown(&job, &filed)),
        Output::Pretty => output::print(&which.name),
    }
}

async fn ask(
    wanted: &Move,
    request: AdminRequest,
    consent: Option<Consent>,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let result = check_and_file(&operator, wanted, request, consent, how).await;
    operator.close().await;
    result
}

/// What a failover does that an operator may not expect; `None` if nothing leads, so that it does no harm.
fn danger(request: &AdminRequest, snapshot: &Snapshot) -> Option<String> {
    match (request.force, request.now) {
        (true, true) => Some(
            ", by force, now: the leader's stop is not waited for, so two programs may run until it has stopped".to_owned(),
        ),
        (true, false) => Some(
            ", by force: a leader that does not stop within its stop budget is replaced, so two programs may run for a moment"
                .to_owned(),
        ),
        (false, _) => {
            let leaders = moves::leaders_stopped(request, snapshot);
            (!leaders.is_empty()).then(|| format!(": {} leads, and the job stops there", leaders.join(", ")))
        }
    }
}

async fn check_and_file(
    operator: &Operator,
    wanted: &Move,
    request: AdminRequest,
    consent: Option<Consent>,
    how: Output,
) -> Result<(), Error> {
    let job = operator.one(wanted.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    let what =
        format!("{} of {job}{}{}", request.kind.as_str(), outgoing(&request.from), target(&request.to));
    let confirmed = |snapshot: &Snapshot| match (consent, danger(&request, snapshot)) {
        (Some(consent), Some(danger)) => consent.ask(&format!("{what}{danger}")),
        _ => Ok(()),
    };
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    match snapshot.layout {
        Layout::Elector => {}
        layout if wanted.try_only.dry_run => {
            let recipe = layout.as_str();
            return Err(Error::Usage(format!(
                "{job} uses the recipe {recipe:?}, which has no elector to try this with"
            )));
        }
        layout => {
            confirmed(&snapshot)?;
            return contest::move_on(operator, &job, &paths, layout, wanted, &request, how).await;
        }
    }
    if let Some(leader) = moves::check(operator, &job, &snapshot, &request).await? {
        if let (true, Ok(slot)) = (wanted.wait, snapshot.slot_for(&request)) {
            let until = BootTime::now() + wanted.timeout.unwrap_or_else(|| longest_move(operator, &job));
            until_proved(operator, &job, &paths, slot, Some(&leader), until).await?;
        }
        return report_leader(&job, &leader, how);
    }
    if wanted.try_only.dry_run {
        if let Some(why) = election_admin::hindrance(&paths, &snapshot, &request) {
            return Err(Error::NotNow(format!("{job}: {}", advice::on(&why))));
        }
        let changed = election_admin::filed(&snapshot, request);
        return dry_run::show(operator, &job, &what, &changed, true, how);
    }
    confirmed(&snapshot)?;
    // An answer takes time.
    let snapshot = match consent {
        Some(_) => operator.observer().await?.snapshot(&paths).await?,
        None => snapshot,
    };
    let filing = Filing { job, paths, request, waits: wanted.wait, timeout: wanted.timeout };
    filing.file_and_follow(operator, &snapshot, how).await
}
