//! `restart`, `stop` and `start`: requests about the job, which its leader carries out and answers.

use std::time::Duration;

use election_core::{
    config::MemberId,
    internals::{
        record::{AdminRequest, Outgoing, RequestKind, Target},
        text::Text,
    },
};
use serde_json::json;
use zk_session::BootTime;

use super::{
    consent::Consent,
    election::{Operator, asker},
    leading::until_proved,
    list::outgoing,
    output::{self, Output},
    underway::{Filing, longest_move},
};
use crate::{
    commands::{job_requests, moves},
    config::Sources,
    error::Error,
};

/// `stop`
#[derive(Debug, clap::Args)]
pub(super) struct StopArguments {
    #[command(flatten)]
    request: JobRequestArguments,
    #[command(flatten)]
    consent: Consent,
}

/// `start`, and what `stop` and `restart` share with it.
#[derive(Debug, clap::Args)]
pub(super) struct JobRequestArguments {
    /// Job [default: the only one].
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Reason, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: Option<Text>,
    /// Wait until it is done or has failed.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    ///
    /// Default: the sum of the policy's timeouts of a move.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// `restart`
#[derive(Debug, clap::Args)]
pub(super) struct RestartArguments {
    #[command(flatten)]
    request: JobRequestArguments,
    /// Leader that restarts its job.
    ///
    /// Needed where there are several.
    #[arg(long, value_name = "MEMBER", conflicts_with = "slot")]
    from: Option<MemberId>,
    /// Slot whose leader restarts its job, counted from 0.
    #[arg(long, value_name = "SLOT")]
    slot: Option<usize>,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn restart(
    arguments: &RestartArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let RestartArguments { request, from, slot, consent } = arguments;
    let from = match (from, slot) {
        (Some(member), _) => Outgoing::Member(member.clone()),
        (None, Some(slot)) => Outgoing::Slot(*slot),
        (None, None) => Outgoing::Only,
    };
    ask(RequestKind::Restart, from, request, Some(*consent), sources, how).await
}

pub(super) async fn stop(arguments: &StopArguments, sources: &Sources, how: Output) -> Result<(), Error> {
    let StopArguments { request, consent } = arguments;
    ask(RequestKind::Stop, Outgoing::Only, request, Some(*consent), sources, how).await
}

pub(super) async fn start(
    arguments: &JobRequestArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    ask(RequestKind::Start, Outgoing::Only, arguments, None, sources, how).await
}

async fn ask(
    kind: RequestKind,
    from: Outgoing,
    arguments: &JobRequestArguments,
    consent: Option<Consent>,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let operator = Operator::connect(sources).await?;
    let reason = arguments.reason.clone().map(Text::into_string);
    let request = election_admin::new_request(kind, from, Target::Any, false, reason, asker());
    let result = check_and_file(&operator, arguments, request, consent, how).await;
    operator.close().await;
    result
}

async fn check_and_file(
    operator: &Operator,
    arguments: &JobRequestArguments,
    mut request: AdminRequest,
    consent: Option<Consent>,
    how: Output,
) -> Result<(), Error> {
    let job = operator.one(arguments.job.as_deref()).await?;
    let paths = operator.paths(&job)?;
    let (snapshot, news) = job_requests::check(operator, &job, &paths, &mut request).await?;
    if let Some(news) = news {
        if arguments.wait && request.kind == RequestKind::Start {
            let until = BootTime::now() + arguments.timeout.unwrap_or_else(|| longest_move(operator, &job));
            until_proved(operator, &job, &paths, 0, None, until).await?;
        }
        return match how {
            Output::Json => {
                let outcome = json!({ "state": "done" });
                output::print_json(&json!({ "election": job, "request": null, "outcome": outcome }))
            }
            Output::Pretty => output::print(news),
        };
    }
    let leaders = moves::leaders_stopped(&request, &snapshot);
    if let Some(consent) = consent.filter(|_| !leaders.is_empty()) {
        let what = match request.kind {
            RequestKind::Stop => "the job stops, and no other member starts it",
            _ => "the job stops and starts again there",
        };
        let leaders = leaders.join(", ");
        consent.ask(&format!(
            "{} of {job}{}: {leaders} leads; {what}",
            request.kind.as_str(),
            outgoing(&request.from)
        ))?;
    }
    let filing = Filing { job, paths, request, waits: arguments.wait, timeout: arguments.timeout };
    filing.file_and_follow(operator, &snapshot, how).await
}
