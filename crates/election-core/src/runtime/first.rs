//! The first candidate in a queue, for observers that are not in it.

use futures_util::stream::{self, Stream};
use zk_session::{BootTime, DataWatch, Epoch, Incarnation, Node, OpError, Session, WatchError, sleep_until};

use super::RETRY;
use crate::{engine::QueueFormat, paths::Paths};

/// The state of a leader znode, and the session on which it was read.
#[derive(Clone, Debug)]
pub(super) struct SeenHolder {
    pub(super) epoch: Epoch,
    /// The path and the data of the leader znode.
    pub(super) holder: Option<(String, Node)>,
}

/// The znode of the first candidate in a queue of this crate's own format, and its changes.
///
/// Only that znode is watched: no other candidate can come before it, so only its end makes another one first. While
/// the queue is empty, the queue is watched. The stream ends when the session is closed.
pub(super) fn of_queue(
    session: &Session,
    paths: &Paths,
) -> impl Stream<Item = Result<SeenHolder, OpError>> + use<> {
    let (session, queue) = (session.clone(), paths.queue());
    let first = First { session, queue, first: None, told_empty: false };
    stream::unfold(first, async |mut first| match first.next().await {
        Ok(seen) => Some((Ok(seen), first)),
        Err(WatchError::Refused(error)) => Some((Err(error), first)),
        Err(_) => None,
    })
}

struct First {
    session: Session,
    queue: String,
    /// The first candidate that is known.
    first: Option<(String, DataWatch)>,
    told_empty: bool,
}

impl First {
    /// The path and the znode of the first candidate. The first call returns the present one; later calls wait for a
    /// change. `None` is returned once when the queue becomes empty.
    async fn next(&mut self) -> Result<SeenHolder, WatchError> {
        loop {
            if let Some((path, watch)) = &mut self.first {
                let seen = watch.next().await?;
                if let Some(node) = seen.value {
                    self.told_empty = false;
                    return Ok(SeenHolder { epoch: seen.epoch, holder: Some((path.clone(), node)) });
                }
                self.first = None;
            }
            let session = self.session.active().await?;
            match self.look(&session).await {
                Ok(Some(path)) => {
                    let watch = self.session.watch_data(path.clone());
                    self.first = Some((path, watch));
                }
                Err(error) if error.is_refused() => {
                    sleep_until(BootTime::now() + RETRY).await;
                    return Err(WatchError::Refused(error));
                }
                Ok(None) if !self.told_empty => {
                    self.told_empty = true;
                    return Ok(SeenHolder { epoch: session.epoch(), holder: None });
                }
                Ok(None) => self.somebody().await?,
                Err(error) => {
                    tracing::debug!(%error, "who is first is read once more");
                    sleep_until(BootTime::now() + RETRY).await;
                }
            }
        }
    }

    async fn look(&self, session: &Incarnation) -> Result<Option<String>, OpError> {
        // A server that lags could return a deleted znode.
        session.barrier().await?;
        let names = session.children(&self.queue).await?.map(|c| c.names).unwrap_or_default();
        Ok(QueueFormat::Native.order(&names).first().map(|name| format!("{}/{name}", self.queue)))
    }

    /// Returns when there is a candidate.
    async fn somebody(&self) -> Result<(), WatchError> {
        let mut watch = self.session.watch_children(self.queue.clone());
        loop {
            let names = watch.next().await?.value.map(|c| c.names).unwrap_or_default();
            if !QueueFormat::Native.order(&names).is_empty() {
                return Ok(());
            }
        }
    }
}
