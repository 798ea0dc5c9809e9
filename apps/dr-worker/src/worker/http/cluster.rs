//! `/cluster` and `/history`: the whole election, as read from ZooKeeper.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use election_admin::{Observer, ReadError, Snapshot};
use election_core::{Paths, status::Skipped};

use super::{
    answer::{answer, refuse},
    roles::Which,
};
use crate::{
    config::ZooKeeperConfig,
    view::{Cluster, History, ProblemRow, diagnose, statuses},
    wall::unix_ms,
    worker::state::Worker,
};

pub(super) async fn cluster(State(worker): State<Arc<Worker>>, Query(which): Query<Which>) -> Response {
    let seen = match look(&worker, &which).await {
        Ok(seen) => seen,
        Err(refusal) => return *refusal,
    };
    let problems = match seen.problems().await {
        Ok(problems) => problems,
        Err(refusal) => return *refusal,
    };
    let skipped = skipped(&worker, &seen.job, &seen.snapshot).await;
    let cluster = Cluster::new(worker.root(), &seen.job, seen.snapshot, unix_ms());
    answer(StatusCode::OK, &Cluster { skipped, problems, ..cluster })
}

pub(super) async fn history(State(worker): State<Arc<Worker>>, Query(which): Query<Which>) -> Response {
    let (name, paths, observer) = match prepare(&worker, &which) {
        Ok(all) => all,
        Err(refusal) => return *refusal,
    };
    match observer.history(&paths).await {
        Ok((leaderships, unreadable)) => {
            answer(StatusCode::OK, &History { election: name, leaderships, unreadable })
        }
        Err(error) => unreadable(&error),
    }
}

/// Why the elector, this worker or another one, decides nothing.
pub(super) async fn skipped(worker: &Worker, name: &str, snapshot: &Snapshot) -> Option<Skipped> {
    let own = worker.jobs().iter().find(|job| job.slot.name() == name)?.election.status().now();
    if own.is_elector {
        return own.skipped.as_deref().cloned();
    }
    statuses::skipped(Some(worker.workers()), name, snapshot).await
}

/// The requested job, and a snapshot of its election.
pub(super) struct RequestedJob {
    pub(super) job: String,
    pub(super) snapshot: Snapshot,
    paths: Paths,
    observer: Observer,
    zookeeper: ZooKeeperConfig,
}

impl RequestedJob {
    pub(super) async fn problems(&self) -> Result<Vec<ProblemRow>, Box<Response>> {
        let Self { observer, zookeeper, job, paths, snapshot } = self;
        let problems = diagnose(observer, zookeeper, job, paths, snapshot).await;
        problems.map_err(|error| Box::new(unreadable(&error)))
    }
}

pub(super) async fn look(worker: &Worker, which: &Which) -> Result<RequestedJob, Box<Response>> {
    let (job, paths, observer) = prepare(worker, which)?;
    match observer.snapshot(&paths).await {
        Ok(snapshot) => {
            let zookeeper = worker.config().zookeeper.clone();
            Ok(RequestedJob { job, snapshot, paths, observer, zookeeper })
        }
        Err(error) => Err(Box::new(unreadable(&error))),
    }
}

fn prepare(worker: &Worker, which: &Which) -> Result<(String, Paths, Observer), Box<Response>> {
    let unavailable = |why: &str| Box::new(refuse(StatusCode::SERVICE_UNAVAILABLE, why));
    let job = which.of_member(worker)?;
    let name = job.slot.name().to_owned();
    let paths = Paths::new(worker.root(), &name).map_err(|why| unavailable(&why.to_string()))?;
    let session = worker.session().and_then(zk_session::Session::incarnation);
    let session = session.ok_or_else(|| unavailable("no ZooKeeper session at the moment"))?;
    Ok((name, paths, Observer::new(session)))
}

fn unreadable(error: &ReadError) -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
}
