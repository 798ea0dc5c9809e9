//! The operations by HTTP, and `/requests/ID`: what became of them.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use election_admin::{Layout, orders};
use election_core::{
    Paths,
    internals::record::{AdminRequest, FiledRequest, Mode, RequestKind, RequestRef, RequestState},
};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::oneshot;
use zk_session::BootTime;

use super::{
    answer::{Answered, LoggedOutcome, Refused, answer, failed, refuse},
    body::{self, Asked},
    connections::Peer,
    roles::JobQuery,
};
use crate::{
    commands::{
        Operator, contest,
        evacuation::{shown::Evacuated, store},
        job_requests,
        moves::{self, Decision},
        operation::{Ask, Author, Declared, Done, Election, Given, Jobs, Question},
        requested::{Filed, Halted, Moved, Needless, Taken},
    },
    error::Error,
    schema::Object,
    worker::state::Worker,
    znodes::PLANS,
};

/// The longest body of a request.
pub(super) const LONGEST_BODY: usize = 16 * 1024;

/// How long ZooKeeper may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of a request or of a standing order.
#[derive(Serialize, JsonSchema)]
pub(super) struct RequestOutcome<'a> {
    /// The job.
    election: &'a str,
    request: &'a str,
    #[schemars(with = "Object")]
    outcome: Reached,
    /// The mode now, of a standing order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    mode: Option<Mode>,
}

/// The last evacuation of a site.
#[derive(Serialize, JsonSchema)]
pub(super) struct LastEvacuation {
    /// `None` if there was none.
    evacuation: Option<Evacuated>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Reached {
    Request(RequestState),
    Order(Done),
}

/// An election of this worker, and the means to change it.
#[derive(Clone)]
struct Desk {
    operator: Operator,
    job: String,
    paths: Paths,
}

impl Desk {
    /// `named` is the job that the body names.
    fn new(worker: &Worker, which: JobQuery, named: Option<&str>) -> Result<Self, Refused> {
        let job = match (which.job, named.map(str::to_owned)) {
            (Some(one), Some(other)) if one != other => {
                let why = format!("?job={one} and \"job\": {other:?} in the body differ");
                return Err(refuse(StatusCode::BAD_REQUEST, &why).into());
            }
            (one, other) => one.or(other),
        };
        Self::of(worker, JobQuery { job }.of_member(worker)?.slot.name().to_owned())
    }

    fn of(worker: &Worker, job: String) -> Result<Self, Refused> {
        let session = worker.session().filter(|session| session.incarnation().is_some()).cloned();
        let session =
            session.ok_or_else(|| Error::Unreachable("no ZooKeeper session at the moment".to_owned()))?;
        let mut config = worker.config().what_if(&[]).map_err(Error::from)?;
        config.others = worker.others().all_led();
        let operator = Operator { config, session };
        let paths = operator.paths(&job)?;
        Ok(Self { operator, job, paths })
    }

    async fn carry_out(self, asked: Asked, by: String) -> Result<Response, Error> {
        let author = Author { by: &by, reason: asked.options.reason.as_deref() };
        let of = Election::new(&self.operator, &self.job, author)?;
        let confirmed = |question: Option<Question>| match question {
            Some(Question { what, needs_yes: true }) if !asked.options.yes => {
                Err(Error::NotNow(format!("{what}: it needs \"yes\": true; nothing was changed")))
            }
            _ => Ok(()),
        };
        match asked.operation.ask(&of).await? {
            Ask::Request(request) if request.kind.is_move() => self.request(request).await,
            Ask::Request(request) => self.job_request(request).await,
            Ask::Order(order) => {
                confirmed(order.question.clone())?;
                let (report, changes) = order.give(&of).await?;
                let request = order_id(changes);
                let given = Given { request: request.clone(), outcome: Done::Done, order: report.outcome };
                Ok(accepted(&self.job, &request, &given))
            }
            Ask::Deed(question, work) => {
                confirmed(question)?;
                let report = work.await?;
                Ok(reported(report.text, answer(StatusCode::OK, &report.outcome)))
            }
            Ask::Unknown(name) => Err(name.into()),
        }
    }

    /// Files a request, or takes leadership at once where the recipe has no elector.
    async fn request(&self, request: AdminRequest) -> Result<Response, Error> {
        let Self { operator, job, paths } = self;
        if let RequestState::Planned { .. } = request.state {
            moves::check_plan(operator, job, paths, &request).await?;
            let filed = election_admin::ask(&operator.session, paths, request).await?;
            return Ok(accepted(job, &filed.which.name, &Moved::Filed(Filed::new(job, &filed))));
        }
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        if snapshot.layout != Layout::Elector {
            contest::check(job, snapshot.layout, &request)?;
            let old = election_admin::vacate(&operator.session, paths).await?;
            let text = format!("took {job} from {}", old.member);
            let taken = Taken { election: job.clone(), request: (), taken_from: old.member };
            return Ok(reported(text, answer(StatusCode::OK, &Moved::Taken(taken))));
        }
        if let Some(leader) = moves::check(operator, job, &snapshot, &request).await? {
            let needless = answer(StatusCode::OK, &Moved::Needless(Needless::new(job, Some(&leader))));
            return Ok(reported(format!("{} leads {job} already", leader.member), needless));
        }
        let filed = match request.kind {
            RequestKind::Failover => self.failover(request).await?,
            _ => election_admin::ask(&operator.session, paths, request).await?,
        };
        Ok(accepted(job, &filed.which.name, &Moved::Filed(Filed::new(job, &filed))))
    }

    /// Files a failover, and decides it if no elector does. Both are in a task of their own: a failover that is filed after the
    /// client was told that ZooKeeper does not answer is decided, too.
    async fn failover(&self, request: AdminRequest) -> Result<FiledRequest, Error> {
        let (desk, valid_for) = (self.clone(), request.valid_for());
        let until = BootTime::now() + valid_for;
        let (report, filed) = oneshot::channel();
        tokio::spawn(async move {
            let filing = election_admin::ask(&desk.operator.session, &desk.paths, request);
            let Ok(filed) = tokio::time::timeout(valid_for, filing).await else { return };
            let decide = filed.as_ref().ok().cloned();
            let _ = report.send(filed);
            if let Some(filed) = decide {
                desk.decide_without_elector(filed, until).await;
            }
        });
        let late = |_| Error::Unreachable("the request was not filed in time".to_owned());
        Ok(filed.await.map_err(late)??)
    }

    /// Files a request about the job, unless there is nothing to do.
    async fn job_request(&self, request: AdminRequest) -> Result<Response, Error> {
        let Self { operator, job, paths } = self;
        let (_, news) = job_requests::check(operator, job, paths, &request).await?;
        if let Some(news) = news {
            return Ok(reported(news, answer(StatusCode::OK, &Halted::Needless(Needless::new(job, None)))));
        }
        let filed = election_admin::ask(&operator.session, paths, request).await?;
        Ok(accepted(job, &filed.which.name, &Halted::Filed(Filed::new(job, &filed))))
    }

    /// A failover must not depend on an elector: if none begins it, this worker decides.
    async fn decide_without_elector(self, filed: FiledRequest, until: BootTime) {
        let (job, request) = (&self.job, &filed.which.name);
        match self.decide(&filed, until).await {
            Ok(None) => {}
            Ok(Some(outcome)) => tracing::info!(job, request, outcome, "failover without an elector"),
            Err(error) => tracing::warn!(job, request, %error, "failover without an elector was not decided"),
        }
    }

    /// What became of it; `None` if an elector has begun it.
    async fn decide(&self, filed: &FiledRequest, until: BootTime) -> Result<Option<String>, Error> {
        let Self { operator, job, paths } = self;
        let begun = moves::until_begun(operator, paths, filed, BootTime::now() + moves::PATIENCE).await?;
        if begun.is_none_or(|request| request.state != RequestState::Pending) {
            return Ok(None);
        }
        match moves::decide(operator, job, paths, filed, until, || {}).await? {
            Decision::Made => Ok(Some("decided by this worker".to_owned())),
            // It is still open, and an elector may begin it.
            Decision::StillLed(why) => Ok(Some(why)),
            Decision::Refused(why) | Decision::NotNow(why) => {
                let reason = format!("by {} ({why})", filed.request.by);
                election_admin::cancel(&operator.session, paths, &filed.which, &reason).await?;
                Ok(Some(format!("withdrawn: {why}")))
            }
        }
    }

    /// The outcome of a request or of a standing order.
    async fn outcome(self, id: &str) -> Result<Response, Error> {
        let Self { operator, job, paths } = &self;
        if let Some(number) = id.strip_prefix("o-") {
            let (control, changes) = orders::read(&operator.session, paths).await?;
            return Ok(match number.parse::<u64>() {
                Ok(number) if number <= changes => {
                    let (outcome, mode) = (Reached::Order(Done::Done), Some(control.mode));
                    answer(StatusCode::OK, &RequestOutcome { election: job, request: id, outcome, mode })
                }
                _ => refuse(StatusCode::NOT_FOUND, &format!("{job} has no request {id}")),
            });
        }
        if !RequestRef::is_name(id) {
            return Ok(refuse(
                StatusCode::NOT_FOUND,
                "a request's id looks like r-0000000000 or o-0000000000",
            ));
        }
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        let found = snapshot.requests.into_iter().find(|filed| filed.which.name == id);
        Ok(match found {
            Some(FiledRequest { request, .. }) => {
                let outcome = Reached::Request(request.state);
                answer(StatusCode::OK, &RequestOutcome { election: job, request: id, outcome, mode: None })
            }
            None => {
                refuse(StatusCode::NOT_FOUND, &format!("{job} has no request {id}; old ones are removed"))
            }
        })
    }
}

/// The id of the change of standing orders with this number.
fn order_id(number: u64) -> String {
    format!("o-{number:010}")
}

/// 202 with the request's id, and where to find its outcome.
fn accepted(job: &str, id: &str, body: &impl Serialize) -> Response {
    let mut response = answer(StatusCode::ACCEPTED, body);
    if let Ok(place) = HeaderValue::from_str(&format!("/requests/{id}?job={job}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    reported(format!("{job}: {id}"), response)
}

fn reported(outcome: String, response: Response) -> Response {
    (Extension(LoggedOutcome(outcome)), response).into_response()
}

/// Who asks, for the records.
fn asker(worker: &Worker, peer: &Peer) -> String {
    let (address, id) = (peer.address.ip(), &worker.node().id);
    match peer.certificate() {
        None | Some("") => format!("{address} by HTTP at {id}"),
        Some(name) => format!("{name} ({address}) by HTTP at {id}"),
    }
}

/// The answer, if ZooKeeper lets it come in time.
async fn in_time(work: impl Future<Output = Result<Response, Error>>) -> Response {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => failed(&error),
        Err(_) => failed(&Error::Unreachable(format!(
            "ZooKeeper did not answer within {}; check /cluster before you try again",
            humantime::format_duration(PATIENCE)
        ))),
    }
}

/// Carries out an operation in one election.
pub(super) async fn carry_out(
    declared: &Declared,
    worker: Arc<Worker>,
    peer: Peer,
    which: JobQuery,
    body: Bytes,
) -> Answered {
    let asked = body::read(declared, &body)?;
    let desk = match declared.takes.jobs {
        Jobs::OfRoot => Desk::of(&worker, PLANS.to_owned())?,
        _ => Desk::new(&worker, which, asked.options.job.as_deref())?,
    };
    Ok(in_time(desk.carry_out(asked, asker(&worker, &peer))).await)
}

/// The last evacuation of a site.
pub(super) async fn evacuation(State(worker): State<Arc<Worker>>) -> Answered {
    let Desk { operator, paths, .. } = Desk::of(&worker, PLANS.to_owned())?;
    let read = async {
        let evacuation = store::read(&operator.session, &paths).await?.map(Evacuated::from);
        Ok(answer(StatusCode::OK, &LastEvacuation { evacuation }))
    };
    Ok(in_time(read).await)
}

pub(super) async fn outcome(
    State(worker): State<Arc<Worker>>,
    Path(id): Path<String>,
    Query(which): Query<JobQuery>,
) -> Answered {
    let desk = Desk::new(&worker, which, None)?;
    Ok(in_time(desk.outcome(&id)).await)
}
