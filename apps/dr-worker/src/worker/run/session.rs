//! Keeps the guards' knowledge of the worker's session up to date.

use job_guard::LastWill;
use tokio::{sync::watch, task::JoinSet};
use zk_session::Session;

use crate::{connect::Servers, worker::closing::WorkerSession};

/// The worker's session as its guards have to know it, kept up to date in the background.
pub(super) fn known(
    session: &Session,
    servers: Servers,
    background: &mut JoinSet<()>,
) -> watch::Receiver<Option<LastWill>> {
    let (told, known) = watch::channel(present(session, &servers));
    background.spawn(keep(session.clone(), servers, told));
    known
}

fn present(session: &Session, servers: &Servers) -> Option<LastWill> {
    let session = WorkerSession::new(&session.incarnation()?.ticket(), servers)?;
    LastWill::new(&session).ok()
}

/// Publishes each new session, and the end of each.
async fn keep(session: Session, servers: Servers, told: watch::Sender<Option<LastWill>>) {
    let mut states = session.subscribe();
    loop {
        states.borrow_and_update();
        let now = present(&session, &servers);
        told.send_if_modified(|told| {
            let is_new = *told != now;
            *told = now;
            is_new
        });
        if states.changed().await.is_err() {
            return;
        }
    }
}
