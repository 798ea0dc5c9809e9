//! The successors, decided before they are needed: the line of succession of each slot, how it is kept, and what a
//! successor writes when it steps in.

use super::{
    better_after::with_loss,
    decided::about,
    limit::{check_limit, job_failures},
    pass::Question,
};
use crate::{
    engine::policy::Policy,
    ids::Ballot,
    record::{Cause, Elected, Given, Mode, Named, most},
    strategy::{Ground, Ranking, Refused, Round},
    time::is_within,
};

impl Question<'_> {
    /// The same term with the line of succession, the exclusions and the failures brought up to date, if they differ.
    pub(crate) fn refresh(&self, elected: &Elected) -> Option<Elected> {
        elected.leaders().next()?;
        let next = self.with_given_up(elected);
        // An exclusion that has merely expired is removed with the next decision.
        let news = next.exclusions.iter().any(|e| !elected.exclusions.contains(e));
        let refreshed = self.with_lines(next);
        (news || refreshed.slots != elected.slots).then_some(refreshed)
    }

    /// The same decision with the line of each slot brought up to date.
    pub(crate) fn with_lines(&self, mut elected: Elected) -> Elected {
        let rankings = (0..elected.slots.len()).map(|slot| self.successors(slot, &elected));
        let rankings: Vec<_> = rankings.map(Option::unwrap_or_default).collect();
        for (slot, ranking) in elected.slots.iter_mut().zip(rankings) {
            slot.succession = ranking.order.into_iter().map(|r| r.named).take(most::LINE).collect();
        }
        elected.bounded()
    }

    /// The members that follow if the leader of `slot` is lost, first in line first, and those that may not; `None` if no
    /// member is named.
    pub(crate) fn successors(&self, slot: usize, elected: &Elected) -> Option<Ranking> {
        let leader = elected.named(slot)?;
        let spares: Vec<_> =
            self.standing().filter(|m| elected.slot_of(&m.ballot).is_none()).cloned().collect();
        if self.control.mode != Mode::Auto {
            let refused = spares.iter().map(|spare| Refused {
                named: spare.named(),
                stage: "mode".to_owned(),
                reason: format!("mode {}: no member follows by itself", self.control.mode),
                ground: Ground::Order,
            });
            return Some(Ranking::new(Vec::new(), refused.collect()));
        }
        let others = elected.leaders().filter(|(other, n)| *other != slot && self.lives(n));
        Some(self.strategy.rank(&Round {
            failed: Some(&leader.as_previous()),
            previous: Some(&leader.as_previous()),
            others: &others.map(|(_, n)| n.clone()).collect::<Vec<_>>(),
            exclusions: &elected.exclusions,
            trouble: &self.trouble_with(self.living_failures(&elected.failures)),
            control: self.control,
            ..Round::new(Cause::LeaderLost, self.now.unix_ms, &spares)
        }))
    }
}

/// Whether the decision lets the member with this ballot step in for the leader of `slot`, by the line alone.
pub(crate) fn may_succeed(
    elected: &Elected,
    slot: usize,
    ballot: &Ballot,
    policy: &Policy,
    unix_ms: u64,
) -> bool {
    elected.excluded(ballot, unix_ms).is_none()
        && check_limit(policy, Some(elected), slot, Cause::LeaderLost, unix_ms).is_ok()
        // Only the elector knows whether the job failed once more and must pause.
        && job_failures(policy, elected, unix_ms) == 0
}

/// Commits a succession: what a successor writes before it acts. `remark` is its strategy's remark about it.
pub(crate) fn succeed(
    elected: &Elected,
    slot: usize,
    me: &Named,
    remark: Option<String>,
    unix_ms: u64,
    policy: &Policy,
) -> Elected {
    let gone = elected.named(slot);
    let sentence = about(slot, elected.slots.len(), sentence(gone, me, remark));
    let mut next = Elected {
        term: elected.term.saturating_add(1),
        exclusions: elected.exclusions.iter().filter(|e| e.holds_at(unix_ms)).cloned().collect(),
        losses: with_loss(elected.losses.clone(), gone.map(|n| n.site.clone()), policy, unix_ms),
        decided_by: me.member.to_string(),
        ..elected.clone()
    };
    // A member has one slot at most, so it is removed from the lines of all other slots.
    for slot in &mut next.slots {
        slot.succession.retain(|n| n.ballot != me.ballot);
    }
    if let Some(slot) = next.slots.get_mut(slot) {
        let previous = gone.map(Named::as_previous);
        slot.given = Given::at_once(next.term, Cause::LeaderLost, sentence, unix_ms, previous);
        slot.named = Some(me.clone());
        slot.attempts.retain(|at| is_within(*at, policy.max_takeovers.within, unix_ms));
        slot.attempts.push(unix_ms);
    }
    next.bounded()
}

/// Why a successor leads.
fn sentence(gone: Option<&Named>, successor: &Named, remark: Option<String>) -> String {
    let whom = gone.map_or("the leader".to_owned(), |n| n.member.to_string());
    let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
    let Named { member, site, .. } = successor;
    format!("the leader znode of {whom} is gone: {member} of site {site} leads, being first in line{remark}")
}
