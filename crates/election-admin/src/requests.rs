//! Requests of operators: ask, wait for the outcome, withdraw.

use std::time::Duration;

use zk_session::{BootTime, CreateMode, MultiOp, OpError, Recovery, Session, sleep_until};

use crate::{
    change::Attempts,
    error::{AdminError, Hindrance, OpenRequest, Refusal},
    observer::{Observer, Snapshot},
};
use election_core::{
    Paths,
    internals::{
        Layout, ReadError, not_now,
        record::{
            AdminRequest, Elected, FiledRequest, Outgoing, Record, RequestKind, RequestRef, RequestState,
            Target,
        },
        unix_ms,
    },
};

/// A request that is pending, valid for [`AdminRequest::USUAL_VALIDITY`].
pub fn new_request(
    kind: RequestKind,
    from: Outgoing,
    to: Target,
    force: bool,
    reason: Option<String>,
    by: String,
) -> AdminRequest {
    let request = AdminRequest::new(uuid::Uuid::new_v4().to_string(), kind, to, by, unix_ms());
    request.with(|request| (request.from, request.force, request.reason) = (from, force, reason))
}

/// Files a request for the elector, or for the leader if it is about its job.
///
/// # Errors
/// When ZooKeeper doesn't answer, or there is no such election; [`AdminError::NotNow`] when the mode forbids the
/// request, or another request about the same leader is open.
pub async fn ask(
    session: &Session,
    paths: &Paths,
    request: AdminRequest,
) -> Result<FiledRequest, AdminError> {
    let seen = Observer::new(session.active().await?).snapshot(paths).await?;
    file(session, paths, &seen, request).await
}

/// As [`ask`], for a caller who has just read the election.
///
/// # Errors
/// As of [`ask`].
pub async fn file(
    session: &Session,
    paths: &Paths,
    seen: &Snapshot,
    request: AdminRequest,
) -> Result<FiledRequest, AdminError> {
    check(paths, seen, &request)?;
    let incarnation = session.active().await?;
    let prefix = paths.request_prefix();
    let data = request.encode(&prefix)?;
    // The request's id makes the data unique, so a lost reply does not cause a second request.
    let create =
        || incarnation.create_sequential(&prefix, data.clone(), CreateMode::Persistent, Recovery::Data);
    let created = match create().await {
        Err(OpError::NoNode { .. }) => {
            incarnation.create_parents(&prefix).await?;
            create().await?
        }
        created => created?,
    };
    let name = created.path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(FiledRequest { which: RequestRef { czxid: created.stat.czxid, name }, request })
}

/// What files a request under this name in a transaction of the caller, and only while the decision is the one that was seen.
/// The name is one that [`RequestRef::is_name`] accepts and that no other request has: longer than those that ZooKeeper counts.
/// `requests` exists, as [`ask`] leaves it.
///
/// # Errors
/// As of [`ask`].
pub fn filing(
    paths: &Paths,
    seen: &Snapshot,
    name: &str,
    request: &AdminRequest,
) -> Result<[MultiOp; 2], AdminError> {
    check(paths, seen, request)?;
    let path = paths.request(name);
    let data = request.encode(&path)?;
    let decision = MultiOp::check(paths.elected(), seen.elected.as_ref().map(|decision| decision.version));
    Ok([decision, MultiOp::create(path, data, CreateMode::Persistent)])
}

fn check(paths: &Paths, seen: &Snapshot, request: &AdminRequest) -> Result<(), AdminError> {
    if seen.layout != Layout::Elector {
        return Err(ReadError::NoElection(paths.base().to_owned()).into());
    }
    hindrance(paths, seen, request).map_or(Ok(()), |why| Err(why.into()))
}

/// Why a request is refused before it is filed: the mode forbids it, or another request about the same leader or its job is
/// open.
pub fn hindrance(paths: &Paths, seen: &Snapshot, request: &AdminRequest) -> Option<Hindrance> {
    if request.kind.is_move() {
        let (orders, decided, leaders) = (&seen.control, seen.decided(), seen.leaders());
        let why = not_now(request, orders, decided, &leaders, &seen.members, &seen.requests);
        return why.map(|why| Hindrance::Rules { election: paths.name().to_owned(), why });
    }
    let slot = seen.slot_for(request).ok();
    let mut open = seen.requests.iter().filter(|other| other.request.state.is_open());
    // A move of another slot does not matter, and of requests about standbys only those about the same one.
    let matters = |other: &AdminRequest| match (request.kind, other.kind) {
        (kind, of) if kind.is_about_standby() || of.is_about_standby() => {
            request.standby_of() == other.standby_of()
        }
        (RequestKind::Restart, kind) if kind.is_move() => seen.slot_for(other).ok() == slot,
        // A leader that starts the job obeys a stop.
        (RequestKind::Stop, RequestKind::Restart | RequestKind::Start) => other.state.is_unbegun(),
        (_, kind) => !kind.is_move(),
    };
    let open = open.find(|other| matters(&other.request))?;
    let FiledRequest { which, request: AdminRequest { kind, state, .. } } = open;
    let (election, name) = (paths.name().to_owned(), which.name.clone());
    Some(OpenRequest { election, name, kind: *kind, state: state.clone() }.into())
}

/// The same election with this request filed, as input for `explain` and `simulate`. Nothing is written.
pub fn filed(seen: &Snapshot, request: AdminRequest) -> Snapshot {
    let newest = seen.requests.iter().map(|filed| filed.which.czxid).max();
    let newest = newest.max(seen.elected.as_ref().map(|decision| decision.mzxid)).unwrap_or(0);
    let which = RequestRef { czxid: newest.saturating_add(1), name: "r-dry-run".to_owned() };
    let mut then = seen.clone();
    then.requests.push(FiledRequest { which, request });
    then
}

/// Waits until a request has ended, or until `deadline`. Returns the request as it is then. `progress` is called for
/// each change.
///
/// # Errors
/// When the request can't be read or no longer exists.
///
/// # Cancel safety
/// Cancel safe: the request goes on.
pub async fn follow(
    session: &Session,
    paths: &Paths,
    which: &RequestRef,
    deadline: BootTime,
    mut progress: impl FnMut(&AdminRequest),
) -> Result<Option<AdminRequest>, AdminError> {
    let path = paths.request(&which.name);
    let mut watch = session.watch_data(path.clone());
    let mut last: Option<AdminRequest> = None;
    loop {
        let seen = tokio::select! {
            seen = watch.next() => seen?,
            () = sleep_until(deadline) => return Ok(last),
        };
        // Another request can have its name after `requests` was deleted.
        let Some(node) = seen.value.filter(|node| node.stat.czxid == which.czxid) else {
            return Err(Refusal::RequestGone(path).into());
        };
        let request = AdminRequest::decode(&path, &node.data)?;
        if last.as_ref() != Some(&request) {
            progress(&request);
        }
        let done = request.state.is_final();
        last = Some(request);
        if done {
            return Ok(last);
        }
    }
}

/// The request that has this name now.
///
/// # Errors
/// When ZooKeeper doesn't answer, the request can't be read, or does not exist.
pub async fn request(session: &Session, paths: &Paths, name: &str) -> Result<FiledRequest, AdminError> {
    let path = paths.request(name);
    // It may have been created recently, through another server.
    let Some(node) = Attempts::over(session).look().await?.read(&path).await? else {
        return Err(Refusal::NoRequest(path).into());
    };
    let which = RequestRef { czxid: node.czxid, name: name.to_owned() };
    Ok(FiledRequest { which, request: AdminRequest::decode(&path, &node.data)? })
}

/// The outcome of a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It will never be begun.
    Withdrawn(AdminRequest),
    /// It had begun or ended before, as its state shows.
    TooLate(AdminRequest),
}

/// Withdraws a request, by compare-and-set on it, while it is pending. The decision that begins a request is written in
/// one transaction with it, so a request is either begun or withdrawn. `why` is recorded: who withdraws it, and the
/// reason.
///
/// # Errors
/// When ZooKeeper doesn't answer, or the request can't be read or no longer exists.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn cancel(
    session: &Session,
    paths: &Paths,
    which: &RequestRef,
    why: &str,
) -> Result<Withdrawal, AdminError> {
    let path = paths.request(&which.name);
    let mut written: Option<RequestState> = None;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let node = observer.read(&path).await?.filter(|node| node.czxid == which.czxid);
        let node = node.ok_or_else(|| Refusal::RequestGone(path.clone()))?;
        let request = AdminRequest::decode(&path, &node.data)?;
        if !request.state.is_unbegun() {
            // The reply was lost.
            let own = written.as_ref() == Some(&request.state);
            let found = if own { Withdrawal::Withdrawn(request) } else { Withdrawal::TooLate(request) };
            return Ok(found);
        }
        // A failover that no elector carries out writes the decision alone, and the request after it.
        if let Some(elected) = observer.record::<Elected>(&paths.elected()).await?
            && let Some(slot) = elected.slot_for(which)
        {
            let state = RequestState::Accepted { term: elected.term_of(slot) };
            return Ok(Withdrawal::TooLate(request.with(|request| request.state = state)));
        }
        let state = RequestState::Cancelled { reason: why.to_owned(), at_ms: unix_ms() };
        written = Some(state.clone());
        let request = request.with(|request| request.state = state);
        let data = request.encode(&path)?;
        if attempts.write([MultiOp::set(&path, data, node.version)]).await? {
            return Ok(Withdrawal::Withdrawn(request));
        }
    }
}

/// How long an operator's request may wait for an elector before the operator is informed that there seems to be none.
pub const ELECTOR_PATIENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_being_started_can_be_stopped() {
        use RequestKind::{Restart, Start, Stop};
        let paths = Paths::new("/dr", "orders").unwrap();
        let asked = |kind| AdminRequest::new("1".to_owned(), kind, Target::Any, "ann".to_owned(), 1);
        let hindered = |kind, open: RequestKind, state: RequestState| {
            let open = asked(open).with(|open| open.state = state);
            hindrance(&paths, &filed(&Snapshot::default(), open), &asked(kind)).map(|why| why.to_string())
        };
        let begun = RequestState::Accepted { term: 4 };
        for open in [Restart, Start] {
            assert_eq!(hindered(Stop, open, begun.clone()), None);
            let why = hindered(Stop, open, RequestState::Pending).unwrap();
            assert!(why.ends_with("wait for it to end, or cancel it"), "{why}");
        }
        for (kind, open) in [(Stop, Stop), (Start, Stop), (Restart, Stop), (Start, Restart)] {
            let why = hindered(kind, open, begun.clone()).unwrap();
            assert!(why.ends_with("; wait for it to end"), "{why}");
        }
    }
}
