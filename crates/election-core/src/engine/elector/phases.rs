//! The way of the one who is named: the place becomes free, is taken, is READY; and how
//! long the elector waits for each step.

use std::time::Duration;

use super::{
    decision::nobody,
    losses::{losses_of, patience},
    pass::{At, Facts, Verdict, loud, quiet},
    question::{Undecided, ms},
    watchdog::{Phase, Watchdog},
};
use crate::{
    calendar::utc,
    engine::{policy::Confirm, rules::Rule},
    ids::SiteId,
    record::{Cause, Confirmed, Current, Elected, Named, Status},
    strategy::{Ground, Ranked, Ranking, Refused},
    time::in_words,
};

/// Announcements are to the minute.
const MINUTE_MS: u64 = 60_000;

impl Facts<'_> {
    /// The one who is named is there, and takes its way into office.
    pub(in crate::engine) fn in_phase(&self, at: At<'_>, named: &Named, watchdog: &mut Watchdog) -> Verdict {
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
        let patience = patience(self.policy, at.elected, &better.named.site, self.now.unix_ms);
        if self.control.stay.contains(&at.term) {
            let sentence = format!(
                "{} leads, and stays by an operator's order until the next change of leader; {} would be better",
                current.member, better.named.member
            );
            return self.refresh(at.elected, at.meta, quiet("stay", sentence));
        }
        let waits = [
            ("better-after", patience.saturating_sub(so_far)),
            ("min-tenure", self.policy.min_tenure.saturating_sub(tenure)),
        ];
        let is_asked = self.policy.confirm == Confirm::CrossSite && better.named.site != named.site;
        let confirmed = self.confirmed(at.term, &better.named.site).filter(|_| is_asked);
        let is_open = is_asked && confirmed.is_none();
        let longest_wait = waits.iter().map(|(_, wait)| *wait).max().unwrap_or_default();
        let moves_at = match is_open {
            // When it may be made is for the one to know who confirms it.
            true => self.now.unix_ms.saturating_add(ms(longest_wait)),
            false => self.moves_at(named, &better.named, longest_wait),
        };
        let closed = Duration::from_millis(moves_at.saturating_sub(self.now.unix_ms));
        // Before the other waits are over it is not known that it is the window that is missing.
        let window = if closed > longest_wait { closed } else { Duration::ZERO };
        let waits = [waits[0], waits[1], ("failback-window", window)];
        if let Some(notebook) = self.notebook {
            notebook.waits(waits);
        }
        let longest = waits.into_iter().max_by_key(|(_, wait)| *wait).filter(|(_, wait)| !wait.is_zero());
        if let Some((reason, wait)) = longest {
            watchdog.wake_at(self.now.time + wait);
            let mut sentence = format!("{} leads; {} would be better", current.member, better.named.member);
            match reason {
                "failback-window" => sentence.push_str(" (outside of failback_windows)"),
                "better-after" if patience > self.policy.better_after => {
                    sentence.push_str(&format!(
                        " ({reason} is not over: {})",
                        self.why_patient(at.elected, better)
                    ));
                }
                reason => sentence.push_str(&format!(" ({reason} is not over)")),
            }
            if better.named.site != named.site {
                let when = utc(moves_at.div_ceil(MINUTE_MS).saturating_mul(MINUTE_MS));
                let what = if is_open { "to be proposed for site" } else { "to site" };
                sentence.push_str(&format!("; {what} {} at {when} unless that changes", better.named.site));
            }
            return self.refresh(at.elected, at.meta, quiet(reason, sentence));
        }
        if is_open {
            let sentence = format!(
                "{} leads; {} would be better: a move to site {site} is proposed, and waits for `confirm {site}`",
                current.member,
                better.named.member,
                site = better.named.site,
            );
            return self.refresh(at.elected, at.meta, loud("confirm", sentence));
        }
        if let Some(why) = self.holds(&named.ballot) {
            let sentence = format!("{} leads, and does not hand over now: {why}", current.member);
            return self.refresh(at.elected, at.meta, quiet("held-by-leader", sentence));
        }
        let noticed = watchdog.noticed(at.slot, at.term, "better", self.now);
        let by =
            confirmed.map_or_else(String::new, |confirmed| format!(", as {} has confirmed", confirmed.by));
        let what = format!("{} has been better for {}{by}", better.named.member, in_words(patience));
        match self.question(at.slot, noticed).decide(Cause::BetterCandidate, &what, None, None) {
            Ok(decided) if decided.named(at.slot) == Some(named) => {
                self.refresh(at.elected, at.meta, quiet("steady", format!("{} leads", current.member)))
            }
            decided => self.write(decided, Some(at.meta), watchdog),
        }
    }

    /// When whoever leads would be followed by one that is better, in milliseconds since the Unix
    /// epoch, if it stays the better one: to another site within a window only.
    fn moves_at(&self, named: &Named, better: &Named, wait: Duration) -> u64 {
        let ready = self.now.unix_ms.saturating_add(ms(wait));
        if better.site == named.site { ready } else { self.policy.failback_windows.open_from(ready) }
    }

    /// An operator's word that leadership may move to this site in this term.
    fn confirmed(&self, term: u64, site: &SiteId) -> Option<&Confirmed> {
        self.control.confirmed.iter().find(|confirmed| confirmed.term == term && confirmed.site == *site)
    }

    /// Why it takes longer than usual to be better.
    fn why_patient(&self, elected: &Elected, better: &Ranked) -> String {
        let site = &better.named.site;
        let times = losses_of(self.policy, elected, site, self.now.unix_ms);
        format!(
            "{}, for site {site} has lost its leader {times} times in {}",
            in_words(patience(self.policy, elected, site, self.now.unix_ms)),
            in_words(self.policy.penalty_window),
        )
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
