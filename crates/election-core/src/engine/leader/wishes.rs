//! The member's own requests: to resign, now or by a deadline, to withdraw its candidacy, to block planned moves.
//!
//! However leadership ends, the work ends first, and leadership is released after it. A wish is carried out like any
//! other reason to stop.

use std::sync::Arc;

use super::{LeadershipState, OwnLeadership};
use crate::{
    engine::{
        core::Core,
        io::{Level, NoteKind, StopReason, Wish},
    },
    record::{Cause, GaveUp},
    text::shorten,
};

/// How long a reason may be, in characters.
const REASON: usize = 500;

impl OwnLeadership {
    pub(crate) fn wish(&mut self, core: &mut Core, wish: Wish) {
        let short = |reason: String| reason.chars().take(REASON).collect::<String>();
        match wish {
            Wish::Resign(reason) => self.resign(core, short(reason)),
            Wish::ResignBy { by, reason } => {
                // The deadline does not apply to a later leadership.
                if self.held().is_some() {
                    // A stop has its whole budget, regardless of how late it was requested.
                    let by = by.max(core.now.time + core.stop_budget());
                    core.own.wishes.deadline = Some(Box::new((by, short(reason))));
                    core.tell_work_until();
                }
            }
            Wish::Withdraw(reason) => {
                let reason = short(reason);
                core.own.wishes.withdrawn = Some(reason.clone());
                self.resign(core, reason);
            }
            Wish::Rejoin => core.own.wishes.withdrawn = None,
            Wish::BlockSwitchover(reason) => core.own.wishes.holds = Some(short(reason)),
            Wish::AskBeforeMoves => core.own.wishes.is_asked = true,
            Wish::AllowSwitchover => core.own.wishes.holds = None,
        }
    }

    pub(super) fn resign(&mut self, core: &mut Core, reason: String) {
        if self.held().is_some() || matches!(self.state, LeadershipState::Acquiring(_)) {
            self.record_giving_up(core, Cause::Resigned, &reason);
            self.end(core, StopReason::Resigned(reason));
        }
    }

    /// Adds a remark of the application to the sentence of this leadership, which the history shows.
    pub(super) fn remark(&mut self, remark: &str) {
        if let Some(held) = self.state.held_mut() {
            let sentence = &mut Arc::make_mut(&mut held.claim.appointment).sentence;
            let mut both = format!("{sentence}; {remark}");
            shorten(&mut both, 2 * REASON);
            *sentence = both.into();
        }
    }

    /// A member that has withdrawn and is named nevertheless reports it, so that the elector does not wait for it in
    /// vain.
    pub(crate) fn refuse_while_withdrawn(&self, core: &mut Core) {
        let (Some(reason), Some(ballot)) = (&core.own.wishes.withdrawn, &core.own.ballot.name) else {
            return;
        };
        let Some(elected) = core.reading.view.elected.record() else { return };
        let Some(term) = elected.slot_of(ballot).map(|slot| elected.term_of(slot)) else { return };
        let said = core.own.gave_up.as_ref().is_some_and(|g| g.term == term);
        if !said && self.is_idle() {
            let (reason, at_ms) = (reason.clone(), core.now.unix_ms);
            core.note(Level::Info, NoteKind::Leadership, format!("refuses term {term}: {reason}"));
            core.own.gave_up = Some(Box::new(GaveUp { term, cause: Cause::Resigned, reason, at_ms }));
        }
    }
}
