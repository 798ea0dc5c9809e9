//! A planned move that the leader has called off: leadership returns to it, in its own term.

use super::{
    decided::about,
    next_step::{Act, Leads, Verdict},
    pass::{At, Pass, Question},
};
use crate::{
    calendar::utc,
    record::{CalledOff, Cause, Current, Elected, Given, Named, Status},
    time::Time,
};

impl Pass<'_> {
    /// The decision that returns leadership to a leader that has called its move off. It was fit to lead on when the move was
    /// decided, and holds the leader znode.
    pub(crate) fn called_off(&self, at: At<'_>, named: &Named) -> Option<Verdict> {
        let (current, leader) = at.current?;
        let member = self.members.iter().find(|member| member.ballot == current.ballot)?;
        let called_off = member.called_off.as_ref().filter(|called_off| called_off.term == at.term)?;
        let given = at.elected.given(at.slot)?;
        let follows = given.previous.as_ref().is_some_and(|previous| previous.ballot == current.ballot);
        let is_free = at.elected.slot_of(&current.ballot).is_none();
        let leads_on = follows && is_free && current.status == Status::Ready && current.term < at.term;
        if !leads_on || !given.cause.can_be_called_off() || named.ballot == current.ballot {
            return None;
        }
        let noticed = self.noticed(at.slot, at.term, "called-off");
        let elected = self.question(at.slot, noticed, Cause::CalledOff).call_off(current, called_off);
        let version = self.reading.and_then(|reading| reading.view.electors().version_of(&current.member));
        let leads = Leads { slot: at.slot, leader: leader.version, member: current.member.clone(), version };
        Some(Verdict::Act(Act::CallOff(leads, Box::new(elected), at.meta.version)))
    }

    /// Why the leader is not moved again before that is asked for, and until when, if it has called the last move off a short time
    /// ago.
    pub(crate) fn stays_after_calling_off(&self, at: At<'_>) -> Option<(String, Time)> {
        let given = at.elected.given(at.slot).filter(|given| given.cause == Cause::CalledOff)?;
        let pause = u64::try_from(self.policy.exclusion.as_millis()).unwrap_or(u64::MAX);
        let until_ms = given.decided_at_ms.saturating_add(pause);
        if self.now.unix_ms >= until_ms {
            return None;
        }
        let until = self.time_of(until_ms);
        self.wake_at(until);
        Some((format!("{}; it is tried again after {}", given.sentence, utc(until_ms)), until))
    }
}

impl Question<'_> {
    fn call_off(&self, current: &Current, called_off: &CalledOff) -> Elected {
        let mut next = self.next_term(self.living_exclusions());
        let sentence = format!("called off: {}; {} leads on", called_off.reason, current.member);
        let sentence = about(self.slot, next.slots.len(), sentence);
        let decided_in = Some(next.term);
        let given = Given { term: current.term, decided_in, previous: None, ..self.given(&next, sentence) };
        if let Some(slot) = next.slots.get_mut(self.slot) {
            (slot.named, slot.given) = (Some(current.named()), given);
        }
        self.with_lines(next)
    }
}
