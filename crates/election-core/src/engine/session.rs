//! The session that everything rests on: whether it lives, how long its lease lasts,
//! and until when work may go on with it.

use std::time::Duration;

use super::{Action, Engine, Epoch, FAR, OnPause, rules::Rule, verification::Verification, view::View};
use crate::time::Time;

/// What is known of the session.
#[derive(Clone, Debug, Hash)]
pub(super) struct SessionView {
    pub(super) epoch: Epoch,
    pub(super) id: i64,
    pub(super) granted: Duration,
    pub(super) paused_since: Option<Time>,
    pub(super) over: bool,
    pub(super) lease: Option<Time>,
}

impl Engine {
    /// Until when the work of a leader may go on.
    pub fn work_until(&self) -> Option<Time> {
        self.lease_until().map(|until| self.standing.until(until))
    }

    /// The end of the lease, unless a deadline of its own ends the work before.
    pub(super) fn lease_ends_first(&self) -> Option<Time> {
        self.lease_until().filter(|until| self.standing.until(*until) == *until)
    }

    /// Until when the session lets it go on.
    pub(super) fn lease_until(&self) -> Option<Time> {
        let session = self.session.as_ref()?;
        if !self.rules.keep(Rule::Lease) {
            return Some(Time::ZERO + FAR);
        }
        match self.config.policy.on_pause {
            OnPause::Stop => session.lease,
            OnPause::Keep { max_pause } => {
                // Never less than the lease: a short pause must not end what goes on
                // between two beats.
                let lease = session.lease?;
                let from = session.paused_since.unwrap_or(self.now.time);
                Some(lease.max(from + max_pause.unwrap_or(FAR)))
            }
        }
    }

    pub(super) fn session_of(&mut self, epoch: Epoch) -> Option<&mut SessionView> {
        self.session.as_mut().filter(|s| s.epoch == epoch && !s.over)
    }

    pub(super) fn session_epoch(&self) -> Option<Epoch> {
        self.session.as_ref().filter(|s| !s.over).map(|s| s.epoch)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.session.as_ref().map_or(0, |s| s.epoch)
    }

    pub(super) fn session_id(&self) -> i64 {
        self.session.as_ref().map_or(0, |s| s.id)
    }

    pub(super) fn granted(&self) -> Duration {
        self.session.as_ref().map_or(Duration::ZERO, |s| s.granted)
    }

    pub(super) fn stop_budget(&self) -> Duration {
        self.config.policy.stop_budget(self.granted())
    }

    pub(super) fn session_is_active(&self) -> bool {
        self.session.as_ref().is_some_and(|s| !s.over && s.paused_since.is_none())
    }

    pub(super) fn lease_is_valid(&self) -> bool {
        self.session.as_ref().is_some_and(|s| !s.over && s.lease.is_some_and(|until| self.now.time < until))
    }

    pub(super) fn session_started(&mut self, epoch: Epoch, id: i64, granted: Duration) {
        if let Some(epoch) = self.session_epoch() {
            self.session_over(epoch);
        }
        let keep =
            matches!(self.config.policy.on_pause, OnPause::Keep { .. }) && self.office.held().is_some();
        let former = self.session.as_ref();
        // A leader that leads on meanwhile keeps its time: the pause goes on until
        // another one is named.
        let lease = former.filter(|_| keep).and_then(|s| s.lease);
        self.session = Some(SessionView { epoch, id, granted, paused_since: None, over: false, lease });
        self.view = View::default();
        self.watched.clear();
        if self.is_contest() {
            self.begin_contest();
        } else {
            self.begin_registration();
        }
    }

    pub(super) fn session_paused(&mut self, epoch: Epoch) {
        let now = self.now.time;
        if let Some(session) = self.session_of(epoch) {
            session.paused_since.get_or_insert(now);
            self.tell_work_until();
            if let Some(elector) = &mut self.elector {
                elector.checked = None;
            }
        }
    }

    pub(super) fn session_over(&mut self, epoch: Epoch) {
        let now = self.now.time;
        let Some(session) = self.session_of(epoch) else {
            return;
        };
        session.paused_since.get_or_insert(now);
        session.over = true;
        self.end_registration();
        self.contest_session_over();
        self.node_written = None;
        self.elector = None;
        self.skipped = None;
        self.history.session_over();
        self.verification = Verification::default();
        self.office_session_over();
        self.tell_work_until();
        self.memory.keep(&self.view.elected);
        self.view = View::default();
        self.watched.clear();
    }

    pub(super) fn lease(&mut self, epoch: Epoch, valid_until: Time) {
        let Some(session) = self.session_of(epoch) else {
            return;
        };
        // It can shrink: a clock that is slewed takes from it.
        session.lease = Some(valid_until);
        self.tell_work_until();
    }

    /// What the work's guard is to go by, after anything that may have moved it.
    pub(super) fn tell_work_until(&mut self) {
        if let (true, Some(until)) = (self.office.is_working(), self.work_until())
            && self.told_until != Some(until)
        {
            self.told_until = Some(until);
            self.actions.push_back(Action::WorkUntil(until));
        }
    }

    /// The clock alone can end a leadership.
    pub(super) fn check_deadline(&mut self) {
        if self.office.held().is_some() {
            self.advance_office();
        }
    }
}
