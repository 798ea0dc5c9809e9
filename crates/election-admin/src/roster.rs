//! The roster: who takes part in an election, and who did within the last day.

use election_core::{
    Paths,
    config::{MemberId, SiteId},
    internals::{
        children, get_all, node,
        record::{MemberRecord, Record as _},
    },
    status::Ballot,
};
use zk_session::{Incarnation, MultiOp, ReadOp};

use crate::{
    change::Attempts,
    error::{AdminError, Refusal},
    known::Known,
    record::Roster,
};

/// Brings the roster up to date with the members that have a record now. It is written only if that changes it, and only while
/// the ballot exists: that of the elector that keeps it. `at_ms` is when a loss was noticed. A roster that can't be used is
/// written anew.
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
) -> Result<(), AdminError> {
    let mut attempts = Attempts::within(session);
    loop {
        let observer = attempts.look().await?;
        let session = observer.session();
        let reads =
            [ReadOp::children(paths.nodes()), ReadOp::get(paths.roster()), ReadOp::get(paths.ballot(ballot))];
        let mut results = session.multi_read(reads).await?.into_iter();
        let present = results.next().map(children).unwrap_or_default();
        let mut znode = || results.next().and_then(node);
        let (known, own) = (Known::<Roster>::new(paths.roster(), znode()), znode());
        own.ok_or(Refusal::BallotGone)?;
        let before = known.record().ok().flatten();
        let mut after = before.clone().unwrap_or_default();
        let newcomers = get_all(session, &paths.nodes(), after.newcomers(&present)).await?;
        let newcomers = newcomers.into_iter().filter_map(|(name, node)| {
            let path = format!("{}/{name}", paths.nodes());
            let record = MemberRecord::decode(&path, &node.data).ok()?;
            Some((record.member, record.site))
        });
        after.update(&present, newcomers, at_ms);
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        // A ballot's version grows with the calls to its member, and its name is never used again.
        let own = MultiOp::check(paths.ballot(ballot), None);
        if attempts.write(vec![own, known.replace(&after)?]).await? {
            return Ok(());
        }
    }
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
) -> Result<(), AdminError> {
    let mut attempts = Attempts::within(session);
    loop {
        let observer = attempts.look().await?;
        let [own, known] = observer.read_all([&paths.node(member), &paths.roster()]).await?;
        if own.is_some() {
            return Ok(());
        }
        let known = Known::<Roster>::new(paths.roster(), known);
        let mut roster = known.record().ok().flatten().unwrap_or_default();
        roster.sign_off(member.clone(), site.clone(), at_ms);
        if attempts.write([known.replace(&roster)?]).await? {
            return Ok(());
        }
    }
}
