//! The leaderships whose work may still run: how leaders and operators change their record.

use election_core::{
    Paths,
    internals::record::{Current, Record as _},
    status::Ballot,
};
use zk_session::{Incarnation, MultiOp, Session};

use crate::{
    change::Attempts,
    error::{AdminError, Refusal},
    job_requests::{Leading, is_held},
    known::Known,
    record::{Breadcrumb, Breadcrumbs},
};

/// Changes the record by compare-and-set, and returns what it is then. `change` is applied to the present record, and
/// again after every lost race. It is not written if it does not change.
///
/// With `leading`, it is written only while that leader holds its leader znode, in one transaction, and `change` gets the
/// leader's ballot. What is read includes everything that former leaders of the slot have written.
///
/// # Errors
/// When this member does not lead any more, the record can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe if `change` is idempotent.
pub async fn change_breadcrumbs(
    session: &Incarnation,
    paths: &Paths,
    leading: Option<Leading<'_>>,
    mut alter: impl FnMut(&mut Breadcrumbs, Option<&Ballot>),
) -> Result<Breadcrumbs, AdminError> {
    let leader_path = paths.leader_znode(leading.map_or(0, |leading| leading.slot));
    let mut attempts = Attempts::within(session);
    loop {
        let observer = attempts.look().await?;
        let [breadcrumbs, leader] = observer.read_all([&paths.breadcrumbs(), &leader_path]).await?;
        let known: Known<Breadcrumbs> = Known::new(paths.breadcrumbs(), breadcrumbs);
        let before = known.record_or_default()?;
        let mut group = Vec::new();
        let mut ballot = None;
        if let Some(leading) = leading {
            let leader =
                leader.filter(|node| is_held(node, &leader_path, leading)).ok_or(Refusal::NotLeading)?;
            group.push(MultiOp::check(&leader_path, leader.version));
            ballot = Current::decode(&leader_path, &leader.data).ok().map(|current| current.ballot);
        }
        let mut after = before.clone();
        alter(&mut after, ballot.as_ref());
        if after == before {
            return Ok(after);
        }
        group.push(known.replace(&after)?);
        if attempts.write(group).await? {
            return Ok(after);
        }
    }
}

/// Removes these leaderships: an operator declares that their leaders do not work any more. With `None`, a record that can't be
/// used is replaced by an empty one. Returns what was removed.
///
/// # Errors
/// When the record can't be used, unless that was asked for, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn forget_breadcrumbs(
    session: &Session,
    paths: &Paths,
    confirmed: Option<&[Breadcrumb]>,
) -> Result<Vec<Breadcrumb>, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Breadcrumbs> = observer.known(paths.breadcrumbs()).await?;
        let (mut after, is_usable) = match known.record() {
            Err(error) if confirmed.is_some() => return Err(error.into()),
            Err(_) => (Breadcrumbs::default(), false),
            Ok(record) => (record.unwrap_or_default(), true),
        };
        let removed = after.take(confirmed.unwrap_or_default());
        if is_usable && removed.is_empty() {
            return Ok(removed);
        }
        if attempts.write([known.replace(&after)?]).await? {
            return Ok(removed);
        }
    }
}
