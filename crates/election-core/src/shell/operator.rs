//! What an operator does from outside: ask, wait, and force.

use std::time::Duration;

use zk_session::{BootTime, CreateMode, OpError, Recovery, Session, sleep_until};

use super::{
    contests::{Layout, place_of},
    observer::{Observer, ReadError},
    operations::{delete_while, make_parents},
    unix_ms,
};
use crate::{
    engine::{ForceStep, NoSuchToken, Policy, fencing_token, force_step},
    paths::Paths,
    record::{
        Current, Elected, MAX_SLOTS, Outgoing, Record, RecordError, Request, RequestKind, RequestState,
        Target, VERSION,
    },
    strategy::Strategy,
};

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
    /// The session was closed.
    #[error("the ZooKeeper session was closed")]
    Closed,
}

impl From<zk_session::Closed> for OperatorError {
    fn from(_: zk_session::Closed) -> Self {
        Self::Closed
    }
}

/// A request that nobody has looked at yet.
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
        reason,
        by,
        created_ms: unix_ms(),
        state: RequestState::Pending,
    }
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The name of its znode, by which it is followed.
    pub name: String,
}

/// Puts a request where the elector finds it.
///
/// # Errors
/// When ZooKeeper doesn't answer, or there is no such election.
pub async fn ask(session: &Session, paths: &Paths, request: &Request) -> Result<Ticket, OperatorError> {
    let incarnation = session.active().await?;
    let observer = Observer::new(incarnation.clone());
    if observer.read(&paths.election()).await?.is_none() {
        return Err(ReadError::NoElection(paths.base().to_owned()).into());
    }
    make_parents(&incarnation, &[paths.requests()]).await?;
    let prefix = paths.request_prefix();
    let data = request.encode(&prefix)?;
    // The request's id makes the data unique, so a lost reply makes no second one.
    let created =
        incarnation.create_sequential(&prefix, data, CreateMode::Persistent, Recovery::Data).await?;
    let name = created.path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Ticket { name })
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
    ticket: &Ticket,
    deadline: BootTime,
    mut progress: impl FnMut(&Request),
) -> Result<Option<Request>, OperatorError> {
    let path = paths.request(&ticket.name);
    let mut watch = session.watch_data(path.clone());
    let mut last: Option<Request> = None;
    loop {
        let seen = tokio::select! {
            seen = watch.next() => seen?,
            () = sleep_until(deadline) => return Ok(last),
        };
        let Some(node) = seen.value else {
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

/// Carries out a forced failover itself, up to naming the next leader: for when no
/// elector does. An elector that does the same at the same time does no harm, for
/// each step is a compare-and-set.
///
/// # Errors
/// When it can't be done, or ZooKeeper doesn't answer.
pub async fn force(
    session: &Session,
    paths: &Paths,
    ticket: &Ticket,
    request: &Request,
    policy: &Policy,
    strategy: &dyn Strategy,
) -> Result<(), OperatorError> {
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        let snapshot = Observer::new(incarnation.clone()).snapshot(paths).await?;
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
            &ticket.name,
            request,
            &request.by,
            unix_ms(),
            policy,
            strategy,
            &snapshot.members,
            &snapshot.control,
            snapshot.elected.as_ref().map(|(e, _)| e),
            &offices,
        );
        let outcome = match step {
            ForceStep::Named => return Ok(()),
            ForceStep::Refused(why) => return Err(OperatorError::Refused(why)),
            ForceStep::Write(elected) => {
                let path = paths.elected();
                let data = elected.encode(&path)?;
                match &snapshot.elected {
                    Some((_, version)) => incarnation.set(&path, data, Some(*version)).await.map(drop),
                    None => incarnation.create(&path, data, CreateMode::Persistent).await.map(drop),
                }
            }
            ForceStep::Vacate { slot, version } => {
                let decision = snapshot.elected.as_ref().map_or(0, |(_, version)| *version);
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
        let snapshot = Observer::new(incarnation.clone()).snapshot(paths).await?;
        if snapshot.layout == Layout::Elector {
            return Err(OperatorError::Refused("an elector decides here, and is to be asked".to_owned()));
        }
        let Some(office) = snapshot.offices.into_iter().next().flatten() else {
            return Err(OperatorError::Refused("nobody leads".to_owned()));
        };
        let path = place_of(paths, snapshot.layout, &office.record.ballot);
        match incarnation.delete(&path, Some(office.version)).await {
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
                make_parents(&incarnation, &paths.parents()).await?;
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
