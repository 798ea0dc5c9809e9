//! Checks the timing of each new session.

use std::sync::Arc;

use zk_session::{Session, SessionState};

use crate::worker::state::Worker;

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
