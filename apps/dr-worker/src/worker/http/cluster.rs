//! `/cluster` and `/history`: the whole election, as read from ZooKeeper.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
};
use election_admin::{Observer, Snapshot};
use election_core::{Paths, status::Skipped};
use tokio::sync::Semaphore;

use super::{
    answer::{Answered, Refused, answer, refuse},
    roles::JobQuery,
};
use crate::{
    view::{Cluster, History, ProblemRow, diagnose, statuses::WorkerStatuses},
    wall::unix_ms,
    worker::{descriptors::QUESTIONS, state::Worker},
};

/// The places of questions to other workers, of all clients.
static PLACES: Semaphore = Semaphore::const_new(QUESTIONS);

pub(super) async fn cluster(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Answered {
    let seen = look(&worker, &which).await?;
    let (statuses, job, snapshot) = (statuses(&worker), &seen.job, &seen.snapshot);
    let (skipped, planned_stops, standbys, processes, problems, of_workers) = tokio::join!(
        skipped(&worker, &statuses, job, snapshot),
        statuses.planned_stops(job, snapshot),
        statuses.standbys(job, snapshot),
        statuses.processes(job, snapshot),
        seen.problems(&worker),
        statuses.problems(snapshot)
    );
    let problems = problems?.into_iter().chain(of_workers).collect();
    let cluster = Cluster::new(worker.root(), &seen.job, seen.snapshot, unix_ms());
    Ok(answer(StatusCode::OK, &Cluster { skipped, planned_stops, standbys, processes, problems, ..cluster }))
}

pub(super) async fn history(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Answered {
    let (name, paths, observer) = prepare(&worker, &which)?;
    let (leaderships, unreadable) = observer.history(&paths).await?;
    Ok(answer(StatusCode::OK, &History { election: name, leaderships, unreadable }))
}

/// What other workers answer.
pub(super) fn statuses(worker: &Worker) -> WorkerStatuses {
    WorkerStatuses::sharing(worker.workers(), &PLACES)
}

/// Why the elector, this worker or another one, decides nothing.
pub(super) async fn skipped(
    worker: &Worker,
    statuses: &WorkerStatuses,
    name: &str,
    snapshot: &Snapshot,
) -> Option<Skipped> {
    let own = worker.jobs().iter().find(|job| job.slot.name() == name)?.election.status().now();
    if own.is_elector {
        return own.skipped.as_deref().cloned();
    }
    statuses.skipped(name, snapshot).await
}

/// The requested job, and a snapshot of its election.
pub(super) struct RequestedJob {
    pub(super) job: String,
    pub(super) snapshot: Snapshot,
    paths: Paths,
    observer: Observer,
}

impl RequestedJob {
    pub(super) async fn problems(&self, worker: &Worker) -> Result<Vec<ProblemRow>, Refused> {
        let (Self { observer, job, paths, snapshot }, config) = (self, worker.config());
        Ok(diagnose(observer, &config.zookeeper, job, paths, snapshot).await?)
    }
}

pub(super) async fn look(worker: &Worker, which: &JobQuery) -> Result<RequestedJob, Refused> {
    let (job, paths, observer) = prepare(worker, which)?;
    let snapshot = observer.snapshot(&paths).await?;
    Ok(RequestedJob { job, snapshot, paths, observer })
}

fn prepare(worker: &Worker, which: &JobQuery) -> Result<(String, Paths, Observer), Refused> {
    let unavailable = |why: &str| Refused::from(refuse(StatusCode::SERVICE_UNAVAILABLE, why));
    let job = which.of_member(worker)?;
    let name = job.slot.name().to_owned();
    let paths = Paths::new(worker.root(), &name).map_err(|why| unavailable(&why.to_string()))?;
    let session = worker.session().and_then(zk_session::Session::incarnation);
    let session = session.ok_or_else(|| unavailable("no ZooKeeper session at the moment"))?;
    Ok((name, paths, Observer::new(session)))
}
