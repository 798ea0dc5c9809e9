//! Who is first in a queue, for those who don't stand in it.

use zk_session::{BootTime, Closed, DataWatch, Incarnation, OpError, Session, sleep_until};

use super::leaders::{RETRY, Seen};
use crate::{engine::QueueFormat, paths::Paths};

/// The znode of whoever is first in a queue of this crate's own format, and its changes.
///
/// Watched is that znode alone, as the member behind it does: nobody can come before it,
/// so only its end makes another one first. While nobody stands, the queue is watched.
pub(super) struct First {
    session: Session,
    queue: String,
    /// The first one, as far as is known.
    first: Option<(String, DataWatch)>,
    told_empty: bool,
}

impl First {
    pub(super) fn new(session: &Session, paths: &Paths) -> Self {
        Self { session: session.clone(), queue: paths.queue(), first: None, told_empty: false }
    }

    /// The path and the znode of the first one: now at the first call, later when it has
    /// changed or another one is first. `None` once when nobody stands.
    pub(super) async fn next(&mut self) -> Result<Seen, Closed> {
        loop {
            if let Some((path, watch)) = &mut self.first {
                let seen = watch.next().await?;
                if let Some(node) = seen.value {
                    self.told_empty = false;
                    return Ok(Seen { epoch: seen.epoch, holder: Some((path.clone(), node)) });
                }
                self.first = None;
            }
            let session = self.session.active().await?;
            match self.look(&session).await {
                Ok(Some(path)) => {
                    let watch = self.session.watch_data(path.clone());
                    self.first = Some((path, watch));
                }
                Ok(None) if !self.told_empty => {
                    self.told_empty = true;
                    return Ok(Seen { epoch: session.epoch(), holder: None });
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
        // A server that lags would name one that has gone.
        session.barrier().await?;
        let names = session.children(&self.queue).await?.map(|c| c.names).unwrap_or_default();
        Ok(QueueFormat::Native.order(&names).first().map(|name| format!("{}/{name}", self.queue)))
    }

    /// Returns when somebody stands.
    async fn somebody(&self) -> Result<(), Closed> {
        let mut watch = self.session.watch_children(self.queue.clone());
        loop {
            let names = watch.next().await?.value.map(|c| c.names).unwrap_or_default();
            if !QueueFormat::Native.order(&names).is_empty() {
                return Ok(());
            }
        }
    }
}
