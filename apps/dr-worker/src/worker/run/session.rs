//! Keeps the guards' knowledge of the worker's session up to date, and checks the timing of each new one.

use std::sync::Arc;

use job_guard::LastWill;
use tokio::{sync::watch, task::JoinSet};
use zk_session::{Session, SessionState};

use crate::{
    config::Config,
    connect::Servers,
    worker::{closing::WorkerSession, state::Worker},
};

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

/// Checks the timing of each new session: the servers may have been reconfigured.
///
/// A stop budget that does not fit any more is logged, and ends nothing: lease and guard use the granted timeout, so
/// only the job's time to stop gets shorter.
pub(super) async fn timing(session: Session, worker: Arc<Worker>) {
    let mut states = session.subscribe();
    let mut checked = None;
    loop {
        let state = states.borrow_and_update().clone();
        match state {
            SessionState::Active { epoch } if checked != Some(epoch) => {
                let granted = session.incarnation().map(|incarnation| incarnation.lease_timing());
                if let Some(Err(problems)) = granted.map(|granted| worker.config().check_timing(granted)) {
                    tracing::error!("{problems}");
                }
                checked = Some(epoch);
            }
            SessionState::Closed => return,
            _ => {}
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}
