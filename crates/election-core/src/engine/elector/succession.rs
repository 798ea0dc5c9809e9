//! Who follows, decided before it is needed: the line of succession of each slot, how
//! it is kept, and what a successor writes when it steps in.

use super::{
    decision::{Question, about},
    losses::with_loss,
};
use crate::{
    engine::policy::Policy,
    record::{Cause, Elected, Mode, Named, Slot, most},
    strategy::Round,
    time::is_within,
};

impl Question<'_> {
    /// The same term with the line of succession, the exclusions and the failures as they should
    /// be now, if they differ.
    pub(in crate::engine) fn refresh(&self, elected: &Elected) -> Option<Elected> {
        elected.leaders().next()?;
        let next = self.with_given_up(elected);
        // An exclusion that has merely run out goes with the next decision.
        let news = next.exclusions.iter().any(|e| !elected.exclusions.contains(e));
        let refreshed = self.with_lines(next);
        let same = refreshed.succession == elected.succession && refreshed.slots == elected.slots;
        (news || !same).then_some(refreshed)
    }

    /// The same decision with the line of each slot as it should be.
    pub(in crate::engine) fn with_lines(&self, mut elected: Elected) -> Elected {
        let lines: Vec<_> = (0..elected.slots.len()).map(|slot| self.line(slot, &elected)).collect();
        elected.succession = lines.first().cloned().flatten().unwrap_or_default();
        for (slot, line) in elected.slots.iter_mut().zip(lines) {
            slot.succession = line.filter(|line| *line != elected.succession);
        }
        elected.bounded()
    }

    /// Who follows if the leader of `slot` vanishes, ranked under that assumption.
    fn line(&self, slot: usize, elected: &Elected) -> Option<Vec<Named>> {
        let leader = elected.named(slot)?;
        if self.control.mode != Mode::Auto {
            return Some(Vec::new());
        }
        let spares: Vec<_> =
            self.standing().filter(|m| elected.slot_of(&m.ballot).is_none()).cloned().collect();
        let others = elected.leaders().filter(|(other, n)| *other != slot && self.lives(n));
        let ranking = self.strategy.rank(&Round {
            cause: Cause::LeaderLost,
            unix_ms: self.unix_ms,
            candidates: &spares,
            incumbent: None,
            ordered: None,
            accepts_loss: false,
            failed: Some(&leader.as_previous()),
            previous: Some(&leader.as_previous()),
            others: &others.map(|(_, n)| n.clone()).collect::<Vec<_>>(),
            exclusions: &elected.exclusions,
            trouble: &self.trouble_with(self.living_failures(&elected.failures)),
            control: self.control,
        });
        Some(ranking.order.into_iter().map(|r| r.named).take(most::LINE).collect())
    }
}

/// Commits a succession: what a successor writes before it acts. `remark` is what its strategy
/// has to say of it.
pub(in crate::engine) fn succeed(
    elected: &Elected,
    slot: usize,
    me: &Named,
    remark: Option<String>,
    unix_ms: u64,
    policy: &Policy,
) -> Elected {
    let gone = elected.named(slot);
    let mut attempts = elected.attempts_of(slot).to_vec();
    attempts.retain(|at| is_within(*at, policy.max_takeovers.within, unix_ms));
    attempts.push(unix_ms);
    let sentence = sentence(gone, me, remark);
    let mut slots = elected.carried();
    slots[slot] = Slot { succession: slots[slot].succession.take(), ..me.clone().into() };
    // A member has one slot at most: it follows in no other any more.
    let mut succession = elected.succession.clone();
    for line in slots.iter_mut().filter_map(|s| s.succession.as_mut()).chain([&mut succession]) {
        line.retain(|n| n.ballot != me.ballot);
    }
    Elected {
        term: elected.term + 1,
        slots,
        succession,
        exclusions: elected.exclusions.iter().filter(|e| e.holds_at(unix_ms)).cloned().collect(),
        losses: with_loss(elected.losses.clone(), gone.map(|n| n.site.clone()), policy, unix_ms),
        cause: Cause::LeaderLost,
        sentence: about(slot, elected.slots.len(), sentence),
        decided_by: me.member.to_string(),
        decided_at_ms: unix_ms,
        noticed_at_ms: unix_ms,
        request: None,
        previous: gone.map(Named::as_previous),
        ..elected.clone()
    }
    .with_attempts(slot, attempts)
    .bounded()
}

/// Why a successor leads: the same words whether it commits itself or the elector finds that it has
/// taken the place and confirms it, for which of the two comes first is a matter of milliseconds.
pub(in crate::engine) fn sentence(gone: Option<&Named>, successor: &Named, remark: Option<String>) -> String {
    let whom = gone.map_or("the leader".to_owned(), |n| n.member.to_string());
    let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
    let Named { member, site, .. } = successor;
    format!("the leader znode of {whom} is gone: {member} of site {site} leads, being first in line{remark}")
}
