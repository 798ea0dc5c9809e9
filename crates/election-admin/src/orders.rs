//! Standing orders, which hold until an operator changes them, and the acknowledgement of failures.

use zk_session::{MultiOp, Session};

use crate::{
    change::Attempts,
    error::{AdminError, Refusal},
    known::Known,
    observer::Observer,
};
use election_core::{
    Paths,
    config::SiteId,
    internals::{
        self, Forgotten, Layout, Node, ReadError, Released,
        record::{Control, Elected},
        unix_ms,
    },
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

/// Changes the standing orders of an election by compare-and-set. `alter` is applied to the present orders, and again
/// after every lost race. It needs no running member. `by` and `reason` are recorded as those of the latest order.
///
/// # Errors
/// When there is no such election, when it has no elector, when the orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe if `alter` is idempotent.
pub async fn order(
    session: &Session,
    paths: &Paths,
    by: &str,
    reason: Option<&str>,
    mut alter: impl FnMut(&mut Control),
) -> Result<Ordered, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        check_layout(&observer, paths).await?;
        let known: Known<Control> = observer.known(paths.control()).await?;
        let changes = changes_until(known.node());
        let Some(Altered { before, after, write }) = altered(&known, by, reason, &mut alter)? else {
            let before = known.record_or_default()?;
            return Ok(Ordered { after: before.clone(), before, changes });
        };
        if attempts.write([write]).await? {
            return Ok(Ordered { before, after, changes: changes + 1 });
        }
    }
}

/// A change of the standing orders that is not written yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Altered {
    /// Before the change.
    pub before: Control,
    /// After the change.
    pub after: Control,
    /// What writes it, over the orders that were read, and over no others.
    pub write: MultiOp,
}

/// The change that `alter` makes to the orders that were read, for a transaction of the caller. `None` if it makes no
/// difference. `by` and `reason` are recorded as those of the latest order.
///
/// # Errors
/// When the orders can't be read, or can't be written.
pub fn altered(
    known: &Known<Control>,
    by: &str,
    reason: Option<&str>,
    alter: impl FnOnce(&mut Control),
) -> Result<Option<Altered>, AdminError> {
    let before = known.record_or_default()?;
    let mut after = before.clone();
    alter(&mut after);
    after.v = after.format();
    if after == before {
        return Ok(None);
    }
    by.clone_into(&mut after.changed_by);
    after.changed_at_ms = unix_ms();
    after.changed_reason = reason.map(str::to_owned);
    let write = known.replace(&after)?;
    Ok(Some(Altered { before, after, write }))
}

/// Reads the standing orders of an election, and how often they have been changed: 0 if they never were.
///
/// # Errors
/// When there is no such election, when it has no elector, when the orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn read(session: &Session, paths: &Paths) -> Result<(Control, u64), AdminError> {
    let observer = Attempts::over(session).look().await?;
    check_layout(&observer, paths).await?;
    let known: Known<Control> = observer.known(paths.control()).await?;
    Ok((known.record_or_default()?, changes_until(known.node())))
}

/// The first change creates the record, with version 0.
fn changes_until(node: Option<&Node>) -> u64 {
    node.and_then(|node| u64::try_from(node.version).ok()).map_or(0, |version| version + 1)
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
) -> Result<Option<Acknowledged>, AdminError> {
    let mut sent: Option<Acknowledged> = None;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        check_layout(&observer, paths).await?;
        let known = observer.decision(paths).await?;
        let Some(before) = known.record()? else { return Ok(None) };
        // The answer was lost.
        if let Some(sent) = sent.filter(|sent| sent.after == before) {
            return Ok(Some(sent));
        }
        let Some((mut after, released)) = internals::acknowledge(&before, what) else {
            return Ok(None);
        };
        let write = known.replace(&mut after)?;
        let acknowledged = Acknowledged { before, released, after };
        if attempts.write(write).await? {
            return Ok(Some(acknowledged));
        }
        sent = Some(acknowledged);
    }
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
) -> Result<bool, AdminError> {
    let mut sent: Option<Elected> = None;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        check_layout(&observer, paths).await?;
        let members = observer.snapshot(paths).await?.members;
        let known = observer.decision(paths).await?;
        let Some(before) = known.record()? else { return Ok(false) };
        // The answer was lost.
        if sent.is_some_and(|sent| sent == before) {
            return Ok(true);
        }
        let Some(mut next) = internals::overrule_site(&before, &members, site, by, unix_ms()) else {
            return Ok(false);
        };
        if attempts.write(known.replace(&mut next)?).await? {
            return Ok(true);
        }
        sent = Some(next);
    }
}

/// Only an elector obeys standing orders.
async fn check_layout(observer: &Observer, paths: &Paths) -> Result<(), AdminError> {
    match observer.layout(paths).await? {
        None => Err(ReadError::NoElection(paths.base().to_owned()).into()),
        Some(Layout::Elector) => Ok(()),
        Some(recipe) => Err(Refusal::NoElector { path: paths.base().to_owned(), recipe }.into()),
    }
}
