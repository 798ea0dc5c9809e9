//! Failover faster than the session timeout, where that is safe: members report which others they can't reach, and a
//! leader that enough of them have lost is replaced.
//!
//! The reports of others prove nothing about a leader: it may be alive, hold its session, and act. So this is for
//! jobs whose resource refuses old tokens. It is off unless [`Policy::fenced`] and [`Policy::fast_failover`] are set.
//!
//! - A **witness** is a member other than the suspect. It publishes in its own record the members that it has not
//!   reached for `suspect_after`. It writes nothing while nothing changes, and does not report a shorter loss.
//! - A suspect is **deposed** if a majority of its witnesses have lost it, two at
//!   least, and they are in more than one site where members are in more than one:
//!   a single witness may have lost its own network, and so may a single site.
//! - The elector may be lost together with the leader. So a member that has lost the ballot before its own reads the
//!   membership too. It **acts for the elector** while every ballot below its own is a suspect in the same sense. Two
//!   electors at once do no harm: each of their writes is a compare-and-set.

use super::{
    next_step::{Act, Verdict, loud},
    pass::{At, Pass},
};
use crate::{
    engine::{io::Reason, witnesses::witnesses},
    record::{Cause, MemberRecord, Named},
};

impl Pass<'_> {
    /// Removes the holder of the leader znode, or the member that is named, if it is suspected.
    /// `otherwise` is the verdict without suspicion.
    pub(crate) fn suspicion(
        &self,
        at: At<'_>,
        named: &Named,
        otherwise: impl FnOnce() -> Verdict,
    ) -> Verdict {
        let holder = at.current.map_or_else(|| named.clone(), |(current, _)| current.named());
        let witnesses = || witnesses(self.members, &holder.ballot, &holder.site);
        let Some(lost) = self.policy.may_suspect().then(witnesses).flatten() else {
            return otherwise();
        };
        let names: Vec<_> = lost.iter().map(|m| m.member.as_str()).collect();
        let what = format!("{} is not reached by {}", holder.member, names.join(", "));
        let noticed = self.noticed(at.slot, at.term, "suspected");
        // Holders that lead another slot are checked there.
        let here = |named: &Named| at.elected.slot_of(&named.ballot).is_none_or(|slot| slot == at.slot);
        let suspects: Vec<_> = self.suspects().filter(here).collect();
        let question = self.question(at.slot, noticed, Cause::Suspected);
        let blocked = match self.write(question.depose(&holder, &what, &suspects, at.current.is_some())) {
            Verdict::Act(Act::Write(elected, over)) => {
                return Verdict::Act(Act::Depose(at.slot, elected, over));
            }
            Verdict::Act(act) => return Verdict::Act(act),
            Verdict::Wait(blocked) => blocked,
        };
        // An unreachable leader is better than none.
        match otherwise() {
            Verdict::Wait(wait) => {
                let sentence = format!("{what}; {}; {}", blocked.sentence, wait.sentence);
                loud(Reason::Suspected, sentence).until(blocked.ends()).instead_of(blocked.proposal).into()
            }
            verdict => verdict,
        }
    }

    /// All members that would be deposed.
    fn suspects(&self) -> impl Iterator<Item = Named> {
        let all = self.members.iter();
        all.filter(|m| witnesses(self.members, &m.ballot, &m.site).is_some()).map(MemberRecord::named)
    }
}
