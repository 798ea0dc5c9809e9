//! Standing orders, which hold until an operator changes them, and the acknowledgement of failures.

use zk_session::{CreateMode, Session};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    observer::Observer,
};
use election_core::{
    Paths, SiteId,
    internals::{self, Forgotten, Layout, ReadError, Released, unix_ms},
    record::{Control, Elected, Record as _},
};

/// Standing orders before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ordered {
    /// Before the change.
    pub before: Control,
    /// After the change.
    pub after: Control,
    /// How often the orders of this election have been changed so far, see [`read`].
    pub changes: u64,
}

impl Ordered {
    /// Whether the change made a difference.
    pub fn is_news(&self) -> bool {
        self.before != self.after
    }
}

/// Changes the standing orders of an election by compare-and-set. `change` is applied to the present orders, and again
/// after every lost race. It needs no running member. `by` and `reason` are recorded as those of the latest order.
///
/// # Errors
/// When there is no such election, when it has no elector, when the orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe if `change` is idempotent.
pub async fn order(
    session: &Session,
    paths: &Paths,
    by: &str,
    reason: Option<&str>,
    mut change: impl FnMut(&mut Control),
) -> Result<Ordered, OperatorError> {
    let path = paths.control();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        // The server may lag behind, and orders that it has not seen would be undone.
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        check_layout(&observer, paths).await?;
        let node = observer.read(&path).await?;
        let before = match &node {
            Some(node) => Control::decode(&path, &node.data)?,
            None => Control::default(),
        };
        let mut after = before.clone();
        change(&mut after);
        after.v = after.format();
        if after == before {
            return Ok(Ordered { before, after, changes: changes_until(node.as_ref().map(|n| n.version)) });
        }
        by.clone_into(&mut after.changed_by);
        after.changed_at_ms = unix_ms();
        after.changed_reason = reason.map(str::to_owned);
        let data = after.encode(&path)?;
        let written = match &node {
            Some(node) => incarnation.set(&path, data, Some(node.version)).await,
            None => incarnation.create(&path, data, CreateMode::Persistent).await.map(|created| created.stat),
        };
        match written {
            Ok(stat) => {
                return Ok(Ordered { before, after, changes: changes_until(Some(stat.version)) });
            }
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Reads the standing orders of an election, and how often they have been changed: 0 if they never were.
///
/// # Errors
/// When there is no such election, when it has no elector, when the orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn read(session: &Session, paths: &Paths) -> Result<(Control, u64), OperatorError> {
    let path = paths.control();
    let incarnation = session.active().await?;
    incarnation.barrier().await?;
    let observer = Observer::new(incarnation);
    check_layout(&observer, paths).await?;
    let node = observer.read(&path).await?;
    let changes = changes_until(node.as_ref().map(|node| node.version));
    Ok((node.map_or_else(|| Ok(Control::default()), |node| Control::decode(&path, &node.data))?, changes))
}

/// The first change creates the record, with version 0.
fn changes_until(version: Option<i32>) -> u64 {
    version.and_then(|version| u64::try_from(version).ok()).map_or(0, |version| version + 1)
}

/// The failures that were remembered, and the decision that contained them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acknowledged {
    /// The decision before.
    pub before: Elected,
    /// What was cleared.
    pub released: Released,
    /// The decision after.
    pub after: Elected,
}

/// Clears these remembered failures by compare-and-set on the decision. A hold ends, failed members rank like others
/// again, and leadership may return to failed sites. The term and the leader stay. `None` if none of these failures is
/// remembered.
///
/// # Errors
/// When there is no such election, when it has no elector, when the decision can't be read, or ZooKeeper doesn't
/// answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn acknowledge(
    session: &Session,
    paths: &Paths,
    what: Forgotten,
) -> Result<Option<Acknowledged>, OperatorError> {
    let path = paths.elected();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        check_layout(&observer, paths).await?;
        let Some(node) = observer.read(&path).await? else { return Ok(None) };
        let before = Elected::decode(&path, &node.data)?;
        let Some((after, released)) = internals::acknowledge(&before, what) else { return Ok(None) };
        match incarnation.set(&path, after.encode(&path)?, Some(node.version)).await {
            Ok(_) => return Ok(Some(Acknowledged { before, released, after })),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Declares that a site has not failed, by compare-and-set on the decision. The reports of its own members are ignored
/// until they agree. Returns whether there was such a report to overrule. It does not affect a site that an operator
/// has declared failed, see [`Control::failed_sites`].
///
/// # Errors
/// As for [`acknowledge`].
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn overrule_site(
    session: &Session,
    paths: &Paths,
    site: &SiteId,
    by: &str,
) -> Result<bool, OperatorError> {
    let path = paths.elected();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        check_layout(&observer, paths).await?;
        let members = observer.snapshot(paths).await?.members;
        let Some(node) = observer.read(&path).await? else { return Ok(false) };
        let before = Elected::decode(&path, &node.data)?;
        let Some(next) = internals::overrule_site(&before, &members, site, by, unix_ms()) else {
            return Ok(false);
        };
        match incarnation.set(&path, next.encode(&path)?, Some(node.version)).await {
            Ok(_) => return Ok(true),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}

/// Only an elector obeys standing orders.
async fn check_layout(observer: &Observer, paths: &Paths) -> Result<(), OperatorError> {
    match observer.layout(paths).await? {
        None => Err(ReadError::NoElection(paths.base().to_owned()).into()),
        Some(Layout::Elector) => Ok(()),
        Some(layout) => {
            let why = format!(
                "{} is held by the recipe {:?}: no elector is there to carry out standing orders",
                paths.base(),
                layout.as_str()
            );
            Err(OperatorError::Refused(why))
        }
    }
}
