//! Keeps the guards' knowledge of the worker's session up to date.

use std::sync::Arc;

use job_guard::LastWill;
use tokio::{sync::watch, task::JoinSet};
use zk_session::Session;

use crate::{config::Config, connect::Servers, worker::closing::WorkerSession};

/// The worker's session as its guards have to know it, kept up to date in the background.
pub(super) fn known(
    session: &Session,
    in_force: watch::Receiver<Arc<Config>>,
    background: &mut JoinSet<()>,
) -> watch::Receiver<Option<LastWill>> {
    let (told, known) = watch::channel(present(session, &in_force.borrow()));
    background.spawn(keep(session.clone(), in_force, told));
    known
}

fn present(session: &Session, config: &Config) -> Option<LastWill> {
    let servers = Servers::of(&config.zookeeper);
    let session = WorkerSession::new(session.incarnation()?.ticket(), &servers)?;
    LastWill::new(&session).ok()
}

/// Publishes each new session, the end of each, and other servers.
async fn keep(
    session: Session,
    mut in_force: watch::Receiver<Arc<Config>>,
    told: watch::Sender<Option<LastWill>>,
) {
    let mut states = session.subscribe();
    loop {
        states.borrow_and_update();
        let now = present(&session, &in_force.borrow_and_update());
        told.send_if_modified(|told| {
            let is_new = *told != now;
            *told = now;
            is_new
        });
        let changed = tokio::select! {
            changed = states.changed() => changed,
            changed = in_force.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}
