//! Requests: filed, and followed if the command waits.
//!
//! A command that waits leaves no request behind: when it ends by its timeout or by a signal, it withdraws a request
//! that is not begun. If the command is killed, the request expires after about the same time.

use std::time::Duration;

use election_admin::Layout;
use election_core::{
    internals::record::{AdminRequest, FiledRequest, RequestKind, RequestState},
    strategy::in_words,
};
use zk_session::BootTime;

use super::{
    consent::Consent,
    contest, dry_run,
    leading::until_proved,
    output::{self, Output},
    underway::{Filing, report_leader},
};
use crate::{
    advice,
    commands::{
        job_requests, moves,
        operation::Election,
        options::Options,
        plan,
        requested::{Filed, Needless},
    },
    error::Error,
    typed::Typed,
    wall::unix_ms,
};

/// Checks the request, asks for confirmation, files it and follows it.
pub(super) async fn carry_out(
    of: &Election<'_>,
    request: AdminRequest,
    options: &Options,
    how: Output,
) -> Result<(), Error> {
    match request.kind {
        _ if matches!(request.state, RequestState::Planned { .. }) => file_plan(of, request, how).await,
        kind if kind.is_move() => move_leader(of, request, options, how).await,
        _ => ask_member(of, request, options, how).await,
    }
}

/// Files a planned switchover, and prints how its time was understood.
async fn file_plan(of: &Election<'_>, request: AdminRequest, how: Output) -> Result<(), Error> {
    let Election { operator, job, paths, .. } = of;
    moves::check_plan(operator, job, paths, &request).await?;
    let filed = election_admin::ask(&operator.session, paths, request).await?;
    let FiledRequest { which, request } = &filed;
    output::print_progress(format_args!(
        "request {}: {}, planned for {}",
        which.name,
        moves::describe(job, request),
        plan::understood(request, unix_ms()).unwrap_or_default()
    ));
    output::print_progress(format_args!(
        "it expires unless an elector begins it within {} of that time; `{}` shows it, `{}` withdraws it",
        in_words(request.valid_for()),
        Typed::verb("list").job(job),
        Typed::verb("cancel").arg(&which.name).job(job)
    ));
    match how {
        Output::Json => output::print_json(&Filed::new(job, &filed)),
        Output::Pretty => output::print(&which.name),
    }
}

/// When a command with these options stops waiting.
fn until(of: &Election<'_>, timeout: Option<Duration>) -> BootTime {
    BootTime::now() + timeout.unwrap_or_else(|| moves::longest_move(of.operator, of.job))
}

async fn move_leader(
    of: &Election<'_>,
    request: AdminRequest,
    options: &Options,
    how: Output,
) -> Result<(), Error> {
    let Election { operator, job, paths, .. } = of;
    let Options { dry_run, yes, wait, timeout, .. } = *options;
    let snapshot = of.snapshot().await?;
    let question = moves::question(job, &request, &snapshot);
    let confirmed = || question.as_ref().map_or(Ok(()), |what| Consent { yes }.ask(what));
    match snapshot.layout {
        Layout::Elector => {}
        layout if dry_run => {
            let recipe = layout.as_str();
            return Err(Error::Usage(format!(
                "{job} uses the recipe {recipe:?}, which has no elector: --dry-run is not possible"
            )));
        }
        layout => {
            confirmed()?;
            return contest::move_on(of, layout, &request, options, how).await;
        }
    }
    if let Some(leader) = moves::check(operator, job, &snapshot, &request).await? {
        if let (true, Ok(slot)) = (wait, snapshot.slot_for(&request)) {
            until_proved(operator, job, paths, slot, Some(&leader), until(of, timeout)).await?;
        }
        return report_leader(job, &leader, how);
    }
    if dry_run {
        if let Some(why) = election_admin::hindrance(paths, &snapshot, &request) {
            return Err(Error::NotNow(format!("{job}: {}", advice::on(&why))));
        }
        let what = moves::describe(job, &request);
        let changed = election_admin::filed(&snapshot, request);
        return dry_run::show(operator, job, &what, &changed, true, how);
    }
    confirmed()?;
    // An answer takes time.
    let snapshot = if question.is_some() { of.snapshot().await? } else { snapshot };
    Filing { of, request, waits: wait, timeout }.file_and_follow(&snapshot, how).await
}

/// Requests something about the job from its leader, or about its standby from the member of that.
async fn ask_member(
    of: &Election<'_>,
    request: AdminRequest,
    options: &Options,
    how: Output,
) -> Result<(), Error> {
    let Election { operator, job, paths, .. } = of;
    let Options { yes, wait, timeout, .. } = *options;
    let (snapshot, news) = job_requests::check(operator, job, paths, &request).await?;
    if let Some(news) = news {
        if wait && request.kind == RequestKind::Start {
            until_proved(operator, job, paths, 0, None, until(of, timeout)).await?;
        }
        return match how {
            Output::Json => output::print_json(&Needless::new(job, None)),
            Output::Pretty => output::print(news),
        };
    }
    if let Some(what) = moves::question(job, &request, &snapshot) {
        Consent { yes }.ask(&what)?;
    }
    Filing { of, request, waits: wait, timeout }.file_and_follow(&snapshot, how).await
}
