//! Records what is asked of the strategy in the [trace](super::trace::DecisionTrace), together with the members that
//! were not candidates.

use super::{pass::Question, trace::Asked};
use crate::{
    ids::Ballot,
    record::{Cause, MemberRecord},
    strategy::{Ground, Ranking, Refused},
};

impl Question<'_> {
    /// Records what was asked, and which members were not candidates.
    pub(crate) fn note(&self, slot: usize, cause: Cause, ranking: &Ranking, leaving: Option<&Ballot>) {
        if let Some(trace) = self.trace {
            let aside = self.not_asked(slot, ranking, leaving);
            let mut ranking = ranking.clone();
            ranking.refused.extend(aside);
            trace.borrow_mut().push(Asked { slot, cause, ranking });
        }
    }

    /// The members that were not asked about, and why.
    fn not_asked(&self, slot: usize, ranking: &Ranking, leaving: Option<&Ballot>) -> Vec<Refused> {
        let known = |m: &&MemberRecord| {
            let ranked = ranking.order.iter().any(|r| r.named.ballot == m.ballot);
            ranked || ranking.refusal(&m.ballot).is_some()
        };
        let mut aside: Vec<_> = self.withdrawn().collect();
        aside.retain(|refused| ranking.refusal(&refused.named.ballot).is_none());
        for member in self.standing().filter(|m| !known(m)) {
            let refused = |stage: &str, reason: String| Refused {
                named: member.named(),
                stage: stage.to_owned(),
                reason,
                ground: Ground::State,
            };
            aside.push(match self.slot_taken_by(&member.ballot, Some(slot)) {
                Some(other) => refused("one-slot", format!("slot {other} is its own, and no member has two")),
                None if leaving == Some(&member.ballot) => {
                    refused("leaving", "leadership is to move away from it".to_owned())
                }
                None => refused("one-slot", "it is the best for another slot".to_owned()),
            });
        }
        aside
    }

    /// The slot other than `slot` that `ballot` is named for, or whose leader znode it holds.
    pub(crate) fn slot_taken_by(&self, ballot: &Ballot, slot: Option<usize>) -> Option<usize> {
        let elected = self.elected?;
        let holders = self.holders.iter().enumerate().filter(|(_, holder)| **holder == Some(ballot));
        holders.map(|(held, _)| held).chain(elected.slot_of(ballot)).find(|other| Some(*other) != slot)
    }
}
