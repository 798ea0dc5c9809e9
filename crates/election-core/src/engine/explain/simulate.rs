//! What would happen in an election if some of its members vanished now, or if it had another policy. It is simulated
//! on what was read, by the elector's own code.
//!
//! What happens at once is carried out step by step: the first in line takes over, the present elector decides, each
//! takeover succeeds. What waits for a time, or for an operator, is not carried out: it is explained, as [`explain`]
//! does, at the end of the simulation.

use serde::Serialize;

use super::{Explanation, Looker, Obstacle, Proposal, Seen, explain};
use crate::{
    engine::{
        elector::{
            decided::is_vacated,
            next_step::{Act, Verdict},
            succession::{may_succeed, succeed},
        },
        policy::Policy,
    },
    ids::Ballot,
    record::{Cause, Current, Elected, MemberRecord, Mode, Named, Slot, Status, VERSION},
    strategy::Strategy,
};

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Simulation {
    /// The election as it is.
    pub now: Explanation,
    /// The election as the elector would find it right after the change.
    pub then: Explanation,
    /// One result for each slot.
    pub slots: Vec<Prospect>,
}

/// What would happen to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prospect {
    /// Counted from 0.
    pub slot: usize,
    /// The member that leads now, or is about to.
    pub before: Option<Named>,
    /// What will be decided about it without the change, sooner or later.
    pub otherwise: Option<Proposal>,
    /// What would be decided about it at once, in order.
    pub played: Vec<Played>,
    /// The member that would lead then.
    pub leads: Option<Named>,
    /// What would be decided later.
    pub later: Option<Proposal>,
    /// What that waits for, or what prevents all members from leading.
    pub obstacles: Vec<Obstacle>,
    /// Whether the change makes no difference: all that would be decided will also be decided without it.
    pub unchanged: bool,
}

/// One decision of the simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Played {
    /// Who decides: the elector, or the first in line for itself.
    pub by: String,
    /// Why.
    pub cause: Cause,
    /// The sentence that the decision would have.
    pub sentence: String,
    /// The member that would be named.
    pub named: Option<Named>,
}

/// What would happen in the election that was `seen` at `unix_ms`, if all members that are `gone` vanished with their
/// sessions, and the policy and the strategy were those of `then` instead of those of `now`.
///
/// Pure: the same input gives the same result.
pub fn simulate(
    seen: &Seen,
    gone: impl Fn(&MemberRecord) -> bool,
    now: (&Policy, &dyn Strategy),
    then: (&Policy, &dyn Strategy),
    unix_ms: u64,
) -> Simulation {
    let as_it_is = explain(seen, now.0, now.1, unix_ms);
    let mut changed = seen.without(gone);
    let found = explain(&changed, then.0, then.1, unix_ms);
    let slots = as_it_is.slots.len().max(found.slots.len());
    let mut played = vec![Vec::new(); slots];
    // Each slot is vacated, decided and decided again at most, and what must be remembered is written. The bound
    // protects the caller from a policy that never ends, which would be a bug.
    for _ in 0..=6 * slots + seen.requests.len() {
        let before = changed.elected.clone();
        if !(changed.step_in(seen, then.0, then.1, unix_ms) || changed.decide(then.0, then.1, unix_ms)) {
            break;
        }
        let Some(after) = &changed.elected else { continue };
        for (slot, played) in played.iter_mut().enumerate().take(after.slots.len()) {
            let news = before.as_ref().is_none_or(|b| b.named(slot) != after.named(slot));
            if news {
                let (by, Slot { named, given, .. }) = (after.decided_by.clone(), after.slots[slot].clone());
                played.push(Played { by, cause: given.cause, sentence: given.sentence, named });
            }
        }
    }
    let end = explain(&changed, then.0, then.1, unix_ms);
    let slots = played.into_iter().enumerate().map(|(slot, played)| {
        let before = as_it_is.slots.get(slot);
        let after = end.slots.get(slot);
        let leads = changed.leads(slot);
        let later = after.and_then(|s| s.proposal.clone());
        let otherwise = before.and_then(|s| s.proposal.clone());
        let was_to_come = otherwise.as_ref().and_then(|p| p.named.as_ref());
        let is_to_come = later.as_ref().and_then(|p| p.named.as_ref());
        let before = seen.leads(slot);
        Prospect {
            slot,
            unchanged: played.is_empty() && before == leads && was_to_come == is_to_come,
            before,
            otherwise,
            played,
            leads,
            later,
            obstacles: after.map(|s| s.obstacles.clone()).unwrap_or_default(),
        }
    });
    let slots = slots.collect();
    Simulation { now: as_it_is, then: found, slots }
}

impl Seen {
    /// The same election without these members, and without the ephemeral znodes of their sessions.
    #[must_use]
    pub fn without(&self, gone: impl Fn(&MemberRecord) -> bool) -> Self {
        let mut rest = self.clone();
        rest.members.retain(|m| !gone(m));
        let is_gone = |ballot: &Ballot| {
            self.members.iter().any(|m| m.ballot == *ballot)
                && !rest.members.iter().any(|m| m.ballot == *ballot)
        };
        for leader_znode in &mut rest.leader_znodes {
            leader_znode.take_if(|current| is_gone(&current.ballot));
        }
        if self.lowest.as_ref().is_some_and(is_gone) {
            rest.lowest = rest.members.iter().map(|m| m.ballot.clone()).min();
        }
        rest
    }

    /// The member that leads a slot, or is about to: the one that is named, if it lives.
    fn leads(&self, slot: usize) -> Option<Named> {
        let named = self.elected.as_ref()?.named(slot)?;
        self.members.iter().any(|m| m.ballot == named.ballot).then(|| named.clone())
    }

    /// The first in line steps in for a leader that was seen to lead, and is gone.
    fn step_in(&mut self, before: &Self, policy: &Policy, strategy: &dyn Strategy, unix_ms: u64) -> bool {
        let Some(elected) = &self.elected else { return false };
        if self.control.mode != Mode::Auto {
            return false;
        }
        let found = elected.leaders().find_map(|(slot, named)| {
            let was_in = |c: &Current| c.ballot == named.ballot && c.term == elected.term_of(slot);
            let served = before.leader_znodes.get(slot)?.as_ref().is_some_and(was_in);
            let free = self.leader_znodes.get(slot)?.is_none();
            let first = elected.line_of(slot).first()?;
            let record = self.members.iter().find(|m| m.ballot == first.ballot);
            let steps_in = |m: &MemberRecord| strategy.holds_back(&m.attributes, Cause::LeaderLost).is_none();
            let fit = record.is_some_and(steps_in);
            let may = may_succeed(elected, slot, &first.ballot, policy, unix_ms);
            (served && free && fit && may).then(|| (slot, first.clone()))
        });
        let Some((slot, first)) = found else { return false };
        let record = self.members.iter().find(|m| m.ballot == first.ballot);
        let remark = record.and_then(|record| strategy.remark(&record.attributes, Cause::LeaderLost));
        let next = succeed(elected, slot, &first, remark, unix_ms, policy);
        self.take_effect(next, unix_ms);
        true
    }

    /// The elector makes the decisions that it makes at once.
    fn decide(&mut self, policy: &Policy, strategy: &dyn Strategy, unix_ms: u64) -> bool {
        let Verdict::Act(act) = Looker::new(self, policy, strategy, unix_ms).verdict() else { return false };
        match act {
            Act::Vacate { slot, .. } => {
                self.leader_znodes.get_mut(slot).is_some_and(|leader_znode| leader_znode.take().is_some())
            }
            Act::Answer(name, _, request) | Act::Refuse(name, _, request) => {
                let answered = self.requests.iter_mut().find(|filed| filed.which.name == name);
                answered.map(|filed| filed.request = *request).is_some()
            }
            Act::Trim(name) => {
                let before = self.requests.len();
                self.requests.retain(|filed| filed.which.name != name);
                self.requests.len() < before
            }
            decision => {
                let next = decision.into_decision();
                next.map(|next| self.take_effect(*next, unix_ms)).is_some()
            }
        }
    }

    /// A decision is written, a leader of another term releases its leader znode, and the named member takes over.
    fn take_effect(&mut self, next: Elected, unix_ms: u64) {
        self.leader_znodes.resize(next.slots.len(), None);
        // Removed by force.
        for slot in (0..next.slots.len()).filter(|slot| is_vacated(&next, *slot)) {
            self.leader_znodes[slot] = None;
        }
        for (slot, named) in next.leaders() {
            let term = next.term_of(slot);
            let stays = |c: &Current| c.ballot == named.ballot && c.term == term;
            // A member that is gone, and that no decision has replaced yet, does not take over.
            let lives = self.members.iter().any(|m| m.ballot == named.ballot);
            if lives && !self.leader_znodes[slot].as_ref().is_some_and(stays) {
                self.leader_znodes[slot] = Some(Current {
                    v: VERSION,
                    member: named.member.clone(),
                    ballot: named.ballot.clone(),
                    site: named.site.clone(),
                    slot,
                    term,
                    status: Status::Ready,
                    endpoint: None,
                    fencing_token: None,
                    since_ms: unix_ms,
                    ready_ms: Some(unix_ms),
                });
            }
        }
        self.elected = Some(next);
    }
}
