//! Requests about a job: what is checked before one is filed.

use election_admin::{Layout, Snapshot, orders};
use election_core::{
    Paths,
    config::MemberId,
    internals::record::{AdminRequest, Control, RequestKind},
};

use super::{
    election::Operator,
    moves::{check_names, is_led},
};
use crate::{error::Error, typed::Typed};

/// Checks a request before it is written. Returns what was read, and a sentence if there is nothing to do.
///
/// # Errors
/// Why the request can't be carried out now.
pub(crate) async fn check(
    operator: &Operator,
    job: &str,
    paths: &Paths,
    request: &AdminRequest,
) -> Result<(Snapshot, Option<String>), Error> {
    let kind = request.kind.as_str();
    let layout = operator.observer().await?.layout(paths).await?;
    if let Some(layout) = layout.filter(|layout| *layout != Layout::Elector) {
        return Err(Error::Failed(format!(
            "{job} uses the recipe {:?}: `{kind}` needs the recipe \"elector\"",
            layout.as_str()
        )));
    }
    let snapshot = operator.observer().await?.snapshot(paths).await?;
    if let Some(member) = start_of_absent(request, &snapshot) {
        let start = |control: &mut Control| control.stopped_standbys.retain(|order| order.member != *member);
        orders::order(&operator.session, paths, &request.by, request.reason.as_deref(), start).await?;
        let news = format!("{member} takes no part in {job}; its standby starts with its worker");
        return Ok((snapshot, Some(news)));
    }
    check_names(operator, job, request, &snapshot)?;
    let news = is_done_already(job, request, &snapshot);
    if let Some(member) = request.standby_of() {
        if news.is_none() && request.kind != RequestKind::StartStandby {
            check_standby(job, member, request.kind, &snapshot)?;
        }
        return Ok((snapshot, news));
    }
    if news.is_none() && request.kind == RequestKind::Restart {
        check_restart(job, request, &snapshot)?;
    }
    Ok((snapshot, news))
}

/// The member whose standby is to be started, if it takes no part: this command withdraws the order itself.
fn start_of_absent<'a>(request: &'a AdminRequest, snapshot: &Snapshot) -> Option<&'a MemberId> {
    let member = request.standby_of().filter(|_| request.kind == RequestKind::StartStandby)?;
    let is_absent = snapshot.members.iter().all(|known| known.member != *member);
    (is_absent && snapshot.control.stopped_standby(member).is_some()).then_some(member)
}

/// Why nothing has to be done: the job or the standby is stopped, or not stopped, already, and no open request changes that.
fn is_done_already(job: &str, request: &AdminRequest, snapshot: &Snapshot) -> Option<String> {
    let is_open = |other: &AdminRequest| !other.kind.is_move() && !other.state.is_final();
    let is_about_same = |other: &AdminRequest| other.standby_of() == request.standby_of();
    let is_busy =
        snapshot.requests.iter().any(|other| is_open(&other.request) && is_about_same(&other.request));
    let standby = request.standby_of().map(|member| (member, snapshot.control.stopped_standby(member)));
    match (request.kind, &snapshot.control.stopped) {
        _ if is_busy => None,
        (RequestKind::StopStandby, _) => Some(format!("{} already", standby?.1?)),
        (RequestKind::StartStandby, _) => {
            let (member, order) = standby?;
            order.is_none().then(|| format!("the standby of {member} is not stopped"))
        }
        (RequestKind::Stop, Some(stopped)) => Some(format!("{job} is {stopped} already")),
        (RequestKind::Start, None) => Some(format!("{job} is not stopped")),
        _ => None,
    }
}

fn check_standby(job: &str, member: &MemberId, kind: RequestKind, snapshot: &Snapshot) -> Result<(), Error> {
    let leads = snapshot.leader_znodes.iter().flatten().any(|znode| znode.record.member == *member);
    if leads {
        let (verb, does) = match kind {
            RequestKind::StopStandby => ("stop", "stops"),
            _ => ("restart", "restarts"),
        };
        let of_job = Typed::verb(verb).job(job);
        return Err(Error::Failed(format!(
            "{job}: {member} leads, and has no standby; `{of_job}` {does} the job"
        )));
    }
    match snapshot.control.stopped_standby(member) {
        Some(order) => {
            let start = Typed::verb("start").arg("--standby").arg(member).job(job);
            Err(Error::Failed(format!("{job}: {order}; `{start}` starts it")))
        }
        None => Ok(()),
    }
}

fn check_restart(job: &str, request: &AdminRequest, snapshot: &Snapshot) -> Result<(), Error> {
    if let Some(stopped) = &snapshot.control.stopped {
        return Err(Error::Failed(format!(
            "{job} is {stopped}; `{}` starts it",
            Typed::verb("start").job(job)
        )));
    }
    snapshot.slot_for(request)?;
    if !is_led(request, snapshot) {
        return Err(Error::NotNow(format!(
            "{job}: there is no READY leader that could restart it; try again"
        )));
    }
    Ok(())
}
