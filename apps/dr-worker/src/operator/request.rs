//! `switchover`, `failover` and `cancel`.
//!
//! A command that waits leaves no request behind: when it ends by its timeout or by a signal, it withdraws a request
//! that is not begun. If the command is killed, the request expires after about the same time.

use std::{collections::BTreeSet, time::Duration};

use election_core::{
    MemberId,
    operator::{self, Layout, Snapshot, Withdrawal},
    record::{Outgoing, Request, RequestKind, Status, Target},
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    contest, control,
    election::{Operator, asker},
    moves::Move,
    output::{self, Output},
    underway::{Underway, leads_already, report_leader},
};
use crate::{config::Sources, error::Error, signals::Signals, view::hold_of};

/// `switchover`
#[derive(Debug, clap::Args)]
pub(super) struct SwitchoverArguments {
    #[command(flatten)]
    wanted: Move,
}

/// `failover`
#[derive(Debug, clap::Args)]
pub(super) struct FailoverArguments {
    #[command(flatten)]
    wanted: Move,
    /// Replace a leader that does not stop; two may act for a moment.
    ///
    /// The job's resource must check fencing tokens.
    #[arg(long)]
    force: bool,
}

/// `cancel`
#[derive(Debug, clap::Args)]
pub(super) struct CancelArguments {
    /// Request id, as printed by the command that filed it and by `list`: r-0000000000.
    #[arg(value_name = "ID", value_parser = request_id)]
    id: String,
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
}

/// The id becomes part of a path.
fn request_id(text: &str) -> Result<String, String> {
    let number = text.strip_prefix("r-").unwrap_or_default();
    let number = number.strip_prefix('-').unwrap_or(number);
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("a request's id is 'r-' and its number, such as r-0000000000".to_owned());
    }
    Ok(text.to_owned())
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
    let filed = operator::request(&operator.session, &paths, id).await?;
    let why = format!("by {}", asker());
    let request = match operator::cancel(&operator.session, &paths, &filed.which, &why).await? {
        Withdrawal::Withdrawn(request) => request,
        Withdrawal::TooLate(Request { kind, state, .. }) => {
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
    ask(&arguments.wanted, RequestKind::Switchover, false, sources, how).await
}

pub(super) async fn failover(
    arguments: &FailoverArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    ask(&arguments.wanted, RequestKind::Failover, arguments.force, sources, how).await
}

async fn ask(
    wanted: &Move,
    kind: RequestKind,
    force: bool,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let mut request = operator::new_request(
        kind,
        wanted.outgoing(),
        wanted.target(),
        force,
        wanted.reason.clone(),
        asker(),
    );
    request.accept_loss = wanted.accept_loss;
    let result = file_and_follow(&operator, wanted, request, how).await;
    operator.close().await;
    result
}

async fn file_and_follow(
    operator: &Operator,
    wanted: &Move,
    request: Request,
    how: Output,
) -> Result<(), Error> {
    let job = operator.one(wanted.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    match operator.observer().await?.layout(&paths).await? {
        None | Some(Layout::Elector) => {}
        Some(layout) => return contest::move_on(operator, &job, &paths, layout, wanted, &request, how).await,
    }
    let snapshot = operator.observer().await?.snapshot(&paths).await?;
    check_names(operator, &job, &request, &snapshot)?;
    if let Some(leader) = leads_already(&request, &snapshot) {
        return report_leader(&job, leader, how);
    }
    if request.kind == RequestKind::Switchover && !is_led(&request, &snapshot) {
        let skipped = crate::view::elector::skipped(&job, &snapshot).await;
        if let Some(hold) = skipped.and_then(|skipped| hold_of(&skipped, &job)) {
            let way_out = format!("`dr-worker failover --job {job}` elects a leader now");
            return Err(Error::NotNow(format!("{job}: no leader can hand over: {hold}; {way_out}")));
        }
    }
    let valid_for = match wanted.wait {
        true => wanted.timeout.unwrap_or_else(|| longest_move(operator, &job)),
        false => Request::USUAL_VALIDITY,
    };
    let until = BootTime::now() + valid_for;
    let request = request.with_validity(valid_for);
    let mut signals = Signals::new().map_err(|e| Error::Internal(format!("no signal handlers: {e}")))?;
    let filed = operator::ask(&operator.session, &paths, request).await?;
    let underway = Underway { operator, job, paths, filed, until };
    underway.print_filed(wanted.wait);
    let signal = tokio::select! {
        result = underway.see_through(wanted.wait, how) => return result,
        signal = signals.next() => signal,
    };
    underway.withdraw(&format!("{signal} while it was pending"), how).await
}

/// The sum of the policy's timeouts of a move.
pub(super) fn longest_move(operator: &Operator, job: &str) -> Duration {
    let config = &operator.config;
    let policy = config.engine_of(job);
    config.zookeeper.session_timeout
        + policy.release_timeout
        + policy.acquire_timeout
        + policy.takeover_timeout
        + operator::ELECTOR_PATIENCE
}

/// A mistyped name is found before anything is written.
pub(super) fn check_names(
    operator: &Operator,
    job: &str,
    request: &Request,
    snapshot: &Snapshot,
) -> Result<(), Error> {
    let from = match &request.from {
        Outgoing::Member(member) => Some(member),
        Outgoing::Slot(_) | Outgoing::Only => None,
    };
    let to = match &request.to {
        Target::Member(member) => Some(member),
        Target::Site(_) | Target::Any => None,
    };
    // A leader whose worker is gone is not a member any more, but can be named.
    let holders = || snapshot.leader_znodes.iter().flatten().map(|znode| &znode.record.member);
    let members: BTreeSet<_> = snapshot.members.iter().map(|member| &member.member).collect();
    let is_unknown = |member: &&MemberId| !members.contains(*member);
    let unknown =
        to.filter(is_unknown).or(from.filter(is_unknown).filter(|from| holders().all(|o| o != *from)));
    if let Some(unknown) = unknown {
        let members: Vec<_> = members.iter().map(|member| member.as_str()).collect();
        let members = if members.is_empty() { "no member takes part".to_owned() } else { members.join(", ") };
        return Err(Error::Failed(format!("{job}: unknown member {unknown}; members: {members}")));
    }
    match &request.to {
        Target::Site(site) => {
            control::check_sites(operator, job, [site], snapshot, "").map_err(Error::Failed)
        }
        Target::Member(_) | Target::Any => Ok(()),
    }
}

/// Whether the leader that it is about is READY.
pub(super) fn is_led(request: &Request, snapshot: &Snapshot) -> bool {
    let znode = snapshot.slot_for(request).ok().and_then(|slot| snapshot.leader_znode(slot));
    znode.is_some_and(|znode| znode.record.status == Status::Ready)
}
