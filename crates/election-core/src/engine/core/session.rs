//! The session on which everything depends: whether it lives, how long its lease lasts, and until when work may
//! continue on it.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use super::Core;
use crate::{
    engine::{
        io::{Action, Epoch},
        policy::OnPause,
    },
    time::{FAR, Time},
};

/// What is known of the session.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Session {
    pub(crate) epoch: Epoch,
    pub(crate) id: i64,
    pub(crate) granted: Duration,
    pub(crate) paused_since: Option<Time>,
    pub(crate) over: bool,
    pub(crate) lease: Option<Time>,
    pub(crate) created: Created,
}

/// The leader znodes that this engine is known to have created on the session, by czxid: its own even if another program
/// has changed the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Created(Vec<i64>);

/// One of an older copy of the ensemble is one of these.
const KEPT: usize = 8;

impl Created {
    pub(crate) fn add(&mut self, czxid: i64) {
        if !self.has(czxid) {
            self.0.drain(..(self.0.len() + 1).saturating_sub(KEPT));
            self.0.push(czxid);
        }
    }

    pub(crate) fn has(&self, czxid: i64) -> bool {
        self.0.contains(&czxid)
    }
}

impl Hash for Created {
    /// Only a record that was changed from outside makes a difference, which no checker that merges states does.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Core {
    /// Until when the work of a leader may continue.
    pub(crate) fn work_until(&self) -> Option<Time> {
        self.lease_until().map(|until| self.own.wishes.until(until))
    }

    /// The end of the lease, unless a deadline of its own ends the work before.
    pub(crate) fn lease_ends_first(&self) -> Option<Time> {
        self.lease_until().filter(|until| self.own.wishes.until(*until) == *until)
    }

    /// Until when the session permits the work to continue.
    pub(crate) fn lease_until(&self) -> Option<Time> {
        let session = self.session.as_ref()?;
        match self.config.policy.on_pause {
            OnPause::Stop | OnPause::Freeze { .. } => session.lease,
            OnPause::Keep { max_pause } => {
                // Never less than the lease: a short pause must not end work that continues between two heartbeats.
                let lease = session.lease?;
                let from = session.paused_since.unwrap_or(self.now.time);
                Some(lease.max(from + max_pause.unwrap_or(FAR)))
            }
        }
    }

    pub(crate) fn session_of(&mut self, epoch: Epoch) -> Option<&mut Session> {
        self.session.as_mut().filter(|s| s.epoch == epoch && !s.over)
    }

    pub(crate) fn session_epoch(&self) -> Option<Epoch> {
        self.session.as_ref().filter(|s| !s.over).map(|s| s.epoch)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.session.as_ref().map_or(0, |s| s.epoch)
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.session.as_ref().map_or(0, |s| s.id)
    }

    pub(crate) fn granted(&self) -> Duration {
        self.session.as_ref().map_or(Duration::ZERO, |s| s.granted)
    }

    pub(crate) fn stop_budget(&self) -> Duration {
        self.config.policy.stop_budget(self.granted())
    }

    /// How long before the end of the lease the work is stopped.
    pub(crate) fn lease_end_budget(&self) -> Duration {
        match self.config.policy.on_pause {
            OnPause::Freeze { kill_budget } if self.out.suspends => kill_budget.min(self.stop_budget()),
            _ => self.stop_budget(),
        }
    }

    /// When a leadership that is held has to end, unless the lease is renewed before.
    pub(crate) fn must_stop_at(&self) -> Option<Time> {
        let by_lease = self.lease_until().map(|until| until - self.lease_end_budget());
        let by_wish = self.own.wishes.deadline.as_ref().map(|deadline| deadline.0 - self.stop_budget());
        by_lease.map(|at| by_wish.map_or(at, |wish| at.min(wish)))
    }

    pub(crate) fn session_is_active(&self) -> bool {
        self.session.as_ref().is_some_and(|s| !s.over && s.paused_since.is_none())
    }

    pub(crate) fn lease_is_valid(&self) -> bool {
        self.session.as_ref().is_some_and(|s| !s.over && s.lease.is_some_and(|until| self.now.time < until))
    }

    /// A new session is active. A leadership that continues from the former session (`keep`) keeps its time: its
    /// pause continues until another member is named.
    pub(crate) fn session_started(&mut self, epoch: Epoch, id: i64, granted: Duration) {
        let keeps =
            matches!(self.config.policy.on_pause, OnPause::Keep { .. }) && self.own.duty.held.is_some();
        let lease = self.session.as_ref().filter(|_| keeps).and_then(|s| s.lease);
        self.session = Some(Session { epoch, id, granted, lease, ..Session::default() });
        self.reading.forget();
        self.out.watched.clear();
    }

    /// Returns whether this session was active until now.
    pub(crate) fn session_paused(&mut self, epoch: Epoch) -> bool {
        let now = self.now.time;
        let Some(session) = self.session_of(epoch) else { return false };
        session.paused_since.get_or_insert(now);
        self.tell_work_until();
        true
    }

    /// Returns whether this session was paused, or active, until now.
    pub(crate) fn session_resumed(&mut self, epoch: Epoch) -> bool {
        let Some(session) = self.session_of(epoch) else { return false };
        session.paused_since = None;
        true
    }

    /// The session is over, with every operation on it; returns whether it was not over before.
    pub(crate) fn session_over(&mut self, epoch: Epoch) -> bool {
        let now = self.now.time;
        let Some(session) = self.session_of(epoch) else { return false };
        session.paused_since.get_or_insert(now);
        session.over = true;
        self.ops.clear();
        self.out.skipped = None;
        self.reading.rereading = Default::default();
        true
    }

    /// What was read on an ended session does not count any more.
    pub(crate) fn forget_reading(&mut self) {
        self.reading.memory.keep(&self.reading.view.elected);
        self.reading.forget();
        self.out.watched.clear();
    }

    pub(crate) fn lease(&mut self, epoch: Epoch, valid_until: Time) {
        let reserve = self.config.policy.lease_reserve;
        let Some(session) = self.session_of(epoch) else { return };
        // The lease can become shorter, if the clock is slewed.
        session.lease = Some(valid_until - reserve);
        self.tell_work_until();
    }

    /// Reports the deadline to the work's guard, after anything that may have changed it.
    pub(crate) fn tell_work_until(&mut self) {
        if let (true, Some(until)) = (self.own.duty.is_working, self.work_until())
            && self.out.told_until != Some(until)
        {
            self.out.told_until = Some(until);
            self.out.push(Action::WorkUntil(until));
        }
    }

    /// Why this leadership must end now: its deadline leaves just the time that a stop may take.
    pub(crate) fn resigns_by_now(&self) -> Option<String> {
        let (by, reason) = self.own.wishes.deadline.as_deref()?;
        (self.now.time + self.stop_budget() >= *by).then(|| reason.clone())
    }
}
