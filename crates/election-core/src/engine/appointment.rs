//! What entitles a member to lead: the only path from the recipe to the leader's side.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    core::Core,
    elector::succession::{may_succeed, succeed},
    io::Appointment,
    recipe::Recipe,
    znode::Known,
};
use crate::{
    ids::Ballot,
    record::{Cause, Elected, Given},
};

/// Why this member may lead.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The application has it as well.
    #[serde(rename = "nomination")]
    pub(crate) appointment: Arc<Appointment>,
    pub(crate) ballot: Ballot,
    pub(crate) by: By,
}

/// The basis of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    /// The decision names this member.
    Decision,
    /// It steps in for a leader that vanished, and the decision does not name it yet.
    #[serde(skip)]
    Succession(Box<Lost>),
    /// It is the elector, and names itself: the first decision is written with the leader znode.
    #[serde(skip)]
    FirstDecision,
    /// Its own znode is the leader znode: no candidate is before it.
    Contest,
}

/// A leader that vanished: its ballot, and the term in which it was named for the slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lost {
    ballot: Ballot,
    term: u64,
}

impl Claim {
    /// The claim to follow the member that is named for `slot`, and that has vanished.
    pub(crate) fn succession(elected: &Elected, slot: usize, ballot: Ballot) -> Option<Self> {
        let gone = elected.named(slot)?;
        let appointment = Appointment {
            slot,
            term: elected.term.saturating_add(1),
            cause: Cause::LeaderLost,
            sentence: Cow::Borrowed(""),
            previous: Some(Box::new(gone.as_previous())),
        };
        let by = By::Succession(Box::new(Lost { term: elected.term_of(slot), ballot: gone.ballot.clone() }));
        Some(Self { appointment: appointment.into(), ballot, by })
    }

    /// Whether the decision that names this member is written with the leader znode.
    pub(crate) fn is_uncommitted(&self) -> bool {
        matches!(self.by, By::Succession(_) | By::FirstDecision)
    }
}

impl Core {
    /// What the decision entitles this member to, under an elector.
    pub(crate) fn decided_claim(&self) -> Option<Claim> {
        if self.refuses_all() {
            return None;
        }
        let ballot = self.own.ballot.name.as_ref()?;
        let elected = self.reading.view.elected.record()?;
        match elected.slot_of(ballot) {
            Some(slot) => self.claim_of(elected, slot, ballot),
            None => {
                let slot = self.lost_slot(elected, ballot)?;
                Claim::succession(elected, slot, ballot.clone()).filter(|_| self.held_back().is_none())
            }
        }
    }

    /// What the first decision entitles this member to, which it is about to write as the elector: to create the leader
    /// znode in the same transaction.
    pub(crate) fn first_claim(&self, first: &Elected) -> Option<Claim> {
        // A decision that was deleted is written again as it was: its leader may still lead.
        let is_again = self.reading.memory.has(first.term);
        let is_busy = !self.own.duty.is_idle() || self.refuses_all();
        if is_again || is_busy || self.reading.view.elected != Known::Absent {
            return None;
        }
        let ballot = self.own.ballot.name.as_ref()?;
        let slot = first.slot_of(ballot)?;
        let is_free = *self.reading.view.leader(slot) == Known::Absent && self.is_sure(slot);
        let claim = self.claim_of(first, slot, ballot).filter(|_| is_free)?;
        Some(Claim { by: By::FirstDecision, ..claim })
    }

    fn refuses_all(&self) -> bool {
        self.own.leaving.is_asked() || self.own.wishes.withdrawn.is_some()
    }

    /// The claim that this decision gives for `slot`, unless it is one that this member gave up.
    fn claim_of(&self, elected: &Elected, slot: usize, ballot: &Ballot) -> Option<Claim> {
        let appointment = appointment(elected, slot)?;
        let gave_up = self.own.gave_up.as_ref().filter(|gave_up| gave_up.term == appointment.term);
        let claim = Claim { appointment: appointment.into(), ballot: ballot.clone(), by: By::Decision };
        Some(claim).filter(|_| gave_up.is_none())
    }

    /// Why this member, although it is first in line, leaves it to the elector who follows a lost leader.
    pub(crate) fn held_back(&self) -> Option<String> {
        let Recipe::Elector(strategy) = &self.config.recipe else { return None };
        let unfit = self.own.ill_health();
        unfit.or_else(|| strategy.holds_back(&self.attributes(), Cause::LeaderLost))
    }

    /// The slot to step in for: this member is first in its line by ballot, its leader znode is free, and the member
    /// that is named for it was seen there in this very term.
    ///
    /// If several leaders vanish at once, one member can be first in line for each of them. It takes the lowest slot.
    /// Once that is committed it is in no line any more, and the second in line is the first for the next slot.
    fn lost_slot(&self, elected: &Elected, ballot: &Ballot) -> Option<usize> {
        let (policy, unix_ms) = (&self.config.policy, self.now.unix_ms);
        let lost = elected.leaders().find(|(slot, _)| {
            elected.place_in_line(*slot, ballot) == Some(0)
                && self.reading.has_vanished(elected, *slot)
                && may_succeed(elected, *slot, ballot, policy, unix_ms)
        });
        lost.map(|(slot, _)| slot)
    }

    /// The decision by which this member follows a leader that vanished.
    pub(crate) fn succession(&self, elected: &Elected, claim: &Claim) -> Elected {
        let remark = match &self.config.recipe {
            Recipe::Elector(strategy) => strategy.remark(&self.attributes(), Cause::LeaderLost),
            _ => None,
        };
        let (slot, me) = (claim.appointment.slot, self.named(&claim.ballot));
        succeed(elected, slot, &me, remark, self.now.unix_ms, &self.config.policy)
    }

    /// Whether what is known still supports this claim, or why it does not.
    pub(crate) fn carries(&self, claim: &Claim) -> Result<(), String> {
        if let By::Contest = claim.by {
            let own = self.own.contest.znode.as_ref().map(|own| own.term());
            let base = self.contest_base().map_or(0, |(base, _)| base);
            return match self.own.ill_health() {
                Some(why) => Err(why),
                None if base >= claim.appointment.term => Err(tokens_raised(base)),
                None if own == Some(claim.appointment.term) => Ok(()),
                None => Err("its znode is gone".to_owned()),
            };
        }
        if self.own.ballot.name.as_ref() != Some(&claim.ballot) {
            return Err("its ballot is gone".to_owned());
        }
        let Some(elected) = self.reading.view.elected.record() else {
            return Ok(());
        };
        let slot = claim.appointment.slot;
        let named = elected.named(slot).is_some_and(|n| n.ballot == claim.ballot);
        if named && elected.term_of(slot) == claim.appointment.term {
            return Ok(());
        }
        if let By::Succession(lost) = &claim.by {
            // Named by the elector in this or another term while stepping in: the claim continues under that
            // decision.
            if named {
                return Ok(());
            }
            // Nothing was decided about this slot yet, though other slots may have changed.
            let waits = elected.named(slot).is_some_and(|n| n.ballot == lost.ballot);
            if waits && elected.term_of(slot) == lost.term && elected.slot_of(&claim.ballot).is_none() {
                return Ok(());
            }
        }
        Err(moved_away(elected, slot))
    }

    /// Whether all that a claim, or a release, depends on was read since the connection was lost. The lease can
    /// return before that, and the ensemble can be a copy in which another member is named, or holds the leader
    /// znode.
    pub(crate) fn is_sure(&self, slot: usize) -> bool {
        let rereading = &self.reading.rereading;
        !rereading.doubts_decision() && !rereading.doubts_leader_znode(slot) && !self.own.contest.ranks_again
    }

    /// What is added to the czxid to make the fencing token; unknown while the decision can't be read.
    pub(crate) fn token_base(&self) -> Option<u64> {
        match &self.reading.view.elected {
            // There is no decision in a contest.
            _ if self.is_contest() => self.own.contest.znode.as_ref().map(|own| own.base),
            // Until the elector has raised it above what was seen.
            Known::Present(elected, _) => {
                let remembered = self.reading.remembers().map_or(0, |remembered| remembered.token_base);
                Some(elected.token_base).filter(|base| remembered <= *base)
            }
            _ => None,
        }
    }
}

/// What the decision contains about `slot`.
pub(crate) fn appointment(elected: &Elected, slot: usize) -> Option<Appointment> {
    let Given { term, cause, sentence, previous, .. } = elected.given(slot)?.clone();
    Some(Appointment { slot, term, cause, sentence: sentence.into(), previous: previous.map(Box::new) })
}

/// Why a leadership of a contest ends whose token is not above the base.
pub(crate) fn tokens_raised(base: u64) -> String {
    format!("tokens are above {base} from now on")
}

pub(crate) fn moved_away(elected: &Elected, slot: usize) -> String {
    match elected.given(slot) {
        Some(given) => format!("term {} has begun: {}", given.decided_in(), given.sentence),
        None => format!("term {} has begun: there is no slot {slot} any more", elected.term),
    }
}
