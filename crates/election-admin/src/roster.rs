//! The roster: who takes part in an election, and who did within the last day.

use zk_session::{CreateMode, Incarnation, MultiOp, ReadOp};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    outline::{children, node},
};
use election_core::{
    Ballot, MemberId, Paths, SiteId,
    internals::{Node, get_all},
    record::{MemberRecord, Record as _, Roster},
};

/// Brings the roster up to date with the members that have a record now. It is written only if that changes it, and only while
/// the ballot exists: that of the elector that keeps it. `at_ms` is when a loss was noticed.
///
/// # Errors
/// When the ballot is gone, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn update(
    session: &Incarnation,
    paths: &Paths,
    ballot: &Ballot,
    at_ms: u64,
) -> Result<(), OperatorError> {
    let path = paths.roster();
    for attempt in 0..TRIES {
        let reads = [ReadOp::children(paths.nodes()), ReadOp::get(&path), ReadOp::get(paths.ballot(ballot))];
        let mut results = session.multi_read(reads).await?.into_iter();
        let present = results.next().map(children).unwrap_or_default();
        let mut znode = || results.next().and_then(node);
        let (known, own) = (znode(), znode());
        if own.is_none() {
            return Err(OperatorError::Refused("the ballot is gone".to_owned()));
        }
        let (before, mut after) = read(&path, known.as_ref());
        let newcomers = get_all(session, &paths.nodes(), after.newcomers(&present)).await?;
        let newcomers = newcomers.into_iter().filter_map(|(name, node)| {
            let path = format!("{}/{name}", paths.nodes());
            let record = MemberRecord::decode(&path, &node?.data).ok()?;
            Some((record.member, record.site))
        });
        after.update(&present, newcomers, at_ms);
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        // A ballot's version grows with the calls to its member, and its name is never used again.
        let own = MultiOp::check(paths.ballot(ballot), None);
        match session.multi([own, write(&path, &after, known.as_ref())?]).await {
            Ok(_) => return Ok(()),
            Err(error) if is_worth_another_look(&error) => session.barrier().await?,
            Err(error) => return Err(error.into()),
        };
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Notes in the roster that this member has stopped, unless another process has its id already.
///
/// # Errors
/// When there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn sign_off(
    session: &Incarnation,
    paths: &Paths,
    (member, site): (&MemberId, &SiteId),
    at_ms: u64,
) -> Result<(), OperatorError> {
    let path = paths.roster();
    for attempt in 0..TRIES {
        let reads = [ReadOp::get(paths.node(member)), ReadOp::get(&path)];
        let mut znodes = session.multi_read(reads).await?.into_iter().map(node);
        let (own, known) = (znodes.next().flatten(), znodes.next().flatten());
        if own.is_some() {
            return Ok(());
        }
        let (_, mut roster) = read(&path, known.as_ref());
        roster.sign_off(member.clone(), site.clone(), at_ms);
        match session.multi([write(&path, &roster, known.as_ref())?]).await {
            Ok(_) => return Ok(()),
            Err(error) if is_worth_another_look(&error) => session.barrier().await?,
            Err(error) => return Err(error.into()),
        };
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// What is known, if it can be used, and what to change. A roster that can't be used is written anew.
fn read(path: &str, known: Option<&Node>) -> (Option<Roster>, Roster) {
    let before = known.and_then(|node| Roster::decode(path, &node.data).ok());
    (before.clone(), before.unwrap_or_default())
}

fn write(path: &str, roster: &Roster, known: Option<&Node>) -> Result<MultiOp, OperatorError> {
    let data = roster.encode(path)?;
    Ok(match known {
        Some(node) => MultiOp::set(path, data, node.version),
        None => MultiOp::create(path, data, CreateMode::Persistent),
    })
}
