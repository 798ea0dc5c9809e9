//! The way of the one who is named: the place becomes free, is taken, is READY; and how
//! long the elector waits for each step.

use std::time::Duration;

use super::{
    decision::{Undecided, ms, nobody},
    elector::{At, Facts, Verdict, loud, quiet},
    rules::Rule,
    watchdog::{Phase, Watchdog},
};
use crate::{
    calendar::utc,
    record::{Cause, Current, Named, Status},
    strategy::{Ground, Ranking, Refused},
    time::APART_MS,
};

/// Announcements are to the minute.
const MINUTE_MS: u64 = 60_000;

impl Facts<'_> {
    /// The one who is named is there, and takes its way into office.
    pub(super) fn in_phase(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
        match at.current {
            None => self.acquiring(at, named, watchdog),
            // The same member in an earlier term ends that first, as anyone would.
            Some((current, _))
                if !self.rules.same(named, &current.member, &current.ballot) || current.term != at.term =>
            {
                self.releasing(at, named, current, watchdog)
            }
            Some((current, _)) if current.status == Status::Progress => self.taking_over(at, named, watchdog),
            Some((current, _)) => self.serving(at, named, current, watchdog),
        }
    }

    /// The place is free, and the one who is named has not created it.
    fn acquiring(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
        let limit = self.policy.acquire_timeout;
        let waited = watchdog.phase(at.slot, at.term, self.timer(Phase::Acquire), Some(limit), self.now);
        if waited < limit {
            return quiet("acquire", format!("{} is named and is to create its place", named.member));
        }
        let what = format!("{} did not create its place within {limit:?}", named.member);
        self.exclude(at, Cause::TakeoverFailed, &what, what.clone(), watchdog)
    }

    /// Somebody else is still in office.
    fn releasing(&self, at: At<'_>, named: &Named, current: &Current, watchdog: &mut Watchdog) -> Verdict {
        let limit = self.policy.release_timeout;
        let waited = watchdog.phase(at.slot, at.term, self.timer(Phase::Release), Some(limit), self.now);
        if waited < limit {
            let sentence = if current.ballot == named.ballot {
                format!("{} is named anew, and is to end term {} first", named.member, current.term)
            } else {
                format!("{} is named; {} is to let go first", named.member, current.member)
            };
            return quiet("release", sentence);
        }
        if !self.rules.keep(Rule::TimerPerPhase) {
            let what = format!("{} did not take over within {limit:?}", named.member);
            return self.exclude(at, Cause::TakeoverFailed, &what, what.clone(), watchdog);
        }
        // Not the new leader's fault, so nobody is excluded for it; and taking the
        // place would give up 'at most one', so that is left to an operator.
        loud(
            "release-overdue",
            format!(
                "{} has not let go for more than {limit:?} though {} is named; if its session ends its place is free, \
                 and `failover --force` takes it",
                current.member, named.member
            ),
        )
    }

    /// The one who is named holds its place in PROGRESS.
    fn taking_over(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
        let limit = self.policy.takeover_timeout;
        let waited = watchdog.phase(at.slot, at.term, self.timer(Phase::Takeover), Some(limit), self.now);
        if waited < limit || !self.rules.keep(Rule::TakeoverTimeout) {
            return self.refresh(
                at.elected,
                at.meta,
                quiet("takeover", format!("{} is taking over", named.member)),
            );
        }
        let what = format!("{} did not take over within {limit:?}", named.member);
        self.exclude(at, Cause::TakeoverFailed, &what, what.clone(), watchdog)
    }

    /// All is as it was decided.
    fn serving(&self, at: At<'_>, named: &Named, current: &Current, watchdog: &mut Watchdog) -> Verdict {
        let tenure = watchdog.phase(at.slot, at.term, Phase::Serving, None, self.now);
        let question = self.question(at.slot, self.now.unix_ms);
        let ranking = question.rank_elective(&named.ballot);
        if let Some(refused) =
            ranking.refusal(&named.ballot).filter(|refused| refused.ground == Ground::Order)
        {
            return self.obeying(at, named, refused, &ranking, watchdog);
        }
        let better = ranking.first().filter(|first| first.named.ballot != named.ballot);
        let Some(better) = better else {
            watchdog.nobody_better(at.slot);
            return self.refresh(at.elected, at.meta, quiet("steady", format!("{} leads", current.member)));
        };
        let so_far = watchdog.better(at.slot, at.term, &better.named.ballot, self.now);
        let now_ms = self.now.unix_ms;
        let attempts = at.elected.all_attempts().filter(|at| *at <= now_ms + APART_MS);
        let since_failover = attempts.max().map(|at| now_ms.saturating_sub(at));
        let cooldown = since_failover
            .map_or(Duration::ZERO, |ago| self.policy.cooldown.saturating_sub(Duration::from_millis(ago)));
        if self.control.stay.contains(&at.term) {
            let sentence = format!(
                "{} leads, and stays by an operator's order until the next change of leader; {} would be better",
                current.member, better.named.member
            );
            return self.refresh(at.elected, at.meta, quiet("stay", sentence));
        }
        let waits = [
            ("better-after", self.policy.better_after.saturating_sub(so_far)),
            ("min-tenure", self.policy.min_tenure.saturating_sub(tenure)),
            ("cooldown", cooldown),
        ];
        let moves_at = self.moves_at(named, &better.named, waits.iter().map(|(_, wait)| *wait).max());
        let closed = Duration::from_millis(moves_at.saturating_sub(self.now.unix_ms));
        // Before the other waits are over nobody can say that it is the window that is missing.
        let longest_wait = waits.iter().map(|(_, wait)| *wait).max().unwrap_or_default();
        let window = if closed > longest_wait { closed } else { Duration::ZERO };
        let waits = [waits[0], waits[1], waits[2], ("failback-window", window)];
        if let Some(notebook) = self.notebook {
            notebook.waits(waits);
        }
        let longest = waits.into_iter().max_by_key(|(_, wait)| *wait).filter(|(_, wait)| !wait.is_zero());
        if let Some((reason, wait)) = longest {
            watchdog.wake_at(self.now.time + wait);
            let mut sentence = format!("{} leads; {} would be better", current.member, better.named.member);
            match reason {
                "failback-window" => sentence.push_str(" (outside of failback_windows)"),
                reason => sentence.push_str(&format!(" ({reason} is not over)")),
            }
            if better.named.site != named.site {
                let when = utc(moves_at.div_ceil(MINUTE_MS).saturating_mul(MINUTE_MS));
                sentence.push_str(&format!("; to site {} at {when} unless that changes", better.named.site));
            }
            return self.refresh(at.elected, at.meta, quiet(reason, sentence));
        }
        if let Some(why) = self.holds(&named.ballot) {
            let sentence = format!("{} leads, and does not hand over now: {why}", current.member);
            return self.refresh(at.elected, at.meta, quiet("held-by-leader", sentence));
        }
        let noticed = watchdog.noticed(at.slot, at.term, "better", self.now);
        let what = format!("{} has been better for {:?}", better.named.member, self.policy.better_after);
        match self.question(at.slot, noticed).decide(Cause::BetterCandidate, &what, None, None) {
            Ok(decided) if decided.named(at.slot) == Some(named) => {
                self.refresh(at.elected, at.meta, quiet("steady", format!("{} leads", current.member)))
            }
            decided => self.write(decided, Some(at.meta), watchdog),
        }
    }

    /// When whoever leads would be followed by one that is better, in milliseconds since the Unix
    /// epoch, if it stays the better one: to another site within a window only.
    fn moves_at(&self, named: &Named, better: &Named, wait: Option<Duration>) -> u64 {
        let ready = self.now.unix_ms.saturating_add(ms(wait.unwrap_or_default()));
        if better.site == named.site { ready } else { self.policy.failback_windows.open_from(ready) }
    }

    /// An operator or the configuration says that whoever leads is not to. It hands over to
    /// the best who may lead, and there is nothing to wait for: what was said does not waver,
    /// and whoever follows is not refused by the same ranking, so nothing moves back. Unless the
    /// orders change all the time: such moves have a limit of their own.
    fn obeying(
        &self,
        at: At<'_>,
        named: &Named,
        refused: &Refused,
        ranking: &Ranking,
        watchdog: &mut Watchdog,
    ) -> Verdict {
        watchdog.nobody_better(at.slot);
        let what = format!("{} may not lead any more ({})", named.member, refused.reason);
        let Some(best) = ranking.first() else {
            let sentence = format!(
                "{} leads on though it may not ({}): {}",
                named.member,
                refused.reason,
                nobody(ranking)
            );
            self.wake_at_exclusions_end(watchdog);
            return self.refresh(at.elected, at.meta, loud("nobody", sentence));
        };
        if let Some(why) = self.holds(&named.ballot) {
            let sentence = format!("{what}, and does not hand over now: {why}");
            return self.refresh(at.elected, at.meta, quiet("held-by-leader", sentence));
        }
        let noticed = watchdog.noticed(at.slot, at.term, "standing-order", self.now);
        match self.question(at.slot, noticed).obey(&what, best) {
            Err(Undecided::Held { reason, sentence, until_ms }) => {
                watchdog.wake_at(self.time_of(until_ms));
                self.refresh(at.elected, at.meta, loud(reason, format!("{what}, and leads on: {sentence}")))
            }
            decided => self.write(decided, Some(at.meta), watchdog),
        }
    }
}
