//! What a move of an election to another ensemble takes: the new one is closed until the old one has ended, and goes on above it.

use election_core::{
    Paths,
    config::SiteId,
    internals::{
        self,
        record::{Control, Elected},
        unix_ms,
    },
};
use zk_session::Session;

use crate::{change::Attempts, error::AdminError, known::Known, observer::Snapshot};

/// Closes an election, which may not exist yet: no member of these sites leads until the orders are replaced.
///
/// # Errors
/// When the orders can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn close(
    session: &Session,
    paths: &Paths,
    sites: &[SiteId],
    by: &str,
    reason: &str,
) -> Result<(), AdminError> {
    let close = |control: &mut Control| {
        control.drained = sites.to_vec();
        control.changed_reason = Some(reason.to_owned());
    };
    replace(session, paths, by, close).await
}

/// Opens an election that was closed: these orders are in force there from now on.
///
/// # Errors
/// As for [`close`].
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn open(session: &Session, paths: &Paths, orders: &Control, by: &str) -> Result<(), AdminError> {
    replace(session, paths, by, |control| *control = orders.clone()).await
}

async fn replace(
    session: &Session,
    paths: &Paths,
    by: &str,
    alter: impl Fn(&mut Control),
) -> Result<(), AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Control> = observer.known(paths.control()).await?;
        let mut after = known.record_or_default()?;
        alter(&mut after);
        after.v = after.format();
        by.clone_into(&mut after.changed_by);
        after.changed_at_ms = unix_ms();
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(&after)?]).await? {
            return Ok(());
        }
    }
}

/// Has an election, which may not exist yet, go on above this term and this fencing token: those from now on are higher.
///
/// # Errors
/// When there can't be such a token, when the decision can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub async fn go_on_above(
    session: &Session,
    paths: &Paths,
    term: u64,
    token: u64,
    by: &str,
) -> Result<(), AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Elected> = observer.known(paths.elected()).await?;
        let before = known.record()?;
        let raised = internals::raise_tokens(before.as_ref(), None, token, by, unix_ms())?;
        let Some(mut next) = raised.or_else(|| before.clone()) else { return Ok(()) };
        if next.term <= term {
            next.term = term.saturating_add(1);
            for slot in &mut next.slots {
                (slot.given.term, slot.given.decided_in) = (next.term, None);
            }
        }
        if before.as_ref() == Some(&next) {
            return Ok(());
        }
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(&next)?]).await? {
            return Ok(());
        }
    }
}

/// A token that no leadership of an election has had: none has a leader now, and none can have one.
///
/// It is made of a transaction of this call, so it is above those of all leader znodes until now.
///
/// # Errors
/// When there are no standing orders, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// Cancel safe: it writes the orders as they are.
pub async fn token_above(session: &Session, paths: &Paths, snapshot: &Snapshot) -> Result<u64, AdminError> {
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        let known: Known<Control> = observer.known(paths.control()).await?;
        let orders = known.record_or_default()?;
        if !attempts.write([known.replace(&orders)?]).await? {
            continue;
        }
        let written = observer.read(&paths.control()).await?.map(|node| node.mzxid);
        if let Some(zxid) = written.and_then(|zxid| u64::try_from(zxid).ok()) {
            return Ok(zxid.saturating_add(snapshot.token_base()));
        }
    }
}
