//! Overlays: changes of the configuration of a job that all its members apply.

use election_admin::{AdminError, Attempts, Known, Observer, ReadError};
use election_core::{
    Paths,
    internals::{
        record::{Record as _, RecordError},
        unix_ms,
    },
};
use zk_session::{CreateMode, Incarnation, MultiOp, Session};

use super::{NewOverlay, Overlay, WorkerPaths as _};

/// How many versions are kept.
pub(crate) const KEPT: usize = 20;

/// Reads the present overlay of an election; `None` if there never was one.
///
/// # Errors
/// When it can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn read(session: &Incarnation, paths: &Paths) -> Result<Option<Overlay>, AdminError> {
    Ok(Observer::new(session.clone()).record(&paths.config()).await?)
}

/// Reads the overlays of an election that are kept, oldest first, and those that can't be used.
///
/// # Errors
/// When they can't be read.
///
/// # Cancel safety
/// Cancel safe: it only reads.
pub(crate) async fn history(
    session: &Incarnation,
    paths: &Paths,
) -> Result<(Vec<Overlay>, Vec<RecordError>), AdminError> {
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
async fn versions(session: &Incarnation, paths: &Paths) -> Result<Vec<u64>, AdminError> {
    let children = session.children(&paths.config()).await?;
    let names = children.map(|children| children.names).unwrap_or_default();
    let mut versions: Vec<u64> =
        names.iter().filter_map(|name| name.strip_prefix("v-")?.parse().ok()).collect();
    versions.sort_unstable();
    Ok(versions)
}

/// Copies the present overlay of an election to another one. One there of a later version stays: it was pushed there.
///
/// # Errors
/// When an overlay can't be read, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not. Repeating it is safe.
pub(crate) async fn copy(from: (&Session, &Paths), to: (&Session, &Paths)) -> Result<(), AdminError> {
    let ((session, paths), (there, other)) = (from, to);
    let mut attempts = Attempts::over(there);
    loop {
        let observer = attempts.look().await?;
        let here = session.active().await?;
        here.barrier().await?;
        let Some(overlay) = read(&here, paths).await? else { return Ok(()) };
        let known: Known<Overlay> = observer.known(other.config()).await?;
        // One that can't be read is replaced.
        let present = known.record().ok().flatten();
        if present.is_some_and(|present| present.version > overlay.version || present == overlay) {
            return Ok(());
        }
        let kept: Known<Overlay> = observer.known(other.config_version(overlay.version)).await?;
        known.make_parents(observer.session()).await?;
        if attempts.write([known.replace(&overlay)?, kept.replace(&overlay)?]).await? {
            return Ok(());
        }
    }
}

/// The outcome of a push.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// It is the overlay now.
    Done(Overlay),
    /// The present version is another one than expected.
    Changed(u64),
}

/// Replaces the overlay of an election, if its version is `replaces` (0 for none), and keeps it among the
/// last [`KEPT`] versions.
///
/// # Errors
/// When there is no such election, or ZooKeeper doesn't answer.
///
/// # Cancel safety
/// May have been carried out or not.
pub(crate) async fn push(
    session: &Session,
    paths: &Paths,
    replaces: u64,
    new: &NewOverlay<'_>,
) -> Result<Pushed, AdminError> {
    let mut written: Option<Overlay> = None;
    let mut attempts = Attempts::over(session);
    loop {
        let observer = attempts.look().await?;
        if observer.layout(paths).await?.is_none() {
            return Err(ReadError::NoElection(paths.base().to_owned()).into());
        }
        let known: Known<Overlay> = observer.known(paths.config()).await?;
        // One that can't be read can be replaced: its version is unknown, and those that are kept are known.
        let present = known.record().ok().flatten();
        // The answer may have been lost.
        if let Some(written) = written.take_if(|written| present.as_ref() == Some(written)) {
            return Ok(Pushed::Done(written));
        }
        let present = present.map_or(0, |overlay| overlay.version);
        if replaces != present {
            return Ok(Pushed::Changed(present));
        }
        let kept = versions(observer.session(), paths).await?;
        let version = kept.iter().copied().max().unwrap_or(0).max(present) + 1;
        let overlay = Overlay::new(version, unix_ms(), new);
        let path = paths.config_version(version);
        let keep = MultiOp::create(&path, overlay.encode(&path)?, CreateMode::Persistent);
        let removed = kept.iter().take((kept.len() + 1).saturating_sub(KEPT));
        let removed = removed.map(|old| MultiOp::delete(paths.config_version(*old), None));
        let group = [known.replace(&overlay)?, keep].into_iter().chain(removed);
        written = Some(overlay.clone());
        if attempts.write(group).await? {
            return Ok(Pushed::Done(overlay));
        }
    }
}
