//! `/logs`: the last output of a job on this node.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use election_core::config::MemberId;
use job_guard::KeptOutput;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    answer::{Answered, answer, refuse},
    roles::JobQuery,
};
use crate::worker::{
    job::{ShownLine, WhoseOutput},
    state::Worker,
};

/// `?job=J&lines=N`
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LogsQuery {
    /// The job; it can be left out if there is only one.
    job: Option<String>,
    /// How many lines.
    lines: Option<usize>,
    /// Of the job's standby instead of the leader's program.
    standby: Option<bool>,
    /// Of one of the job's processes, by its name.
    process: Option<String>,
}

/// The last output.
#[derive(Serialize, JsonSchema)]
pub(super) struct Logs<'a> {
    #[schemars(with = "String")]
    member: &'a MemberId,
    job: String,
    /// The oldest first.
    lines: Vec<ShownLine>,
}

pub(super) async fn logs(State(worker): State<Arc<Worker>>, Query(asked): Query<LogsQuery>) -> Answered {
    let LogsQuery { job, lines, standby, process } = asked;
    let job = JobQuery { job }.of(&worker)?.slot.name().to_owned();
    let (node, whose) = (worker.node(), WhoseOutput::of(standby == Some(true), process.as_deref()));
    let kept = KeptOutput::of(&node.state_dir, node.id.as_str());
    // The disk may be slow.
    let (name, count) = (job.clone(), lines.unwrap_or(ShownLine::USUAL));
    let read = tokio::task::spawn_blocking(move || whose.last(&kept, &name, count)).await;
    Ok(match read.map_err(std::io::Error::other).flatten() {
        Ok(kept) => answer(StatusCode::OK, &Logs { member: &node.id, job, lines: kept.unwrap_or_default() }),
        Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, &format!("the output can't be read: {error}")),
    })
}
