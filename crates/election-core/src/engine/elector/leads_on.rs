//! Whether the named member is fit to lead on: its own report, the reports on its site, and whether it is present at
//! all.
//!
//! A lost leader is left to its successor for a quarter of a second, if that member lives and, as far as the elector knows,
//! may step in. Both would write the same decision, and one of the two writes would be refused.

use std::time::Duration;

use super::{
    next_step::{Act, Verdict, loud, quiet},
    pass::{At, Pass},
    phase_timers::Phase,
    succession::may_succeed,
};
use crate::{
    engine::{io::Reason, reading::Reading},
    record::{Cause, Elected, Health, Named},
};

/// How long the elector leaves a lost leader's slot to a living successor, which needs one write.
const SUCCESSION: Duration = Duration::from_millis(250);

impl Pass<'_> {
    /// What the member that is named reports of itself.
    pub(crate) fn judged(&self, at: At<'_>, named: &Named) -> Verdict {
        let Some(member) = self.members.iter().find(|m| m.ballot == named.ballot) else {
            if self.is_spoiled(named) {
                // Its session lives, and it writes its record again.
                return self.in_phase(at, named);
            }
            return self.lost(at, named);
        };
        if let Some(gave_up) = member.gave_up.as_ref().filter(|g| g.term == at.term) {
            let what = format!("{} gave up term {} ({})", named.member, gave_up.term, gave_up.reason);
            let reason = format!("{}: {}", gave_up.cause, gave_up.reason);
            return self.exclude(at, gave_up.cause, &what, reason);
        }
        if member.leaving {
            let what = format!("{} is shutting down", named.member);
            return self.unfit(at, named, Cause::LeaderShutdown, Reason::LeaderShutdown, &what);
        }
        if let Some(why) = self.site_failed(&named.site) {
            let what = format!("site {} of {} has failed ({why})", named.site, named.member);
            return self.unfit(at, named, Cause::SiteFailed, Reason::SiteFailed, &what);
        }
        if let Health::Unhealthy { reason } = &member.health {
            let what = format!("{} is not healthy ({reason})", named.member);
            return self.unfit(at, named, Cause::Unhealthy, Reason::Unhealthy, &what);
        }
        self.in_phase(at, named)
    }

    /// The named member lives, and should not lead.
    fn unfit(&self, at: At<'_>, named: &Named, cause: Cause, reason: Reason, what: &str) -> Verdict {
        let noticed = self.noticed(at.slot, at.term, reason.as_str());
        let stays = |elected: &Elected| elected.named(at.slot) == Some(named);
        let (until, proposal) = match self.write(self.question(at.slot, noticed, cause).decide(what, None)) {
            Verdict::Act(Act::Write(elected, _)) if stays(&elected) => (self.wake_at_exclusions_end(), None),
            Verdict::Wait(wait) => (wait.ends(), wait.proposal.filter(|elected| !stays(elected))),
            act => return act,
        };
        // An unhealthy leader is better than none.
        match self.in_phase(at, named) {
            Verdict::Wait(wait) => {
                let sentence = format!("{what}, and no other member may lead now; {}", wait.sentence);
                // Stopping the last member is no alarm. Members that remain and may not lead are reported afterwards.
                let wait = match reason {
                    Reason::LeaderShutdown => quiet(reason, sentence),
                    _ => loud(reason, sentence),
                };
                wait.until(until).instead_of(proposal).into()
            }
            verdict => verdict,
        }
    }

    /// The member that is about to step in by itself, as far as its elector can know: the elector does not compete
    /// with it. Whatever makes it hesitate, [`SUCCESSION`] has an end.
    fn steps_in<'e>(&self, at: At<'e>) -> Option<&'e Named> {
        let first = at.elected.line_of(at.slot).first()?;
        let lives =
            self.members.iter().any(|m| m.ballot == first.ballot && m.withdrawn.is_none() && !m.leaving);
        let seen = self.reading?.has_vanished(at.elected, at.slot);
        let may = may_succeed(at.elected, at.slot, &first.ballot, self.policy, self.now.unix_ms);
        Some(first).filter(|_| lives && seen && may)
    }

    /// The named member is not present any more.
    fn lost(&self, at: At<'_>, named: &Named) -> Verdict {
        let left_with_all = |reading: &Reading| reading.memory.left_with_all(&named.ballot);
        if at.current.is_none() && self.reading.is_some_and(left_with_all) {
            return self.begin_again(at);
        }
        if let Some(successor) = self.steps_in(at) {
            let waited = self.phase(at, Phase::Succession, Some(SUCCESSION));
            if waited < SUCCESSION {
                let sentence = format!("{} is first in line and is to step in", successor.member);
                return quiet(Reason::Acquire, sentence).until(self.now.time + (SUCCESSION - waited)).into();
            }
        }
        // Each znode has its own watch: a successor has written the decision with its leader znode.
        if at.current.is_some_and(|(current, _)| current.term > at.term) {
            return quiet(Reason::Reading, "a later decision is being read").into();
        }
        let noticed = self.noticed(at.slot, at.term, "lost");
        let Named { member, site, .. } = named;
        // A closed session and an expired session look the same: nothing is left.
        let what = match self.members.iter().any(|other| other.member == *member) {
            true => format!("{member} of site {site} was restarted"),
            false => format!("the session of {member} of site {site} ended"),
        };
        // An operator expects it to go.
        let cause = match self.control.serviced(member) {
            Some(_) => Cause::LeaderShutdown,
            None => Cause::LeaderLost,
        };
        self.write(self.question(at.slot, noticed, cause).decide(&what, None))
    }
}
