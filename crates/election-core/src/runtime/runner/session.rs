//! What the session of a runner becomes, for its engine.

use zk_session::{Incarnation, SessionState};

use super::{
    super::{
        ended::{Ended, StopBudgetTooLong},
        handler::Handler,
        to_time,
    },
    Runner,
};
use crate::engine::Event;

impl<H: Handler> Runner<H> {
    pub(super) fn session_changed(&mut self, state: &SessionState) {
        if matches!(state, SessionState::Closed) {
            self.session_over();
            // Work that is still running is stopped first. Its lease ends soon.
            if self.engine.is_clear() {
                self.end(Ended::SessionClosed);
            }
            return;
        }
        let living = state.epoch();
        if self.incarnation.as_ref().is_some_and(|known| Some(known.epoch()) != living || known.is_over()) {
            self.session_over();
        }
        if self.incarnation.is_none() && state.is_active() {
            self.session_started(state);
        }
        let Some(known) = &self.incarnation else { return };
        let (epoch, pauses) = (known.epoch().0, known.pauses());
        // It may be over already, while this task did not run.
        let was_paused = std::mem::replace(&mut self.pauses, pauses) != pauses;
        if !self.paused && (was_paused || !state.is_active()) {
            self.paused = true;
            self.handle(Event::SessionPaused(epoch));
        }
        if self.paused && state.is_active() {
            self.paused = false;
            self.handle(Event::SessionResumed(epoch));
        }
    }

    fn session_started(&mut self, state: &SessionState) {
        // The pin comes before the first action on it, so that no new session begins while work of this one may run.
        let Some(pin) = self.session.pin() else { return };
        if Some(pin.epoch()) != state.epoch() {
            // The session has moved on already. The next state will report it.
            return;
        }
        let incarnation = pin.incarnation();
        if let Err(refusal) = self.fits(&incarnation) {
            tracing::error!(election = self.name(), %refusal, "leaving the election");
            self.ending.refusal = Some(refusal);
            return self.handle(Event::Leave { hand_over: false });
        }
        if !self.turn.take(incarnation.session_id()) {
            return;
        }
        let event = Event::SessionStarted {
            epoch: incarnation.epoch().0,
            session_id: incarnation.session_id().0,
            granted: incarnation.granted_timeout(),
        };
        self.pauses = incarnation.pauses();
        self.pin = Some(pin);
        self.incarnation = Some(incarnation);
        self.paused = false;
        self.handle(event);
        self.lease_changed();
    }

    /// Whether a member can lead on it. If the servers grant less than before, the election continues: the work gets
    /// less time, and leadership is given up sooner.
    fn fits(&mut self, incarnation: &Incarnation) -> Result<(), Ended> {
        incarnation.leases().map_err(Ended::NoLease)?;
        let timing = incarnation.lease_timing();
        let stop_budget = self.engine.policy().stop_budget(timing.session_timeout);
        match StopBudgetTooLong::check(stop_budget.saturating_add(self.engine.policy().lease_reserve), timing)
        {
            Err(wrong) if !self.fitted => return Err(Ended::StopBudgetTooLong(wrong)),
            Err(wrong) => tracing::error!(election = self.name(), "{wrong}"),
            Ok(()) => {}
        }
        self.fitted = true;
        Ok(())
    }

    pub(super) fn session_over(&mut self) {
        if let Some(known) = self.incarnation.take() {
            self.turn.pass_on();
            self.handle(Event::SessionOver(known.epoch().0));
        }
    }

    pub(super) fn lease_changed(&mut self) {
        let Some((_, receiver)) = &mut self.lease else { return };
        let lease = *receiver.borrow_and_update();
        if let Some(lease) = lease {
            self.handle(Event::Lease { epoch: lease.epoch.0, valid_until: to_time(lease.valid_until) });
        }
    }
}
