//! `/status`: the state of this member.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use election_core::{
    config::{MemberId, SiteId},
    internals::record::StoppedJob,
    status::{Role, Skipped},
};
use job_guard::ProcessStatus;
use schemars::JsonSchema;
use serde::Serialize;
use zk_session::{BootTime, SessionState};

use super::{answer::answer, roles::serves};
use crate::{
    commands::evacuation::practice::EvaluatedPlan, schema::Object, view::PlannedStop, worker::state::Worker,
};

#[derive(Serialize, JsonSchema)]
pub(super) struct MemberStatus<'a> {
    #[schemars(with = "String")]
    member: &'a MemberId,
    #[schemars(with = "String")]
    site: &'a SiteId,
    session: &'static str,
    /// Time until the end of this member's lease; null without one.
    lease_remaining_ms: Option<u64>,
    jobs: BTreeMap<&'a str, JobStatus>,
    /// The plans of sites that this member evaluates: as the leader of the first job of each.
    plans: BTreeMap<String, EvaluatedPlan>,
    /// Why it starts no job now, as in `/readiness`.
    problem: Option<String>,
    software: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct JobStatus {
    role: &'static str,
    /// The slot that it leads, takes over or gives up.
    slot: Option<usize>,
    term: u64,
    fencing_token: Option<u64>,
    /// As in `list`.
    health: String,
    #[schemars(with = "Object")]
    process: ProcessStatus,
    /// Whether `/leader` answers 200.
    serves: bool,
    /// The process of the standby, while this member does not lead; null if the job has none.
    #[schemars(with = "Option<Object>")]
    standby: Option<ProcessStatus>,
    /// The order by which this leader does not run the job.
    #[schemars(with = "Option<Object>")]
    stopped: Option<StoppedJob>,
    /// Why this leader does not run the job until another job serves.
    waits: Option<String>,
    /// The planned stop of the job that is under way.
    planned_stop: Option<PlannedStop>,
    elector: bool,
    /// Who leads, by slot.
    #[schemars(with = "Vec<Option<String>>")]
    leaders: Vec<Option<MemberId>>,
    /// The site of each leader, by slot.
    #[schemars(with = "Vec<Option<String>>")]
    sites: Vec<Option<SiteId>>,
    /// The jobs that it comes after.
    after: Vec<String>,
    #[schemars(with = "String")]
    note: Arc<str>,
    /// Why this member decides nothing as the elector.
    #[schemars(with = "Option<Object>")]
    skipped: Option<Arc<Skipped>>,
}

pub(super) async fn status(State(worker): State<Arc<Worker>>) -> Response {
    answer(StatusCode::OK, &of(&worker))
}

/// The state of this member now.
pub(super) fn of(worker: &Worker) -> impl Serialize {
    let jobs = worker.jobs().iter().map(|job| {
        let status = job.election.status().now();
        let leaders = || status.leaders.iter().map(Option::as_ref);
        let shown = JobStatus {
            role: status.role.as_str(),
            slot: status.slot,
            term: status.term,
            fencing_token: status.fencing_token,
            health: status.health.to_string(),
            process: job.slot.process(),
            serves: serves(job, &status),
            standby: job.slot.standby().and_then(|standby| standby.process()),
            stopped: job.slot.stopped(),
            waits: job.slot.waits(),
            planned_stop: job.slot.planned_stop(),
            elector: status.is_elector,
            leaders: leaders().map(|leader| leader.map(|leader| leader.member.clone())).collect(),
            sites: leaders().map(|leader| leader.map(|leader| leader.site.clone())).collect(),
            after: worker.others().before(job.slot.name()),
            note: status.note,
            skipped: status.skipped,
        };
        (job.slot.name(), shown)
    });
    MemberStatus {
        member: &worker.node().id,
        site: &worker.node().site,
        session: session_word(worker),
        lease_remaining_ms: lease_remaining(worker).and_then(|left| u64::try_from(left.as_millis()).ok()),
        jobs: jobs.collect(),
        plans: worker.plans(),
        problem: worker.disk().now(),
        software: concat!("dr-worker ", env!("CARGO_PKG_VERSION")),
    }
}

/// `active`, `paused` or `inactive`.
pub(super) fn session_word(worker: &Worker) -> &'static str {
    match worker.session().map(|session| session.state()) {
        Some(SessionState::Active { .. }) => "active",
        Some(SessionState::Paused { .. }) => "paused",
        _ => "inactive",
    }
}

/// How long this member's lease lasts from now on unless it is renewed; `None` if it leads nothing.
pub(super) fn lease_remaining(worker: &Worker) -> Option<std::time::Duration> {
    // A member that led once keeps what it has heard of its session.
    let held = worker.jobs().iter().map(|job| job.election.status().now());
    let held =
        held.filter(|status| matches!(status.role, Role::Leader | Role::TakingOver | Role::SteppingDown));
    let until = held.filter_map(|status| status.work_until).max()?;
    Some(until.duration_since(BootTime::now()))
}
