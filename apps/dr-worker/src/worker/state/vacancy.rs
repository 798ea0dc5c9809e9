//! What this worker knows of a job's leaders: how long there has been no READY one, and the newest term.

use std::{sync::Arc, time::Duration};

use election_core::{
    Election,
    internals::record::{Current, Status},
    status::Role,
};
use parking_lot::Mutex;
use zk_session::{BootTime, Session, SessionState};

/// What this worker knows of a job's leaders.
#[derive(Debug)]
pub(in crate::worker) struct Vacancy {
    /// Whether the recipe is a queue.
    is_queue: bool,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Since when this worker knows no READY leader, in at least one of the slots.
    since: Option<BootTime>,
    /// Whether it can know that.
    is_known: bool,
    /// The term of the last leader that it knew.
    term: u64,
}

impl Vacancy {
    /// No leader is known yet.
    pub(in crate::worker) fn new(is_queue: bool) -> Self {
        let known = Known { since: Some(BootTime::now()), is_known: true, term: 0 };
        Self { is_queue, known: Mutex::new(known) }
    }

    /// How long a slot has been without a READY leader; zero while every slot has one. `None` if this member does not know.
    pub(in crate::worker) fn lasts(&self) -> Option<Duration> {
        let known = self.known.lock();
        let lasts = || known.since.map_or(Duration::ZERO, |since| BootTime::now().duration_since(since));
        known.is_known.then(lasts)
    }

    /// The term of the last decision that was read, without an elector that of the last leader. `None` if this member does not
    /// know.
    pub(in crate::worker) fn term(&self, decided: Option<u64>) -> Option<u64> {
        let known = self.known.lock();
        decided.or_else(|| known.is_known.then_some(known.term))
    }

    /// Takes what this member knows now. `term`: 0 while it knows none, as between two leaders of a recipe without an elector.
    fn set(&self, role: Role, leaders: &[Option<Arc<Current>>], term: u64, is_active: bool) {
        let mut known = self.known.lock();
        let was_known = known.is_known;
        known.is_known = !(self.is_queue && knows_no_leader(role, leaders));
        known.since = if is_active && is_led(leaders) {
            None
        } else {
            known.since.filter(|_| was_known).or_else(|| Some(BootTime::now()))
        };
        if term > 0 {
            known.term = term;
        }
    }

    /// Follows the election's status while the session is active: without a session it may be outdated.
    pub(in crate::worker) async fn keep(self: Arc<Self>, election: Election, session: Session) {
        let (mut status, mut states) = (election.status(), session.subscribe());
        loop {
            let is_active = matches!(*states.borrow_and_update(), SessionState::Active { .. });
            let now = status.now();
            self.set(now.role, &now.leaders, now.term, is_active);
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

/// Whether a member of a queue waits, and knows no leader: it reads only the znode before its own.
fn knows_no_leader(role: Role, leaders: &[Option<Arc<Current>>]) -> bool {
    matches!(role, Role::Standby | Role::Excluded) && leaders.iter().all(Option::is_none)
}

fn is_led(leaders: &[Option<Arc<Current>>]) -> bool {
    let is_ready = |current: &Current| current.status == Status::Ready;
    !leaders.is_empty() && leaders.iter().all(|current| current.as_deref().is_some_and(is_ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(term: u64, status: &str) -> Option<Arc<Current>> {
        let record = serde_json::json!({
            "v": 1, "member": "east-1", "ballot": "b-0000000001", "site": "east", "slot": 0, "term": term,
            "status": status, "since_ms": 0,
        });
        Some(Arc::new(serde_json::from_value(record).unwrap()))
    }

    #[test]
    fn a_waiting_member_of_a_queue_that_knows_no_leader_reports_neither_a_vacancy_nor_a_term() {
        let vacancy = Vacancy::new(true);
        let known = |vacancy: &Vacancy| {
            let is_led = vacancy.known.lock().since.is_none();
            (vacancy.lasts().map(|_| is_led), vacancy.term(None))
        };
        vacancy.set(Role::Joining, &[], 0, true);
        assert_eq!(known(&vacancy), (Some(false), Some(0)));
        vacancy.set(Role::Standby, &[None], 0, true);
        assert_eq!(known(&vacancy), (None, None));
        vacancy.set(Role::TakingOver, &[leader(6, "PROGRESS")], 6, true);
        assert_eq!(known(&vacancy), (Some(false), Some(6)));
        vacancy.set(Role::Leader, &[leader(6, "READY")], 6, true);
        assert_eq!(known(&vacancy), (Some(true), Some(6)));
        // It gave up, and waits behind others.
        for role in [Role::Excluded, Role::Standby] {
            vacancy.set(role, &[None], 0, true);
            assert_eq!(known(&vacancy), (None, None), "{role}");
        }
    }

    #[test]
    fn the_term_of_the_last_leader_stays_between_two_leaders() {
        let vacancy = Vacancy::new(false);
        vacancy.set(Role::Standby, &[leader(5, "READY")], 5, true);
        vacancy.set(Role::Standby, &[None], 0, true);
        assert!(vacancy.known.lock().since.is_some());
        assert_eq!(vacancy.term(None), Some(5));
        // The decision counts where there is one.
        assert_eq!(vacancy.term(Some(7)), Some(7));
    }
}
