//! A leadership that continues in another process: see [`Resumption`](crate::engine::Resumption).

use super::{OwnLeadership, state::*};
use crate::engine::{
    appointment::{By, Claim},
    core::Core,
    io::{EnteredLeadership, Epoch, Unrest},
};

impl OwnLeadership {
    /// The leadership that crosses, if there is one.
    pub(crate) fn at_rest(&self, core: &Core) -> Result<Option<HeldLeadership>, Unrest> {
        let held = match &self.state {
            LeadershipState::Idle => return Ok(None),
            LeadershipState::Held(held) if held.leads() => held,
            _ => return Err(Unrest::Now("this member is taking over or stepping down")),
        };
        let Claim { appointment, ballot, by } = &held.claim;
        let names = match by {
            By::Contest => core.carries(&held.claim).is_ok(),
            By::Decision => core.reading.view.elected.record().is_some_and(|elected| {
                let named = elected.named(appointment.slot).is_some_and(|named| named.ballot == *ballot);
                named && elected.term_of(appointment.slot) == appointment.term
            }),
            By::Succession(_) | By::FirstDecision => false,
        };
        let known = self.own_leader_znode(core).meta().is_some_and(|known| known.czxid == held.znode.czxid);
        let is_clear = !held.doubted && !self.announce_later && self.to_record.is_none();
        if !(names && known && is_clear && core.is_sure(self.slot) && core.lease_is_valid()) {
            return Err(Unrest::Now("this member's leadership is in doubt, or is about to move"));
        }
        Ok(Some(HeldLeadership::clone(held)))
    }

    /// Continues it. Its leader znode is doubted: whether it is still the same is read before anything else.
    pub(crate) fn resume(&mut self, core: &mut Core, led: HeldLeadership, epoch: Epoch) -> EnteredLeadership {
        core.has_created(led.znode.czxid);
        self.slot = led.claim.appointment.slot;
        // Without a lease it stops at the next event.
        let work_until = core.work_until().unwrap_or(core.now.time);
        core.out.told_until = Some(work_until);
        let entered = led.entered(work_until);
        self.turn(core, LeadershipState::Held(Box::new(HeldLeadership { epoch, doubted: true, ..led })));
        entered
    }
}
