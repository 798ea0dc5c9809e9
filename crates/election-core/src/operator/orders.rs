//! Standing orders: what operators say once and what goes until they say otherwise; and their
//! word that they have looked at what went wrong.

use zk_session::{CreateMode, Session};

use super::{
    error::{OperatorError, TRIES, is_worth_another_look, too_many_races},
    layout::Layout,
    observer::Observer,
};
use crate::{
    engine::{self, Forgotten, Released},
    ids::SiteId,
    paths::Paths,
    record::{Control, Elected, Record as _},
    runtime::{ReadError, unix_ms},
};

/// Standing orders before and after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ordered {
    /// As they stood.
    pub before: Control,
    /// As they stand.
    pub after: Control,
}

impl Ordered {
    /// Whether there was anything to change.
    pub fn is_news(&self) -> bool {
        self.before != self.after
    }
}

/// Changes the standing orders of an election by compare-and-set: `change` is made on what
/// stands there, again after every lost race. Works while nobody takes part.
///
/// # Errors
/// When there is no such election, when nobody decides in it, when the orders can't be read,
/// or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not; doing it again does no harm if `change` is the same
/// twice as once.
pub async fn order(
    session: &Session,
    paths: &Paths,
    by: &str,
    mut change: impl FnMut(&mut Control),
) -> Result<Ordered, OperatorError> {
    let path = paths.control();
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        // What this server has not heard of yet would be undone.
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
        if after == before {
            return Ok(Ordered { before, after });
        }
        by.clone_into(&mut after.changed_by);
        after.changed_at_ms = unix_ms();
        let data = after.encode(&path)?;
        let written = match &node {
            Some(node) => incarnation.set(&path, data, Some(node.version)).await.map(drop),
            None => incarnation.create(&path, data, CreateMode::Persistent).await.map(drop),
        };
        match written {
            Ok(()) => return Ok(Ordered { before, after }),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// What was remembered against an election, and the decision in which that stood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acknowledged {
    /// The decision as it was.
    pub before: Elected,
    /// What is forgotten now.
    pub released: Released,
    /// The decision as it is now.
    pub after: Elected,
}

/// Forgets this of what is remembered, by compare-and-set on the decision: a hold ends, members that failed are as good as
/// others again, sites are gone back to. The term stays, and who leads leads on. `None` if nothing of it is remembered.
///
/// # Errors
/// When there is no such election, when nobody decides in it, when the decision can't be read,
/// or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not; doing it again does no harm.
pub async fn acknowledge(
    session: &Session,
    paths: &Paths,
    what: Forgotten,
) -> Result<Option<Acknowledged>, OperatorError> {
    let path = paths.elected();
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        check_layout(&observer, paths).await?;
        let Some(node) = observer.read(&path).await? else { return Ok(None) };
        let before = Elected::decode(&path, &node.data)?;
        let Some((after, released)) = engine::acknowledge(&before, what) else { return Ok(None) };
        match incarnation.set(&path, after.encode(&path)?, Some(node.version)).await {
            Ok(_) => return Ok(Some(Acknowledged { before, released, after })),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// Says of a site that it has not failed, by compare-and-set on the decision: what its own members say is not heeded until
/// they agree. Whether there was anything to say that against. A site that an operator has declared to have failed is no
/// matter of this, see [`Control::failed_sites`].
///
/// # Errors
/// As for [`acknowledge`].
///
/// # Cancel safety
/// May have been carried out or not; doing it again does no harm.
pub async fn overrule_site(
    session: &Session,
    paths: &Paths,
    site: &SiteId,
    by: &str,
) -> Result<bool, OperatorError> {
    let path = paths.elected();
    for _ in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        check_layout(&observer, paths).await?;
        let members = observer.snapshot(paths).await?.members;
        let Some(node) = observer.read(&path).await? else { return Ok(false) };
        let before = Elected::decode(&path, &node.data)?;
        let Some(next) = engine::overrule_site(&before, &members, site, by, unix_ms()) else {
            return Ok(false);
        };
        match incarnation.set(&path, next.encode(&path)?, Some(node.version)).await {
            Ok(_) => return Ok(true),
            Err(error) if is_worth_another_look(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::task::yield_now().await;
    }
    Err(too_many_races())
}

/// Only an elector heeds them.
async fn check_layout(observer: &Observer, paths: &Paths) -> Result<(), OperatorError> {
    match observer.layout(paths).await? {
        None => Err(ReadError::NoElection(paths.base().to_owned()).into()),
        Some(Layout::Elector) => Ok(()),
        Some(layout) => {
            let why = format!(
                "{} is held by the recipe {:?}: nobody decides there who would heed standing orders",
                paths.base(),
                layout.as_str()
            );
            Err(OperatorError::Refused(why))
        }
    }
}
