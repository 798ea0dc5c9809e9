//! `can-restart`: whether a member may be taken down now.

use election_core::config::MemberId;

use super::{
    explain::snapshots,
    output::{self, Output},
};
use crate::{
    commands::Operator,
    config::Sources,
    error::Error,
    view::{Cluster, Explained, Restartable, is_absent, statuses::WorkerStatuses},
    wall::unix_ms,
};

/// `can-restart`
#[derive(Debug, clap::Args)]
pub(super) struct CanRestartArguments {
    /// Member [default: node.id].
    #[arg(value_name = "MEMBER")]
    member: Option<MemberId>,
}

pub(super) async fn run(
    arguments: &CanRestartArguments,
    sources: &Sources,
    how: Output,
) -> Result<(), Error> {
    let judged = Operator::with(sources, async |operator| judge(operator, arguments).await).await?;
    let reasons: Vec<_> = judged.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
    let why = format!("{} may not be taken down now: {}", judged.member, reasons.join("; "));
    match (how, judged.can_restart) {
        (Output::Json, true) => output::print_json(&judged),
        (Output::Pretty, true) => output::print(format_args!("{} may be taken down now", judged.member)),
        (_, false) => Err(Error::NotNow(why)),
    }
}

async fn judge(operator: &Operator, arguments: &CanRestartArguments) -> Result<Restartable, Error> {
    let missing =
        || Error::Usage("name the member: this host has no usable name, and node.id is not set".to_owned());
    let member = arguments.member.as_ref().or(operator.config.node_id.as_ref()).ok_or_else(missing)?;
    let statuses = WorkerStatuses::new(operator.workers());
    let (mut jobs, mut absent) = (Vec::new(), None);
    for (job, snapshot) in snapshots(operator, None).await? {
        let now_ms = unix_ms();
        let explained = Explained::new(&job, &snapshot, &operator.config, now_ms);
        let skipped = statuses.skipped(&job, &snapshot).await;
        absent = absent.or_else(|| is_absent(member, &snapshot, now_ms));
        let cluster = Cluster::new(operator.root(), &job, snapshot, now_ms);
        jobs.push((Cluster { skipped, ..cluster }, explained));
    }
    let unknown = || match absent {
        Some(absent) => Error::NotNow(absent),
        None => Error::Usage(format!(
            "unknown member {member}: it takes part in no job; name one of those that `dr-worker list` shows"
        )),
    };
    Restartable::new(member, jobs.iter().map(|(cluster, explained)| (cluster, explained))).ok_or_else(unknown)
}
