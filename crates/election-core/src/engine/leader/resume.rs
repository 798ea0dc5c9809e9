//! A leadership that continues in another process: see [`Resumption`](crate::engine::Resumption).

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{OwnLeadership, state::*};
use crate::{
    engine::{
        appointment::{Appointment, By},
        core::Core,
        io::{Epoch, Grant, Nomination, Unrest},
    },
    ids::Ballot,
    record::{Cause, Previous, limits},
};

/// A leadership at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Led {
    by: LedBy,
    ballot: Ballot,
    #[serde(with = "limits::slot")]
    slot: usize,
    #[serde(with = "limits::term")]
    term: u64,
    cause: Cause,
    sentence: Cow<'static, str>,
    previous: Option<Box<Previous>>,
    #[serde(with = "limits::token")]
    fencing_token: u64,
    znode: HeldZnode,
    ready_ms: Option<u64>,
}

/// Why it leads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LedBy {
    Decision,
    Contest,
}

impl Led {
    pub(crate) fn leadership(&self) -> (u64, u64) {
        (self.term, self.fencing_token)
    }
}

impl OwnLeadership {
    /// The leadership, if there is one.
    pub(crate) fn at_rest(&self, core: &Core) -> Result<Option<Led>, Unrest> {
        let held = match &self.state {
            LeadershipState::Idle => return Ok(None),
            LeadershipState::Leading(held) => held,
            _ => return Err(Unrest::Now("this member is taking over or stepping down")),
        };
        let Appointment { nomination, ballot, by } = &held.appointment;
        let (by, names) = match by {
            By::Contest => (LedBy::Contest, core.carries(&held.appointment).is_ok()),
            By::Decision | By::Succession(_) | By::FirstDecision => {
                let names = core.reading.view.elected.record().is_some_and(|elected| {
                    let named = elected.named(nomination.slot).is_some_and(|named| named.ballot == *ballot);
                    named && elected.term_of(nomination.slot) == nomination.term
                });
                (LedBy::Decision, names)
            }
        };
        let known = self.own_leader_znode(core).meta().is_some_and(|known| known.czxid == held.znode.czxid);
        let is_clear = !held.doubted && !self.announce_later && self.to_record.is_none();
        if !(names && known && is_clear && core.is_sure(self.slot) && core.lease_is_valid()) {
            return Err(Unrest::Now("this member's leadership is in doubt, or is about to move"));
        }
        let Nomination { slot, term, cause, sentence, previous } = Nomination::clone(nomination);
        Ok(Some(Led {
            by,
            ballot: ballot.clone(),
            slot,
            term,
            cause,
            sentence,
            previous,
            fencing_token: held.fencing_token,
            znode: held.znode,
            ready_ms: held.ready_ms,
        }))
    }

    /// Continues it. Its leader znode is doubted: whether it is still the same is read before anything else.
    pub(crate) fn resume(&mut self, core: &mut Core, led: Led, epoch: Epoch) -> Grant {
        let Led { by, ballot, slot, term, cause, sentence, previous, fencing_token, znode, ready_ms } = led;
        let nomination = Arc::new(Nomination { slot, term, cause, sentence, previous });
        let by = match by {
            LedBy::Decision => By::Decision,
            LedBy::Contest => By::Contest,
        };
        let appointment = Appointment { nomination: Arc::clone(&nomination), ballot: ballot.clone(), by };
        core.has_created(znode.czxid);
        self.slot = slot;
        let held = HeldLeadership { appointment, fencing_token, znode, epoch, doubted: true, ready_ms };
        self.turn(core, LeadershipState::Leading(Box::new(held)));
        // Without a lease it stops at the next event.
        let work_until = core.work_until().unwrap_or(core.now.time);
        core.out.told_until = Some(work_until);
        Grant { nomination, ballot, fencing_token, work_until }
    }
}
