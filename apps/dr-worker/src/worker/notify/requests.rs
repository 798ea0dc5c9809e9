//! Follows the requests of operators to their ends.

use std::{collections::BTreeSet, time::Duration};

use election_admin::AdminError;
use election_core::{Paths, internals::record::FiledRequest};
use tokio::{sync::mpsc, task::JoinSet};
use zk_session::{BootTime, Session};

use super::event::{Event, of_request};

/// Longer than any process lives.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The pause before a request is read once more.
const RETRY: Duration = Duration::from_secs(1);

/// Sends the events of requests that are open now, or ended from `since_ms` on, until the session is closed or this is dropped.
pub(super) async fn follow(session: Session, paths: Paths, since_ms: u64, events: mpsc::Sender<Event>) {
    let mut children = session.watch_children(paths.requests());
    let mut known = BTreeSet::new();
    let mut following = JoinSet::new();
    while let Ok(seen) = children.next_allowed().await {
        let names: BTreeSet<_> =
            seen.value.map(|children| children.names.into_iter().collect()).unwrap_or_default();
        for name in names.difference(&known) {
            let (session, paths, name) = (session.clone(), paths.clone(), name.clone());
            let events = events.clone();
            following.spawn(async move {
                let Some((filed, was_open)) = end_of(&session, &paths, &name).await else { return };
                // The time is by the clock of the member that has answered it.
                if let Some((at_ms, event)) = of_request(&filed)
                    && (was_open || at_ms >= since_ms)
                {
                    // The receiver may have ended.
                    let _ = events.send(event).await;
                }
            });
        }
        known = names;
        while following.try_join_next().is_some() {}
    }
}

/// The request once it has ended, and whether it was open; `None` if it is removed before.
async fn end_of(session: &Session, paths: &Paths, name: &str) -> Option<(FiledRequest, bool)> {
    let mut was_open = false;
    loop {
        let ended = async {
            let filed = election_admin::request(session, paths, name).await?;
            if filed.request.state.is_final() {
                return Ok(Some(filed));
            }
            was_open = true;
            let until = BootTime::now() + FAR;
            let ended = election_admin::follow(session, paths, &filed.which, until, |_| {}).await?;
            Ok(ended.map(|request| FiledRequest { request, ..filed }))
        };
        match ended.await {
            Ok(ended) => return ended.map(|filed| (filed, was_open)),
            Err(AdminError::Refused(_)) => return None,
            Err(error) => tracing::debug!(%error, name, "a request is read once more"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
