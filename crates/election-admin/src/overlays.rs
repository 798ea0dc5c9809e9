//! Overlays: changes of the configuration of a job that all its members apply.

use zk_session::{CreateMode, Incarnation, MultiOp, Session};

use crate::{
    error::{OperatorError, TRIES, is_worth_another_look, pause, too_many_races},
    observer::Observer,
};
use election_core::{
    Paths,
    internals::{ReadError, unix_ms},
    record::{NewOverlay, Overlay, Record as _, RecordError},
};

/// How many versions are kept.
pub const KEPT: usize = 20;

/// Reads the present overlay of an election; `None` if there never was one.
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn read(session: &Incarnation, paths: &Paths) -> Result<Option<Overlay>, OperatorError> {
    Observer::new(session.clone()).record(&paths.config()).await
}

/// Reads the overlays of an election that are kept, oldest first, and those that can't be used.
///
/// # Errors
/// When they can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub async fn history(
    session: &Incarnation,
    paths: &Paths,
) -> Result<(Vec<Overlay>, Vec<RecordError>), OperatorError> {
    let observer = Observer::new(session.clone());
    let (mut kept, mut unreadable) = (Vec::new(), Vec::new());
    for version in versions(session, paths).await? {
        let path = paths.config_version(version);
        // It may have been removed meanwhile.
        let Some(node) = observer.read(&path).await? else { continue };
        match Overlay::decode(&path, &node.data) {
            Ok(overlay) => kept.push(overlay),
            Err(error) => unreadable.push(error),
        }
    }
    Ok((kept, unreadable))
}

/// The versions that are kept, oldest first.
async fn versions(session: &Incarnation, paths: &Paths) -> Result<Vec<u64>, OperatorError> {
    let children = session.children(&paths.config()).await?;
    let names = children.map(|children| children.names).unwrap_or_default();
    let mut versions: Vec<u64> =
        names.iter().filter_map(|name| name.strip_prefix("v-")?.parse().ok()).collect();
    versions.sort_unstable();
    Ok(versions)
}

/// Replaces the overlay of an election, if its version is `replaces` (0 for none; any if `None`), and keeps it among the
/// last [`KEPT`] versions.
///
/// # Errors
/// [`OperatorError::NotNow`] when the present version is another one; when the text is too long, there is no such election, or
/// ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not.
pub async fn push(
    session: &Session,
    paths: &Paths,
    replaces: Option<u64>,
    new: &NewOverlay<'_>,
) -> Result<Overlay, OperatorError> {
    if new.text.len() > Overlay::MAX_TEXT {
        let (length, most) = (new.text.len(), Overlay::MAX_TEXT);
        return Err(OperatorError::Refused(format!("the overlay has {length} bytes; {most} are possible")));
    }
    let path = paths.config();
    for attempt in 0..TRIES {
        let incarnation = session.active().await?;
        incarnation.barrier().await?;
        let observer = Observer::new(incarnation.clone());
        if observer.layout(paths).await?.is_none() {
            return Err(ReadError::NoElection(paths.base().to_owned()).into());
        }
        let node = observer.read(&path).await?;
        // One that can't be read can be replaced: its version is unknown, and those that are kept are known.
        let present = node.as_ref().and_then(|node| Overlay::decode(&path, &node.data).ok());
        let present = present.map_or(0, |overlay| overlay.version);
        if let Some(expected) = replaces.filter(|expected| *expected != present) {
            return Err(OperatorError::NotNow(format!(
                "the overlay is version {present}, and not {expected} any more: somebody has changed it meanwhile"
            )));
        }
        let kept = versions(&incarnation, paths).await?;
        let version = kept.iter().copied().max().unwrap_or(0).max(present) + 1;
        let overlay = Overlay::new(version, unix_ms(), new);
        let data = overlay.encode(&path)?;
        let replaced = match &node {
            Some(node) => MultiOp::set(&path, data.clone(), node.version),
            None => MultiOp::create(&path, data.clone(), CreateMode::Persistent),
        };
        let removed = kept.iter().take((kept.len() + 1).saturating_sub(KEPT));
        let removed = removed.map(|old| MultiOp::delete(paths.config_version(*old), None));
        let group = [replaced, MultiOp::create(paths.config_version(version), data, CreateMode::Persistent)];
        match incarnation.multi(group.into_iter().chain(removed)).await {
            Ok(_) => return Ok(overlay),
            Err(error) if is_worth_another_look(&error) => {
                // The answer may have been lost.
                if let Some(found) = read(&incarnation, paths).await?
                    && found == overlay
                {
                    return Ok(overlay);
                }
            }
            Err(error) => return Err(error.into()),
        }
        pause(attempt).await;
    }
    Err(too_many_races())
}
