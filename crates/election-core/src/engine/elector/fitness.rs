//! Whether the named member is fit to lead on: its own report, the reports on its site, and whether it is present at
//! all.

use super::{
    pass::{At, Facts},
    question::{Decided, Undecided},
    verdict::{Act, Verdict, loud},
    watchdog::Watchdog,
};
use crate::engine::io::Reason;
use crate::record::{Cause, Health, MemberRecord, Named};

impl Facts<'_> {
    /// What the member that is named reports of itself.
    pub(in crate::engine) fn judged(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
        let Some(member) = self.members.iter().find(|m| self.rules.same(named, &m.member, &m.ballot)) else {
            if self.is_spoiled(named) {
                // Its session lives, and it writes its record again.
                return self.in_phase(at, named, watchdog);
            }
            return self.lost(at, named, watchdog);
        };
        if let Some(gave_up) = member.gave_up.as_ref().filter(|g| g.term == at.term) {
            let what = format!("{} gave up term {} ({})", named.member, gave_up.term, gave_up.reason);
            let reason = format!("{}: {}", gave_up.cause, gave_up.reason);
            return self.exclude(at, gave_up.cause, &what, reason, watchdog);
        }
        if member.leaving {
            let what = format!("{} is shutting down", named.member);
            return self.unfit(at, named, Cause::LeaderShutdown, Reason::LeaderShutdown, &what, watchdog);
        }
        if let Some(why) = self.site_failed(&named.site) {
            let what = format!("site {} of {} has failed ({why})", named.site, named.member);
            return self.unfit(at, named, Cause::SiteFailed, Reason::SiteFailed, &what, watchdog);
        }
        if let Health::Unhealthy { reason } = &member.health {
            let what = format!("{} is not healthy ({reason})", named.member);
            return self.unfit(at, named, Cause::Unhealthy, Reason::Unhealthy, &what, watchdog);
        }
        self.in_phase(at, named, watchdog)
    }

    /// The named member lives, and should not lead.
    fn unfit(
        &self,
        at: At<'_>,
        named: &Named,
        cause: Cause,
        reason: Reason,
        what: &str,
        watchdog: &mut Watchdog,
    ) -> Verdict {
        let noticed = watchdog.noticed(at.slot, at.term, reason.as_str(), self.now);
        let (until, proposal) = match self.question(at.slot, noticed).decide(cause, what, None, None) {
            Ok(Decided { elected, held: None }) if elected.named(at.slot) != Some(named) => {
                return Verdict::Act(Act::Write(elected, Some(at.meta.version)));
            }
            Ok(Decided { elected, held: Some(hold) }) => {
                let other = Some(elected).filter(|elected| elected.named(at.slot) != Some(named));
                (self.hold(hold, watchdog).ends(), other)
            }
            Err(Undecided::Held(hold)) => (self.hold(hold, watchdog).ends(), None),
            _ => (self.wake_at_exclusions_end(watchdog), None),
        };
        // An unhealthy leader is better than none.
        match self.in_phase(at, named, watchdog) {
            Verdict::Wait(wait) => {
                let sentence = format!("{what}, and nobody else may lead now; {}", wait.sentence);
                loud(reason, sentence).until(until).instead_of(proposal).into()
            }
            verdict => verdict,
        }
    }

    /// The named member is not present any more.
    fn lost(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
        if at.current.is_none() && self.memory.is_some_and(|memory| memory.left_with_all(&named.ballot)) {
            return self.begin_again(at, watchdog);
        }
        let noticed = watchdog.noticed(at.slot, at.term, "lost", self.now);
        let question = self.question(at.slot, noticed);
        if let Some((current, _)) = at.current {
            let holder = self.members.iter().find(|m| m.ballot == current.ballot);
            // A successor that has not committed yet is named, not removed. Its leader znode has the term that it is
            // about to write. A leader znode of an earlier term belongs to a former leader, which may be in line as
            // well and has not released it yet.
            let succeeds = |h: &&MemberRecord| {
                current.term > at.term && at.elected.place_in_line(at.slot, &h.ballot).is_some()
            };
            if let Some(holder) = holder.filter(succeeds) {
                let confirmed = Box::new(question.confirm(&holder.named()));
                return Verdict::Act(Act::Write(confirmed, Some(at.meta.version)));
            }
        }
        let Named { member, site, .. } = named;
        // A closed session and an expired session look the same: nothing is left.
        let what = match self.members.iter().any(|other| other.member == *member) {
            true => format!("{member} of site {site} was restarted"),
            false => format!("the session of {member} of site {site} ended"),
        };
        self.write(question.decide(Cause::LeaderLost, &what, None, None), Some(at.meta), watchdog)
    }
}
