//! What an operator does from outside: ask, wait, and force.

use std::time::Duration;

use zk_session::{BootTime, CreateMode, OpError, Recovery, Session, sleep_until};

use super::{
    contests::{Layout, place_of},
    observer::{Observer, ReadError},
    operations::{begin, delete_while},
    unix_ms,
};
use crate::{
    engine::{ForceStep, NoSuchToken, Policy, fencing_token, force_step, not_now},
    paths::Paths,
    record::{
        Current, Elected, FiledRequest, MAX_SLOTS, Outgoing, Record, RecordError, Request, RequestKind,
        RequestRef, RequestState, Target, VERSION,
    },
    strategy::Strategy,
    time::in_words,
};

pub use super::ghosts::remove_ghost;

/// How many times a step is tried again after losing a race.
pub(super) const TRIES: u32 = 50;

/// Whether a compare-and-set lost a race, or has an unknown outcome: what stands there now tells.
pub(super) const fn is_worth_another_look(error: &OpError) -> bool {
    matches!(
        error,
        OpError::BadVersion { .. }
            | OpError::NodeExists { .. }
            | OpError::NoNode { .. }
            | OpError::Unknown { .. }
    )
}

/// Why a compare-and-set was given up.
pub(super) fn too_many_races() -> OperatorError {
    OperatorError::Refused(format!("gave up after losing {TRIES} races; try again"))
}

/// Why an operator's wish was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OperatorError {
    /// ZooKeeper did not answer as it should.
    #[error(transparent)]
    Session(#[from] OpError),
    /// The election could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record can't be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No resource can have seen such a token.
    #[error(transparent)]
    Token(#[from] NoSuchToken),
    /// It can't be done; why, in words.
    #[error("{0}")]
    Refused(String),
    /// It can't be done now; why, and what ends that, in words.
    #[error("{0}")]
    NotNow(String),
    /// The session was closed.
    #[error("the ZooKeeper session was closed")]
    Closed,
}

impl From<zk_session::Closed> for OperatorError {
    fn from(_: zk_session::Closed) -> Self {
        Self::Closed
    }
}

/// A request that is pending, valid for [`Request::USUAL_VALIDITY`].
pub fn new_request(
    kind: RequestKind,
    from: Outgoing,
    to: Target,
    force: bool,
    reason: Option<String>,
    by: String,
) -> Request {
    Request {
        v: VERSION,
        id: uuid::Uuid::new_v4().to_string(),
        kind,
        from,
        to,
        force,
        accept_loss: false,
        reason,
        by,
        created_ms: unix_ms(),
        valid_for_ms: 0,
        state: RequestState::Pending,
    }
    .with_validity(Request::USUAL_VALIDITY)
}

/// Puts a request where the elector finds it.
///
/// # Errors
/// When ZooKeeper doesn't answer, or there is no such election; [`OperatorError::NotNow`] when the mode forbids what
/// is asked for, or another request about the same leader is open.
pub async fn ask(session: &Session, paths: &Paths, request: Request) -> Result<FiledRequest, OperatorError> {
    let incarnation = session.active().await?;
    let observer = Observer::new(incarnation.clone());
    if observer.read(&paths.election()).await?.is_none() {
        return Err(ReadError::NoElection(paths.base().to_owned()).into());
    }
    // This server may not have heard yet of an order that was just given.
    incarnation.barrier().await?;
    let seen = observer.snapshot(paths).await?;
    let offices: Vec<_> = seen.offices.iter().map(|o| o.as_ref().map(|o| &o.record)).collect();
    let hindered = not_now(&request, &seen.control, seen.decided(), &offices, &seen.members, &seen.requests);
    if let Some(why) = hindered {
        return Err(OperatorError::NotNow(why));
    }
    let prefix = paths.request_prefix();
    let data = request.encode(&prefix)?;
    // The request's id makes the data unique, so a lost reply makes no second one.
    incarnation.create_parents(&prefix).await?;
    let created =
        incarnation.create_sequential(&prefix, data, CreateMode::Persistent, Recovery::Data).await?;
    let name = created.path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(FiledRequest { which: RequestRef { czxid: created.stat.czxid, name }, request })
}

/// Waits until a request has ended, or until `deadline`; the request as it stands
/// then. `progress` hears of each change.
///
/// # Errors
/// When the request can't be read or is not there any more.
///
/// # Cancel safety
/// Cancel safe: the request goes on.
pub async fn follow(
    session: &Session,
    paths: &Paths,
    which: &RequestRef,
    deadline: BootTime,
    mut progress: impl FnMut(&Request),
) -> Result<Option<Request>, OperatorError> {
    let path = paths.request(&which.name);
    let mut watch = session.watch_data(path.clone());
    let mut last: Option<Request> = None;
    loop {
        let seen = tokio::select! {
            seen = watch.next() => seen?,
            () = sleep_until(deadline) => return Ok(last),
        };
        // Another one can have its name, once `requests` was deleted.
        let Some(node) = seen.value.filter(|node| node.stat.czxid == which.czxid) else {
            return Err(OperatorError::Refused(format!("the request {path} is not there any more")));
        };
        let request = Request::decode(&path, &node.data)?;
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
/// When ZooKeeper doesn't answer, the request can't be read, or there is none.
pub async fn request(session: &Session, paths: &Paths, name: &str) -> Result<FiledRequest, OperatorError> {
    let incarnation = session.active().await?;
    // It may have been made a moment ago, over another server.
    incarnation.barrier().await?;
    let path = paths.request(name);
    let Some(node) = Observer::new(incarnation).read(&path).await? else {
        return Err(OperatorError::Refused(format!("there is no request {path}")));
    };
    let which = RequestRef { czxid: node.czxid, name: name.to_owned() };
    Ok(FiledRequest { which, request: Request::decode(&path, &node.data)? })
}

/// What became of a request that was to be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It will never be begun.
    Withdrawn(Request),
    /// It had begun or ended before, as its state says.
    TooLate(Request),
}

/// Withdraws a request, by compare-and-set on it, while it is pending. The decision that begins a request is written
/// in one transaction with it, so a request is either begun or withdrawn. `why` is for the records:
/// who withdraws it, and the reason.
///
/// # Errors
/// When ZooKeeper doesn't answer, or the request can't be read or is not there any more.
///
/// # Cancel safety
/// May have been carried out or not; doing it again does no harm.
pub async fn cancel(
    session: &Session,
    paths: &Paths,
    which: &RequestRef,
    why: &str,
) -> Result<Withdrawal, OperatorError> {
    let path = paths.request(&which.name);
    let mut written: Option<RequestState> = None;
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        let node = observer.read(&path).await?.filter(|node| node.czxid == which.czxid);
        let Some(node) = node else {
            return Err(OperatorError::Refused(format!("the request {path} is not there any more")));
        };
        let request = Request::decode(&path, &node.data)?;
        if request.state != RequestState::Pending {
            // A lost reply.
            let own = written.as_ref() == Some(&request.state);
            return Ok(if own { Withdrawal::Withdrawn(request) } else { Withdrawal::TooLate(request) });
        }
        // An elector of an earlier release writes the decision alone, and the request after it.
        if let Some(decision) = observer.read(&paths.elected()).await? {
            let elected = Elected::decode(&paths.elected(), &decision.data)?;
            if let Some(slot) = elected.slot_for(which) {
                let state = RequestState::Accepted { term: elected.term_of(slot) };
                return Ok(Withdrawal::TooLate(Request { state, ..request }));
            }
        }
        let state = RequestState::Cancelled { reason: why.to_owned(), at_ms: unix_ms() };
        let request = Request { state: state.clone(), ..request };
        written = Some(state);
        match incarnation.set(&path, request.encode(&path)?, Some(node.version)).await {
            Ok(_) => return Ok(Withdrawal::Withdrawn(request)),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// Carries out a forced failover itself, up to naming the next leader: for when no
/// elector does. An elector that does the same at the same time does no harm, for
/// each step is a compare-and-set. Nothing is begun after `until`, or once the request was withdrawn.
///
/// # Errors
/// When it can't be done, or ZooKeeper doesn't answer.
pub async fn force(
    session: &Session,
    paths: &Paths,
    filed: &FiledRequest,
    policy: &Policy,
    strategy: &dyn Strategy,
    until: BootTime,
) -> Result<(), OperatorError> {
    let mut seen = None;
    let request_path = paths.request(&filed.which.name);
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        let observer = Observer::new(incarnation.clone());
        let node = observer.read(&request_path).await?.filter(|node| node.czxid == filed.which.czxid);
        let Some(node) = node else {
            return Err(OperatorError::Refused(format!("the request {request_path} is not there any more")));
        };
        let request = Request::decode(&request_path, &node.data)?;
        let filed = &FiledRequest { which: filed.which.clone(), request };
        let snapshot = observer.snapshot(paths).await?;
        let unusable = snapshot
            .unreadable
            .iter()
            .find(|e| e.path == paths.elected() || paths.slot_of(&e.path).is_some());
        if let Some(error) = unusable {
            return Err(error.clone().into());
        }
        let offices: Vec<_> =
            snapshot.offices.iter().map(|o| o.as_ref().map(|o| (&o.record, o.version))).collect();
        let step = force_step(
            filed,
            &filed.request.by,
            unix_ms(),
            policy,
            strategy,
            &snapshot.members,
            snapshot.newest_zxid,
            &snapshot.control,
            snapshot.decided(),
            &offices,
            seen,
        );
        seen = seen.max(snapshot.decided().and_then(|elected| elected.last_request));
        let outcome = match step {
            ForceStep::Named => return Ok(()),
            ForceStep::Refused(why) => return Err(OperatorError::Refused(why)),
            ForceStep::Begin(..) if BootTime::now() >= until => {
                let valid_for = in_words(filed.request.valid_for());
                return Err(OperatorError::NotNow(format!("it was not begun within {valid_for}")));
            }
            ForceStep::Begin(elected, request) => {
                let path = paths.elected();
                let over = snapshot.elected.as_ref().map(|before| before.version);
                if over.is_none() {
                    incarnation.create_parents(&path).await?;
                }
                let decision = (path.as_str(), elected.encode(&path)?, over);
                let asked = (request_path.as_str(), request.encode(&request_path)?, node.version);
                begin(&incarnation, decision, asked).await
            }
            ForceStep::Write(elected) => {
                let path = paths.elected();
                let data = elected.encode(&path)?;
                seen = seen.max(elected.last_request);
                match &snapshot.elected {
                    Some(before) => incarnation.set(&path, data, Some(before.version)).await.map(drop),
                    None => {
                        incarnation.create_parents(&path).await?;
                        incarnation.create(&path, data, CreateMode::Persistent).await.map(drop)
                    }
                }
            }
            ForceStep::Vacate { slot, version } => {
                let decision = snapshot.elected.as_ref().map_or(0, |decision| decision.version);
                delete_while(&incarnation, &paths.place(slot), version, &paths.elected(), decision).await
            }
        };
        match outcome {
            Ok(()) => {}
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// Takes the place from whoever leads an election without an elector, and from nobody who has
/// come after it; what follows is the recipe's. Until the old leader has noticed, two may act, and
/// the resource must refuse the older.
///
/// # Errors
/// When there is an elector, whom to [`ask`]; when nobody leads; when ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Not cancel safe: whether the place was taken is not known then.
pub async fn vacate(session: &Session, paths: &Paths) -> Result<Current, OperatorError> {
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        // Before the place: if that is created anew meanwhile, the count is too low, and nothing is deleted.
        let counter = incarnation.get(&paths.leader()).await?.map_or(0, |counter| counter.stat.version);
        let snapshot = Observer::new(incarnation.clone()).snapshot(paths).await?;
        if snapshot.layout == Layout::Elector {
            return Err(OperatorError::Refused("an elector decides here, and is to be asked".to_owned()));
        }
        let Some(office) = snapshot.offices.into_iter().next().flatten() else {
            return Err(OperatorError::Refused("nobody leads".to_owned()));
        };
        let path = place_of(paths, snapshot.layout, &office.record.ballot);
        let deleted = match snapshot.layout {
            Layout::Single => {
                delete_while(&incarnation, &path, office.version, &paths.leader(), counter).await
            }
            _ => incarnation.delete(&path, Some(office.version)).await,
        };
        match deleted {
            Ok(()) => return Ok(office.record),
            // It has just become READY, or has gone by itself.
            Err(OpError::BadVersion { .. } | OpError::NoNode { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(too_many_races())
}

/// How the base of the tokens was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// By this term, in which whoever was named takes its office up anew.
    InTerm(u64),
    /// Every later token is above that already.
    Already,
}

/// Makes every leadership from now on have a token above `above`: for after the ensemble
/// was restored from a copy, where zxids go back, and the tokens with them. Ask the
/// resource for the newest token that it has seen. Works while nobody takes part, and
/// before anybody ever has.
///
/// # Errors
/// When no resource can have seen such a token, when there is no elector in this
/// election, when the decision can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not; doing it again does no harm.
pub async fn raise_tokens(
    session: &Session,
    paths: &Paths,
    above: u64,
    by: &str,
) -> Result<Raised, OperatorError> {
    let path = paths.elected();
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        if let Some(Layout::Queue | Layout::Single) = observer.layout(paths).await? {
            let why = "nobody decides in this election, so no base can stand in a decision: its tokens are the czxids";
            return Err(OperatorError::Refused(why.to_owned()));
        }
        let (mut elected, mut version) = (None, None);
        if let Some(node) = observer.read(&path).await? {
            elected = Some(Elected::decode(&path, &node.data)?);
            version = Some(node.version);
        }
        let base = elected.as_ref().map_or(0, |e| e.token_base);
        // What can't be read has a token all the same, but whose is not known.
        let slots = elected.as_ref().map_or(1, |e| e.slots.len()).clamp(1, MAX_SLOTS);
        let mut tokens = Vec::new();
        for place in (0..slots).map(|slot| paths.place(slot)) {
            let node = observer.read(&place).await?;
            let current = node.filter(|node| Current::decode(&place, &node.data).is_ok());
            tokens.push(current.map(|node| fencing_token(node.czxid, base)));
        }
        let token = tokens.into_iter().min().flatten();
        let raised = crate::engine::raise_tokens(elected.as_ref(), token, above, by, unix_ms())?;
        let Some(next) = raised else { return Ok(Raised::Already) };
        let data = next.encode(&path)?;
        let written = match version {
            Some(version) => incarnation.set(&path, data, Some(version)).await.map(drop),
            None => {
                incarnation.create_parents(&path).await?;
                incarnation.create(&path, data, CreateMode::Persistent).await.map(drop)
            }
        };
        match written {
            Ok(()) => return Ok(Raised::InTerm(next.term)),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// How long an operator's request may wait for an elector before it is said that
/// none seems to be there.
pub const ELECTOR_PATIENCE: Duration = Duration::from_secs(15);
