//! `/switchover`, `/failover`, `/restart`, `/stop`, `/start`, `/pause`, `/resume` and `/requests/ID`: the commands of the
//! same name, by HTTP.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Bytes,
    extract::{ConnectInfo, Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use election_admin::{Layout, orders};
use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::{
        record::{
            AdminRequest, Control, FiledRequest, Outgoing, RequestKind, RequestRef, RequestState, Target,
        },
        text::Text,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use zk_session::BootTime;

use super::{
    answer::{Outcome, answer, failed, refuse},
    connections::Peer,
    roles::Which,
};
use crate::{
    commands::{
        Operator, contest, job_requests,
        moves::{self, Decision},
        plan, standing,
    },
    error::Error,
    wall::unix_ms,
    worker::state::Worker,
};

/// The longest body of a request.
pub(super) const LONGEST_BODY: usize = 16 * 1024;

/// How long ZooKeeper may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body of `/switchover` and `/failover`: as the options of the commands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Move {
    job: Option<String>,
    to: Option<MemberId>,
    to_site: Option<SiteId>,
    from: Option<MemberId>,
    slot: Option<usize>,
    force: bool,
    now: bool,
    accept_loss: bool,
    reason: Option<Text>,
    at: Option<String>,
    within: Option<String>,
}

impl Move {
    fn request(&self, kind: RequestKind, by: String) -> Result<AdminRequest, Error> {
        let to = match (&self.to, &self.to_site) {
            (Some(_), Some(_)) => return Err(exclusive("to", "to_site")),
            (Some(member), None) => Target::Member(member.clone()),
            (None, Some(site)) => Target::Site(site.clone()),
            (None, None) => Target::Any,
        };
        let from = outgoing(&self.from, self.slot)?;
        if self.force && kind == RequestKind::Switchover {
            return Err(Error::Usage("\"force\" is for /failover only".to_owned()));
        }
        if self.now && !self.force {
            return Err(Error::Usage("\"now\" needs \"force\"".to_owned()));
        }
        let mut request = election_admin::new_request(
            kind,
            from,
            to,
            self.force,
            self.reason.clone().map(Text::into_string),
            by,
        );
        (request.accept_loss, request.now) = (self.accept_loss, self.now);
        match (&self.at, &self.within) {
            (None, None) => Ok(request),
            (Some(at), within) if kind == RequestKind::Switchover => {
                let within = within.as_deref().map(humantime::parse_duration).transpose();
                let within = within.map_err(|why| Error::Usage(format!("\"within\": {why}")))?;
                plan::plan(request, at, within, unix_ms())
            }
            (Some(_), _) => Err(Error::Usage("\"at\" is for /switchover only".to_owned())),
            (None, Some(_)) => Err(Error::Usage("\"within\" needs \"at\"".to_owned())),
        }
    }
}

/// The body of `/restart`, `/stop` and `/start`: as the options of the commands.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JobRequest {
    job: Option<String>,
    from: Option<MemberId>,
    slot: Option<usize>,
    reason: Option<Text>,
}

impl JobRequest {
    fn request(&self, kind: RequestKind, by: String) -> Result<AdminRequest, Error> {
        let from = outgoing(&self.from, self.slot)?;
        if kind != RequestKind::Restart && !from.is_only() {
            return Err(Error::Usage(format!(
                "\"from\" and \"slot\" are for /restart only: /{} is for all leaders of the job",
                kind.as_str()
            )));
        }
        Ok(election_admin::new_request(
            kind,
            from,
            Target::Any,
            false,
            self.reason.clone().map(Text::into_string),
            by,
        ))
    }
}

/// The leader that a request is about.
fn outgoing(from: &Option<MemberId>, slot: Option<usize>) -> Result<Outgoing, Error> {
    match (from, slot) {
        (Some(_), Some(_)) => Err(exclusive("from", "slot")),
        (Some(member), None) => Ok(Outgoing::Member(member.clone())),
        (None, Some(slot)) => Ok(Outgoing::Slot(slot)),
        (None, None) => Ok(Outgoing::Only),
    }
}

fn exclusive(one: &str, other: &str) -> Error {
    Error::Usage(format!("give {one:?} or {other:?}, not both"))
}

/// The body of `/pause` and `/resume`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Order {
    job: Option<String>,
    reason: Option<Text>,
}

/// The body of a request; an empty one has the defaults.
fn parse<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Error> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| Error::Usage(format!("the body is not understood: {error}")))
}

/// An election of this worker, and the means to change it.
struct Desk {
    operator: Operator,
    job: String,
    paths: Paths,
}

impl Desk {
    /// `named` is the job that the body names.
    fn new(worker: &Worker, which: Which, named: Option<String>) -> Result<Self, Box<Response>> {
        let job = match (which.job, named) {
            (Some(one), Some(other)) if one != other => {
                let why = format!("?job={one} and \"job\": {other:?} in the body differ");
                return Err(Box::new(refuse(StatusCode::BAD_REQUEST, &why)));
            }
            (one, other) => one.or(other),
        };
        let job = Which { job }.of_member(worker)?.slot.name().to_owned();
        let unusable = |error: Error| Box::new(failed(&error));
        let session = worker.session().filter(|session| session.incarnation().is_some()).cloned();
        let session = session
            .ok_or_else(|| unusable(Error::Unreachable("no ZooKeeper session at the moment".to_owned())))?;
        let config = worker.config().what_if(&[]).map_err(|problems| unusable(problems.into()))?;
        let operator = Operator { config, session };
        let paths = operator.paths(&job).map_err(unusable)?;
        Ok(Self { operator, job, paths })
    }

    /// Files a request, or takes leadership at once where the recipe has no elector.
    async fn request(self, request: AdminRequest) -> Result<Response, Error> {
        let Self { operator, job, paths } = &self;
        if let RequestState::Planned { .. } = request.state {
            moves::check_plan(operator, job, paths, &request).await?;
            return Ok(self.file(request).await?.1);
        }
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        match snapshot.layout {
            Layout::Elector => {}
            layout => {
                contest::check(job, layout, &request)?;
                let old = election_admin::vacate(&operator.session, paths).await?;
                let body = json!({ "election": job, "request": null, "taken_from": old.member });
                return Ok(reported(
                    format!("took {job} from {}", old.member),
                    answer(StatusCode::OK, &body),
                ));
            }
        }
        if let Some(leader) = moves::check(operator, job, &snapshot, &request).await? {
            let outcome = json!({ "state": "done", "term": leader.term, "leader": leader.member });
            let body = json!({ "election": job, "request": null, "outcome": outcome });
            return Ok(reported(
                format!("{} leads {job} already", leader.member),
                answer(StatusCode::OK, &body),
            ));
        }
        let until = BootTime::now() + request.valid_for();
        let (filed, response) = self.file(request).await?;
        if filed.request.kind == RequestKind::Failover {
            tokio::spawn(self.decide_without_elector(filed, until));
        }
        Ok(response)
    }

    /// Files a request about the job, unless there is nothing to do.
    async fn job_request(self, mut request: AdminRequest) -> Result<Response, Error> {
        let Self { operator, job, paths } = &self;
        let (_, news) = job_requests::check(operator, job, paths, &mut request).await?;
        if let Some(news) = news {
            let body = json!({ "election": job, "request": null, "outcome": { "state": "done" } });
            return Ok(reported(news, answer(StatusCode::OK, &body)));
        }
        Ok(self.file(request).await?.1)
    }

    async fn file(&self, request: AdminRequest) -> Result<(FiledRequest, Response), Error> {
        let Self { operator, job, paths } = self;
        let filed = election_admin::ask(&operator.session, paths, request).await?;
        let response = accepted(job, &filed.which.name, &plan::shown(job, &filed));
        Ok((filed, response))
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

    /// Changes the standing orders.
    async fn order(
        self,
        by: &str,
        reason: Option<Text>,
        change: fn(&mut Control),
    ) -> Result<Response, Error> {
        let Self { operator, job, paths } = &self;
        let ordered = orders::order(&operator.session, paths, by, reason.as_deref(), change).await?;
        let id = order_id(ordered.changes);
        let mut body = standing::shown(job, &ordered);
        body["request"] = json!(id);
        body["outcome"] = json!({ "state": "done" });
        Ok(accepted(job, &id, &body))
    }

    /// The outcome of a request or of a standing order.
    async fn outcome(self, id: &str) -> Result<Response, Error> {
        let Self { operator, job, paths } = &self;
        if let Some(number) = id.strip_prefix("o-") {
            let (control, changes) = orders::read(&operator.session, paths).await?;
            let body = json!({
                "election": job, "request": id, "outcome": { "state": "done" }, "mode": control.mode,
            });
            return Ok(match number.parse::<u64>() {
                Ok(number) if number <= changes => answer(StatusCode::OK, &body),
                _ => refuse(StatusCode::NOT_FOUND, &format!("{job} has no request {id}")),
            });
        }
        if !RequestRef::is_name(id) {
            return Ok(refuse(
                StatusCode::NOT_FOUND,
                "a request's id is such as r-0000000000 or o-0000000000",
            ));
        }
        let snapshot = operator.observer().await?.snapshot(paths).await?;
        let found = snapshot.requests.into_iter().find(|filed| filed.which.name == id);
        Ok(match found {
            Some(FiledRequest { request, .. }) => {
                let body = json!({ "election": job, "request": id, "outcome": request.state });
                answer(StatusCode::OK, &body)
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
fn accepted(job: &str, id: &str, body: &serde_json::Value) -> Response {
    let mut response = answer(StatusCode::ACCEPTED, body);
    if let Ok(place) = HeaderValue::from_str(&format!("/requests/{id}?job={job}")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    reported(format!("{job}: {id}"), response)
}

fn reported(outcome: String, response: Response) -> Response {
    (Extension(Outcome(outcome)), response).into_response()
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

pub(super) async fn switchover(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    move_leadership(&worker, peer, which, RequestKind::Switchover, &body).await
}

pub(super) async fn failover(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    move_leadership(&worker, peer, which, RequestKind::Failover, &body).await
}

async fn move_leadership(
    worker: &Worker,
    peer: Peer,
    which: Which,
    kind: RequestKind,
    body: &[u8],
) -> Response {
    let asked =
        parse::<Move>(body).and_then(|wanted| Ok((wanted.request(kind, asker(worker, &peer))?, wanted.job)));
    let (request, named) = match asked {
        Ok(asked) => asked,
        Err(error) => return failed(&error),
    };
    match Desk::new(worker, which, named) {
        Ok(desk) => in_time(desk.request(request)).await,
        Err(refusal) => *refusal,
    }
}

pub(super) async fn restart(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    about_job(&worker, peer, which, RequestKind::Restart, &body).await
}

pub(super) async fn stop(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    about_job(&worker, peer, which, RequestKind::Stop, &body).await
}

pub(super) async fn start(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    about_job(&worker, peer, which, RequestKind::Start, &body).await
}

async fn about_job(worker: &Worker, peer: Peer, which: Which, kind: RequestKind, body: &[u8]) -> Response {
    let asked = parse::<JobRequest>(body)
        .and_then(|wanted| Ok((wanted.request(kind, asker(worker, &peer))?, wanted.job)));
    let (request, named) = match asked {
        Ok(asked) => asked,
        Err(error) => return failed(&error),
    };
    match Desk::new(worker, which, named) {
        Ok(desk) => in_time(desk.job_request(request)).await,
        Err(refusal) => *refusal,
    }
}

pub(super) async fn pause(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    order(&worker, peer, which, &body, standing::set_paused).await
}

pub(super) async fn resume(
    State(worker): State<Arc<Worker>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(which): Query<Which>,
    body: Bytes,
) -> Response {
    order(&worker, peer, which, &body, standing::end_pause).await
}

async fn order(worker: &Worker, peer: Peer, which: Which, body: &[u8], change: fn(&mut Control)) -> Response {
    let Order { job, reason } = match parse(body) {
        Ok(order) => order,
        Err(error) => return failed(&error),
    };
    match Desk::new(worker, which, job) {
        Ok(desk) => in_time(desk.order(&asker(worker, &peer), reason, change)).await,
        Err(refusal) => *refusal,
    }
}

pub(super) async fn outcome(
    State(worker): State<Arc<Worker>>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Response {
    match Desk::new(&worker, which, None) {
        Ok(desk) => in_time(desk.outcome(&id)).await,
        Err(refusal) => *refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_like_the_options_of_the_command() {
        let request = |kind, body: &str| parse::<Move>(body.as_bytes())?.request(kind, "me".to_owned());
        let request_of = |body: &str| request(RequestKind::Switchover, body).unwrap();
        assert_eq!(request_of("").to, Target::Any);
        assert_eq!(request_of(" \n").from, Outgoing::Only);
        let to = request_of(r#"{"to": "west-1", "slot": 1, "reason": "drill", "accept_loss": true}"#);
        assert_eq!(to.to, Target::Member(MemberId::new("west-1").unwrap()));
        assert_eq!((to.from, to.reason.as_deref(), to.accept_loss), (Outgoing::Slot(1), Some("drill"), true));
        let forced = request(RequestKind::Failover, r#"{"to_site": "west", "force": true}"#).unwrap();
        assert!(forced.force && !forced.now && forced.to == Target::Site(SiteId::new("west").unwrap()));
        assert!(request(RequestKind::Failover, r#"{"force": true, "now": true}"#).unwrap().now);
        let planned = request_of(r#"{"at": "+30m", "within": "10m"}"#);
        assert!(matches!(planned.state, RequestState::Planned { .. }), "{planned:?}");
        assert_eq!(planned.valid_for(), Duration::from_secs(600));
        let why = request(RequestKind::Failover, r#"{"at": "+30m"}"#).unwrap_err().to_string();
        assert!(why.contains("for /switchover only"), "{why}");
        for (body, part) in [
            (r#"{"too": "west-1"}"#, "unknown field `too`"),
            (r#"{"to": "a", "to_site": "b"}"#, "not both"),
            (r#"{"from": "a", "slot": 0}"#, "not both"),
            (r#"{"force": true}"#, "for /failover only"),
            (r#"{"now": true}"#, "needs \"force\""),
            (r#"{"to": "a/b"}"#, "not understood"),
            (r#"{"at": "tomorrow"}"#, "is not a time"),
            (r#"{"at": "+1m", "within": "long"}"#, "\"within\""),
            (r#"{"within": "1m"}"#, "needs \"at\""),
            ("[]x", "not understood"),
        ] {
            let why = request(RequestKind::Switchover, body).unwrap_err();
            assert!(matches!(&why, Error::Usage(text) if text.contains(part)), "{body}: {why}");
        }
        let request = |kind, body: &str| parse::<JobRequest>(body.as_bytes())?.request(kind, "me".to_owned());
        let restart = request(RequestKind::Restart, r#"{"slot": 1, "reason": "new data"}"#).unwrap();
        assert_eq!((restart.from, restart.reason.as_deref()), (Outgoing::Slot(1), Some("new data")));
        let why = request(RequestKind::Stop, r#"{"from": "east-1"}"#).unwrap_err();
        assert!(matches!(&why, Error::Usage(text) if text.contains("for /restart only")), "{why}");
    }
}
