//! The endpoints that answer by status code.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use election_core::{
    config::{MemberId, SiteId},
    internals::record::StoppedJob,
    status::{ElectionStatus, Role},
};
use job_guard::{ProcessState, ProcessStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zk_session::BootTime;

use super::answer::{Answered, Refused, answer, refuse};
use crate::{
    schema::Object,
    worker::state::{Job, Worker},
};

/// `/leader` and `/standby`.
#[derive(Serialize, JsonSchema)]
pub(super) struct OwnRole<'a> {
    job: &'a str,
    #[schemars(with = "String")]
    member: &'a MemberId,
    #[schemars(with = "String")]
    site: &'a SiteId,
    role: &'static str,
    /// The slot that it leads, takes over or gives up.
    slot: Option<usize>,
    term: u64,
    fencing_token: Option<u64>,
    /// As in `list`.
    health: String,
    /// The order by which this leader does not run the job.
    #[schemars(with = "Option<Object>")]
    stopped: Option<StoppedJob>,
    /// Time until the end of this member's lease; null without one.
    lease_remaining_ms: Option<u64>,
}

/// `/liveness`
#[derive(Serialize, JsonSchema)]
pub(super) struct Alive {
    alive: bool,
}

/// `/readiness`
#[derive(Serialize, JsonSchema)]
pub(super) struct Readiness {
    ready: bool,
    /// Why it starts no job now.
    problem: Option<String>,
}

/// `?job=J`
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct JobQuery {
    /// The job; it can be left out if there is only one.
    pub(super) job: Option<String>,
}

impl JobQuery {
    /// The named job, or the only one.
    pub(super) fn of<'a>(&self, worker: &'a Worker) -> Result<&'a Job, Refused> {
        let jobs = worker.jobs();
        let refuse = |code, why: &str| Err(refuse(code, why).into());
        match (&self.job, jobs) {
            (_, []) => refuse(StatusCode::SERVICE_UNAVAILABLE, "this worker has not joined yet"),
            (None, [only]) => Ok(only),
            (None, _) => refuse(StatusCode::BAD_REQUEST, "which job? name it with ?job="),
            (Some(name), _) => match jobs.iter().find(|job| job.slot.name() == name) {
                Some(job) => Ok(job),
                None => refuse(StatusCode::NOT_FOUND, "this worker has no such job"),
            },
        }
    }

    /// The same for what only a member answers: a process that waits for another one of its id to end is none.
    pub(super) fn of_member<'a>(&self, worker: &'a Worker) -> Result<&'a Job, Refused> {
        let job = self.of(worker)?;
        let status = job.election.status().now();
        if status.role != Role::Joining {
            return Ok(job);
        }
        let why = format!("this process is not a member of {} yet: {}", job.slot.name(), status.note);
        Err(refuse(StatusCode::SERVICE_UNAVAILABLE, &why).into())
    }
}

pub(super) async fn leader(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Answered {
    let job = which.of(&worker)?;
    // The clock is read now: a worker that was frozen must not answer from its state before.
    let status = job.election.status().now();
    Ok(yes_or_no(&worker, job, &status, serves(job, &status)))
}

/// Whether clients are to use this member. A leader whose job does not run, or is about to be stopped by an operator, serves
/// nothing.
pub(super) fn serves(job: &Job, status: &ElectionStatus) -> bool {
    status.leads_now() && !job.slot.is_halted() && job.slot.process().serves()
}

pub(super) async fn standby(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Answered {
    let job = which.of(&worker)?;
    let status = job.election.status().now();
    let runs = |process: ProcessStatus| process.state == ProcessState::Running;
    let is_ready = job.slot.standby().is_none_or(|standby| standby.process().is_some_and(runs));
    let is_fit = status.health.is_fit() && is_ready;
    Ok(yes_or_no(&worker, job, &status, status.role == Role::Standby && is_fit && worker.is_active()))
}

/// Whether this process answers. Independent of ZooKeeper: an outage there must not restart every worker.
pub(super) async fn liveness() -> Response {
    answer(StatusCode::OK, &Alive { alive: true })
}

/// Whether this worker can take part now, and start a job.
pub(super) async fn readiness(State(worker): State<Arc<Worker>>) -> Response {
    let problem = worker.disk().now();
    let ready = worker.takes_part() && problem.is_none();
    answer(code(ready), &Readiness { ready, problem })
}

fn code(yes: bool) -> StatusCode {
    if yes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn yes_or_no(worker: &Worker, job: &Job, status: &ElectionStatus, yes: bool) -> Response {
    let remaining = status.work_until.map(|until| until.duration_since(BootTime::now()).as_millis());
    let own = OwnRole {
        job: job.slot.name(),
        member: &worker.node().id,
        site: &worker.node().site,
        role: status.role.as_str(),
        slot: status.slot,
        term: status.term,
        fencing_token: status.fencing_token,
        health: status.health.to_string(),
        stopped: job.slot.stopped(),
        lease_remaining_ms: remaining.and_then(|ms| u64::try_from(ms).ok()),
    };
    answer(code(yes), &own)
}
