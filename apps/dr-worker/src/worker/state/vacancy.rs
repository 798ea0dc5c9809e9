//! How long a job has been without a READY leader.

use std::{sync::Arc, time::Duration};

use election_core::{
    Election,
    internals::record::{Current, Status},
    status::ElectionStatus,
};
use parking_lot::Mutex;
use zk_session::{BootTime, Session, SessionState};

/// Since when this worker knows no READY leader of a job, in at least one of its slots.
#[derive(Debug)]
pub(in crate::worker) struct Vacancy(Mutex<Option<BootTime>>);

impl Vacancy {
    /// No leader is known yet.
    pub(in crate::worker) fn new() -> Self {
        Self(Mutex::new(Some(BootTime::now())))
    }

    /// How long that has lasted; zero while every slot has one.
    pub(in crate::worker) fn lasts(&self) -> Duration {
        let since = *self.0.lock();
        since.map_or(Duration::ZERO, |since| BootTime::now().duration_since(since))
    }

    fn set(&self, is_led: bool) {
        let mut since = self.0.lock();
        *since = if is_led { None } else { since.or_else(|| Some(BootTime::now())) };
    }

    /// Follows the election's status while the session is active: without a session it may be outdated.
    pub(in crate::worker) async fn keep(self: Arc<Self>, election: Election, session: Session) {
        let (mut status, mut states) = (election.status(), session.subscribe());
        loop {
            let is_active = matches!(*states.borrow_and_update(), SessionState::Active { .. });
            self.set(is_active && is_led(&status.now()));
            let changed = tokio::select! {
                changed = status.changed() => changed.is_some(),
                changed = states.changed() => changed.is_ok(),
            };
            if !changed {
                return;
            }
        }
    }
}

fn is_led(status: &ElectionStatus) -> bool {
    let is_ready = |current: &Current| current.status == Status::Ready;
    let mut leaders = status.leaders.iter();
    leaders.len() > 0 && leaders.all(|current| current.as_deref().is_some_and(is_ready))
}
