//! Who follows, decided before it is needed: the line of succession of each slot, how
//! it is kept, and what a successor writes when it steps in.

use super::{
    decision::{Question, about, ms},
    policy::Policy,
    rules::Rule,
};
use crate::{
    record::{Cause, Elected, Exclusion, Mode, Named, Slot},
    strategy::Round,
};

/// How many stand in the line of succession: more can hardly vanish at once, and
/// the record is read by every member.
const LINE: usize = 8;

impl Question<'_> {
    /// The same term with the line of succession and the exclusions as they should
    /// be now, if they differ.
    pub(super) fn refresh(&self, elected: &Elected) -> Option<Elected> {
        elected.leaders().next()?;
        let mut exclusions = self.living_exclusions();
        for member in self.members {
            let known = member.gave_up.as_ref().filter(|_| self.rules.keep(Rule::ExclusionsInDecision));
            let Some(gave_up) = known else {
                continue;
            };
            let until_ms = gave_up.at_ms.saturating_add(ms(self.policy.exclusion));
            // Dropped exclusions of one who is named now must not come back.
            let named = elected.slot_of(&member.ballot).is_some();
            let stands = until_ms > self.unix_ms && !named && gave_up.term < elected.term;
            if stands && !exclusions.iter().any(|e| e.ballot == member.ballot) {
                exclusions.push(Exclusion {
                    member: member.member.clone(),
                    ballot: member.ballot.clone(),
                    until_ms,
                    reason: format!("{}: {}", gave_up.cause, gave_up.reason),
                });
            }
        }
        // An exclusion that has merely run out goes with the next decision.
        let news = exclusions.iter().any(|e| !elected.exclusions.contains(e));
        let refreshed = self.with_lines(Elected { exclusions, ..elected.clone() });
        let same = refreshed.succession == elected.succession && refreshed.slots == elected.slots;
        (news || !same).then_some(refreshed)
    }

    /// The same decision with the line of each slot as it should be.
    pub(super) fn with_lines(&self, mut elected: Elected) -> Elected {
        let lines: Vec<_> = (0..elected.slots.len()).map(|slot| self.line(slot, &elected)).collect();
        elected.succession = lines.first().cloned().flatten().unwrap_or_default();
        for (slot, line) in elected.slots.iter_mut().zip(lines) {
            slot.succession = line.filter(|line| *line != elected.succession);
        }
        elected
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
            failed: Some(&leader.as_previous()),
            previous: Some(&leader.as_previous()),
            others: &others.map(|(_, n)| n.clone()).collect::<Vec<_>>(),
            exclusions: &elected.exclusions,
            trouble: &self.trouble_with(self.living_failures(&elected.failures)),
            control: self.control,
        });
        Some(ranking.order.into_iter().map(|r| r.named).take(LINE).collect())
    }
}

/// Commits a succession: what a successor writes before it acts. `remark` is what its strategy
/// has to say of it.
pub(super) fn succeed(
    elected: &Elected,
    slot: usize,
    me: &Named,
    remark: Option<String>,
    unix_ms: u64,
    policy: &Policy,
) -> Elected {
    let gone = elected.named(slot);
    let window = ms(policy.max_takeovers.within);
    let mut attempts = elected.attempts.clone();
    attempts.retain(|at| at.saturating_add(window) > unix_ms);
    attempts.push(unix_ms);
    let whom = gone.map_or("the leader".to_owned(), |n| n.member.to_string());
    let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
    let sentence =
        format!("{whom} vanished: {} of site {} leads, being first in line{remark}", me.member, me.site);
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
        exclusions: elected.exclusions.iter().filter(|e| e.until_ms > unix_ms).cloned().collect(),
        attempts,
        cause: Cause::LeaderLost,
        sentence: about(slot, elected.slots.len(), sentence),
        decided_by: me.member.to_string(),
        decided_at_ms: unix_ms,
        noticed_at_ms: unix_ms,
        request: None,
        previous: gone.map(Named::as_previous),
        ..elected.clone()
    }
}
