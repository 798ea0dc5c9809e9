//! The leaderships whose work may still run: how leaders and operators change their record.

use zk_session::{CreateMode, Incarnation, MultiOp, ReadOp, Session};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    job_requests::{Leading, is_held},
    observer::Observer,
    outline,
};
use election_core::{
    Ballot, Paths,
    internals::{Node, to_node},
    record::{Breadcrumb, Breadcrumbs, Current, Record as _},
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
    mut change: impl FnMut(&mut Breadcrumbs, Option<&Ballot>),
) -> Result<Breadcrumbs, OperatorError> {
    let path = paths.breadcrumbs();
    let leader_path = paths.leader_znode(leading.map_or(0, |leading| leading.slot));
    for attempt in 0..TRIES {
        let nodes = session.multi_read([&path, &leader_path].map(ReadOp::get)).await?;
        let mut nodes = nodes.into_iter().map(outline::node);
        let (known, leader) = (nodes.next().flatten(), nodes.next().flatten());
        let before = match &known {
            Some(node) => Breadcrumbs::decode(&path, &node.data)?,
            None => Breadcrumbs::default(),
        };
        let mut group = Vec::new();
        let mut ballot = None;
        if let Some(leading) = leading {
            let Some(leader) = leader.filter(|node| is_held(node, &leader_path, leading)) else {
                return Err(OperatorError::Refused("this member does not lead any more".to_owned()));
            };
            group.push(MultiOp::check(&leader_path, leader.version));
            ballot = Current::decode(&leader_path, &leader.data).ok().map(|current| current.ballot);
        }
        let mut after = before.clone();
        change(&mut after, ballot.as_ref());
        if after == before {
            return Ok(after);
        }
        group.push(write(&path, &after, known.as_ref())?);
        match session.multi(group).await {
            Ok(_) => return Ok(after),
            Err(error) if is_worth_another_look(&error) => session.barrier().await?,
            Err(error) => return Err(error.into()),
        };
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Removes all leaderships but the present ones: an operator declares that the former leaders do not work any more. A
/// record that can't be read is replaced. Returns what was removed.
///
/// # Errors
/// When ZooKeeper doesn't answer, or there is no such election.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn forget_breadcrumbs(session: &Session, paths: &Paths) -> Result<Vec<Breadcrumb>, OperatorError> {
    let path = paths.breadcrumbs();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        let snapshot = Observer::new(incarnation.clone()).snapshot(paths).await?;
        let Some(known) = incarnation.get(&path).await?.map(to_node) else {
            return Ok(Vec::new());
        };
        let before = Breadcrumbs::decode(&path, &known.data);
        let is_readable = before.is_ok();
        let mut after = before.unwrap_or_default();
        let (removed, present) = after.leaderships.into_iter().partition(|left| snapshot.is_former(left));
        after.leaderships = present;
        let removed: Vec<Breadcrumb> = removed;
        if is_readable && removed.is_empty() {
            return Ok(removed);
        }
        match incarnation.multi([write(&path, &after, Some(&known))?]).await {
            Ok(_) => return Ok(removed),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

fn write(path: &str, record: &Breadcrumbs, known: Option<&Node>) -> Result<MultiOp, OperatorError> {
    let data = record.encode(path)?;
    Ok(match known {
        Some(node) => MultiOp::set(path, data, node.version),
        None => MultiOp::create(path, data, CreateMode::Persistent),
    })
}
