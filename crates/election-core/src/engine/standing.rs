//! What a member wants of itself: to give leadership up, now or by a deadline, not to
//! stand at all, not to hand over just now.
//!
//! However leadership ends, the work ends first, and is released after it: a wish is
//! carried out like any other reason to stop.

use super::{
    Engine,
    io::{Level, NoteKind, StopReason, Wish},
    office::State,
};
use crate::{record::Cause, time::Time};

/// How long a reason may be, in characters.
const REASON: usize = 500;

/// What this member wants of itself.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Standing {
    /// Why it does not stand, if it doesn't.
    pub(super) withdrawn: Option<String>,
    /// Why it does not hand over as planned, if it doesn't.
    pub(super) holds: Option<String>,
    /// By when the leadership that it has is to have ended, and why.
    deadline: Option<(Time, String)>,
}

impl Standing {
    /// The deadline and what comes before it.
    pub(super) fn until(&self, until: Time) -> Time {
        self.deadline.as_ref().map_or(until, |(by, _)| until.min(*by))
    }

    pub(super) fn leadership_ended(&mut self) {
        self.deadline = None;
    }
}

impl Engine {
    pub(super) fn wish(&mut self, wish: Wish) {
        let short = |reason: String| reason.chars().take(REASON).collect::<String>();
        match wish {
            Wish::Resign { reason } => self.resign(short(reason)),
            Wish::ResignBy { by, reason } => {
                // A later leadership has nothing to do with it.
                if self.office.held().is_some() {
                    // A stop has its whole budget, however late it was asked for.
                    let by = by.max(self.now.time + self.stop_budget());
                    self.standing.deadline = Some((by, short(reason)));
                    self.tell_work_until();
                }
            }
            Wish::Abdicate { reason } => {
                let reason = short(reason);
                self.standing.withdrawn = Some(reason.clone());
                self.resign(reason);
            }
            Wish::Stand => self.standing.withdrawn = None,
            Wish::Hold { reason } => self.standing.holds = Some(short(reason)),
            Wish::Free => self.standing.holds = None,
        }
    }

    fn resign(&mut self, reason: String) {
        if let State::Claiming(_) = &self.office.state {
            self.record_giving_up(Cause::Resigned, &reason);
            self.give_up_claim(StopReason::Resigned(reason));
        } else if self.office.held().is_some() {
            self.record_giving_up(Cause::Resigned, &reason);
            self.stop(StopReason::Resigned(reason));
        }
    }

    /// Whether the deadline of this leadership leaves just the time that a stop may take.
    pub(super) fn resigns_by_now(&self) -> Option<String> {
        let (by, reason) = self.standing.deadline.as_ref()?;
        (self.now.time + self.stop_budget() >= *by).then(|| reason.clone())
    }

    /// One who does not stand and is named all the same says so, so that the elector
    /// need not wait for it in vain.
    pub(super) fn advance_standing(&mut self) {
        let (Some(reason), Some(ballot)) = (&self.standing.withdrawn, self.registration.ballot()) else {
            return;
        };
        let Some(elected) = self.view.elected.record() else { return };
        let Some(term) = elected.slot_of(ballot).map(|slot| elected.term_of(slot)) else { return };
        let said = self.gave_up.as_ref().is_some_and(|g| g.term == term);
        if !said && self.office_is_idle() {
            let reason = reason.clone();
            self.note(Level::Info, NoteKind::Office, format!("refuses term {term}: {reason}"));
            self.refuse(term, reason);
        }
    }
}
