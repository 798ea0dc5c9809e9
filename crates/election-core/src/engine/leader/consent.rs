//! A planned move that the leader may call off: the application is asked before its work is stopped.
//!
//! ```text
//!   leader                          elector                          the next leader
//!                                   names another in the next term ─▶ prepares
//!   leads on; asks the application
//!   yes: stops, releases ───────────────────────────────────────────▶ takes over
//!   no: leads on    ── record ────▶ names the leader in its own term ▶ gives up its claim
//! ```
//! The leader znode is held all the time, so 'at most one leader' does not depend on the answer. Whatever else ends a leadership
//! waits for none: a failover, force, the end of the lease, a failure, the own wish to leave. The decision that returns
//! leadership keeps the leader's term and token, so nothing is stopped and nothing begins.

use super::OwnLeadership;
use crate::{
    engine::{
        core::Core,
        io::{Action, Level, NoteKind, StopReason},
    },
    record::CalledOff,
    text::shorten,
};

/// How long the reason may be, in bytes.
const REASON: usize = 300;

impl OwnLeadership {
    /// Whether this member leads on although another one is named: until the application has answered, and if it declines
    /// until the elector has decided again.
    pub(super) fn waits_for_consent(&mut self, core: &mut Core, reason: &StopReason) -> bool {
        let Some(term) = self.may_decline(core, reason) else { return false };
        let Some(held) = self.state.held_mut() else { return false };
        let is_declined = core.own.called_off.as_ref().is_some_and(|called_off| called_off.term == term);
        if !is_declined && !std::mem::replace(&mut held.asks, true) {
            let text = format!("leads on until it is ready to hand over: {reason}");
            core.note(Level::Info, NoteKind::Leadership, text);
            core.out.push(Action::AskBeforeMove(reason.clone()));
        }
        true
    }

    /// The term of the planned move for which this leadership would end, if the application is asked about it.
    fn may_decline(&self, core: &Core, reason: &StopReason) -> Option<u64> {
        let held = self.held().filter(|held| held.leads() && core.session_epoch() == Some(held.epoch))?;
        let is_asked = core.own.wishes.is_asked && !core.own.leaving.is_asked();
        if !is_asked || !matches!(reason, StopReason::NotNamed(_)) {
            return None;
        }
        let (slot, ballot) = (held.claim.appointment.slot, &held.claim.ballot);
        let elected = core.reading.view.elected.record()?;
        let (given, named) = (elected.given(slot)?, elected.named(slot)?);
        let follows = given.previous.as_ref().is_some_and(|previous| previous.ballot == *ballot);
        let is_planned = follows && given.cause.can_be_called_off() && named.ballot != *ballot;
        (is_planned && elected.slot_of(ballot).is_none()).then_some(given.term)
    }

    /// The application has answered, with a refusal or none.
    pub(super) fn may_move(&mut self, core: &mut Core, refusal: Option<String>) {
        if !self.state.held_mut().is_some_and(|held| std::mem::take(&mut held.asks)) {
            return;
        }
        let Some(reason) = self.held().and_then(|held| self.is_moved(core, held)) else { return };
        let Some((mut why, term)) = refusal.zip(self.may_decline(core, &reason)) else {
            return self.stop(core, reason);
        };
        shorten(&mut why, REASON);
        let text = format!("calls off the move of term {term}, and leads on: {why}");
        core.note(Level::Warn, NoteKind::Leadership, text);
        core.own.called_off = Some(Box::new(CalledOff { term, reason: why }));
    }
}
