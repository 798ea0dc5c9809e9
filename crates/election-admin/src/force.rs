//! What an operator does without an elector: force a failover, delete the leader znode, raise the tokens.

use std::time::Duration;

use zk_session::{BootTime, Incarnation, MultiOp, OpError, Session};

use crate::{
    change::{Attempts, is_worth_another_look},
    error::{AdminError, Hindrance, Refusal},
    known::Known,
    observer::{LeaderZnode, Observer},
};
use election_core::{
    Paths,
    config::Policy,
    internals::{
        self, ForceStep, ForcedFailover, Layout, MAX_TOKEN_BASE, NoSuchToken, Transaction, ZnodeWrite,
        decision, fencing_token,
        record::{AdminRequest, Current, Elected, FiledRequest, MAX_SLOTS, Record, TokenBase},
        transact, unix_ms,
    },
    strategy::Strategy,
};

/// The pause between two looks at a leader that has its stop budget to end its work.
const LOOK: Duration = Duration::from_millis(50);

/// Carries out a forced failover itself, up to naming the next leader, for an election whose elector does not. An
/// elector may do the same at the same time: each step is a compare-and-set. It waits for the leader's stop budget before it
/// deletes the leader znode, unless the request says [`now`](AdminRequest::now). No step begins after `until`, or after the
/// request was withdrawn.
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
) -> Result<(), AdminError> {
    let mut seen = None;
    // The term that removes the holder, and since when this command has known it.
    let mut removed: Option<(u64, BootTime)> = None;
    let request_path = paths.request(&filed.which.name);
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let session = observer.session();
        let node = observer.read(&request_path).await?.filter(|node| node.czxid == filed.which.czxid);
        let node = node.ok_or_else(|| Refusal::RequestGone(request_path.clone()))?;
        let request = AdminRequest::decode(&request_path, &node.data)?;
        let filed = &FiledRequest { which: filed.which.clone(), request };
        let snapshot = observer.snapshot(paths).await?;
        let unusable = snapshot
            .unreadable
            .iter()
            .find(|e| e.path == paths.elected() || paths.slot_of(&e.path).is_some());
        if let Some(error) = unusable {
            return Err(error.clone().into());
        }
        let leader_znodes: Vec<_> =
            snapshot.leader_znodes.iter().map(|o| o.as_ref().map(|o| (&o.record, o.version))).collect();
        let failover = ForcedFailover {
            filed,
            policy,
            strategy,
            unix_ms: unix_ms(),
            members: &snapshot.members,
            newest_zxid: snapshot.newest_zxid,
            control: &snapshot.control,
            elected: snapshot.decided(),
            current: &leader_znodes,
            seen,
        };
        let step = failover.next_step();
        seen = seen.max(snapshot.decided().and_then(|elected| elected.last_request));
        let over = snapshot.elected.as_ref().map(|before| (&before.record, before.version));
        let transaction = match step {
            ForceStep::Named => return Ok(()),
            ForceStep::Refused(why) => return Err(Refusal::from(why).into()),
            ForceStep::Begin(..) if BootTime::now() >= until => {
                return Err(Hindrance::NotBegun(filed.request.valid_for()).into());
            }
            ForceStep::Begin(mut elected, request) => {
                let begun = (filed.which.name.as_str(), &*request, node.version);
                decision(paths, &mut elected, over, snapshot.generation, Some(begun))?
            }
            ForceStep::Write(mut elected) => {
                seen = seen.max(elected.last_request);
                decision(paths, &mut elected, over, snapshot.generation, None)?
            }
            ForceStep::Vacate { slot, version, after } => {
                let decision = snapshot.elected.as_ref().map_or(0, |decision| decision.version);
                let term = snapshot.decided().map_or(0, |elected| elected.term_of(slot));
                let known = removed.filter(|(known, _)| *known == term);
                let (_, since) = *removed.insert(known.unwrap_or((term, BootTime::now())));
                let now = BootTime::now();
                if now < since + after {
                    // The holder may release it earlier.
                    attempts.wait_until((since + after).min(now + LOOK)).await;
                    continue;
                }
                let delete = Transaction::from(ZnodeWrite::delete(paths.leader_znode(slot), version));
                delete.only_while_decided(paths, decision, snapshot.generation)
            }
        };
        match write(session, paths, transaction).await {
            Err(error) if !is_worth_another_look(&error) => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
    }
}

async fn write(incarnation: &Incarnation, paths: &Paths, transaction: Transaction) -> Result<(), OpError> {
    // Only a decision can be created.
    if transaction.answer.creates() {
        incarnation.create_parents(&paths.elected()).await?;
    }
    transact(incarnation, transaction).await
}

/// Deletes the leader znode of an election without an elector, and returns the leader whose znode it was. It deletes one at
/// most: that of the next leader stays. The recipe then determines the next leader. Two members may act until the old leader
/// has noticed, and the resource must refuse the older token.
///
/// # Errors
/// When there is an elector, which must be [asked](crate::ask) instead; when there is no leader; when ZooKeeper doesn't
/// answer.
///
/// # Cancel safety
/// Not cancel safe: the outcome is then unknown.
pub async fn vacate(session: &Session, paths: &Paths) -> Result<Current, AdminError> {
    let mut attempts = Attempts::over(session);
    // The one that it may have deleted: the answer was lost.
    let mut sent: Option<LeaderZnode> = None;
    loop {
        let observer = attempts.look().await?;
        let session = observer.session();
        // Read before the leader znode: if that is created again meanwhile, the count is too low, and nothing is
        // deleted.
        let counter = observer.read(&paths.leader()).await?.map_or(0, |counter| counter.version);
        let snapshot = observer.snapshot(paths).await?;
        if snapshot.layout == Layout::Elector {
            return Err(Refusal::HasElector.into());
        }
        let leader = snapshot.leader_znodes.into_iter().next().flatten();
        // Not that of the next leader.
        if let Some(gone) = sent.filter(|sent| leader.as_ref().is_none_or(|now| now.czxid != sent.czxid)) {
            return Ok(gone.record);
        }
        let leader = leader.ok_or(Refusal::NoLeader)?;
        let deleted = match snapshot.layout {
            Layout::Single => {
                let delete = ZnodeWrite::delete(paths.leader_znode(0), leader.version);
                transact(session, delete.only_while(paths.leader(), counter)).await
            }
            _ => {
                let path = format!("{}/{}", paths.queue(), leader.record.ballot);
                session.delete(&path, Some(leader.version)).await
            }
        };
        match deleted {
            Ok(()) => return Ok(leader.record),
            Err(error) if !is_worth_another_look(&error) => return Err(error.into()),
            // It has just become READY, or has been deleted already.
            Err(error) => sent = matches!(error, OpError::Unknown { .. }).then_some(leader),
        }
    }
}

/// The result of raising the base of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// By this term, in which the named member acquires leadership again.
    InTerm(u64),
    /// In an election without an elector: the leader ends, and joins again.
    InRecord,
    /// Every later token is above it already.
    Already,
}

/// How the base is raised in an election without an elector; `None` if every later token is above it already.
async fn raised_base(
    observer: &Observer,
    paths: &Paths,
    above: u64,
    by: &str,
) -> Result<Option<MultiOp>, AdminError> {
    if above > MAX_TOKEN_BASE {
        return Err(NoSuchToken { above }.into());
    }
    let known: Known<TokenBase> = observer.known(paths.tokens()).await?;
    let snapshot = observer.snapshot(paths).await?;
    let led = snapshot.leader_znode(0).and_then(|leader| leader.record.fencing_token);
    // One that can't be used is replaced.
    if let Ok(base) = known.record() {
        let base = base.map_or(0, |base| base.token_base);
        if base >= above || led.is_some_and(|token| token > above) {
            return Ok(None);
        }
    }
    known.make_parents(observer.session()).await?;
    Ok(Some(known.replace(&TokenBase::new(above, by, unix_ms()))?))
}

/// Makes the token of every leadership from now on greater than `above`. Use it after the ensemble was restored from a
/// copy: the zxids are lower then, and so are the tokens. Ask the resource for the newest token that it has seen. It
/// needs no running member, and no earlier leadership.
///
/// # Errors
/// When no resource can have seen such a token, when the decision can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn raise_tokens(
    session: &Session,
    paths: &Paths,
    above: u64,
    by: &str,
) -> Result<Raised, AdminError> {
    let mut sent: Option<Elected> = None;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        if let Some(Layout::Queue | Layout::Single) = observer.layout(paths).await? {
            let Some(raised) = raised_base(&observer, paths, above, by).await? else {
                return Ok(Raised::Already);
            };
            if attempts.write([raised]).await? {
                return Ok(Raised::InRecord);
            }
            continue;
        }
        let known = observer.decision(paths).await?;
        let elected = known.record()?;
        // The answer was lost.
        if let Some(sent) = sent.filter(|sent| elected.as_ref() == Some(sent)) {
            return Ok(Raised::InTerm(sent.term));
        }
        let base = elected.as_ref().map_or(0, |e| e.token_base);
        // An unreadable leader znode still has a token. Its member is unknown.
        let slots = elected.as_ref().map_or(1, |e| e.slots.len()).clamp(1, MAX_SLOTS);
        let mut tokens = Vec::new();
        for path in (0..slots).map(|slot| paths.leader_znode(slot)) {
            let node = observer.read(&path).await?;
            let current = node.filter(|node| Current::decode(&path, &node.data).is_ok());
            tokens.push(current.and_then(|node| fencing_token(node.czxid, base)));
        }
        let token = tokens.into_iter().min().flatten();
        let raised = internals::raise_tokens(elected.as_ref(), token, above, by, unix_ms())?;
        let Some(mut next) = raised else { return Ok(Raised::Already) };
        known.make_parents(observer.session()).await?;
        if attempts.write(known.replace(&mut next)?).await? {
            return Ok(Raised::InTerm(next.term));
        }
        sent = Some(next);
    }
}
