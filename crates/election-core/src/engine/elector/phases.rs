//! The phases of the named member: the leader znode becomes free, is acquired, is READY; and how
//! long the elector waits for each step.

use std::time::Duration;

use super::{
    better_after::{losses_of, patience},
    decided::{Decided, Undecided, no_candidate},
    next_step::{Blocker, Verdict, Wait, loud, quiet},
    pass::{At, Pass},
    phase_timers::Phase,
};
use crate::{
    calendar::utc,
    engine::{io::Reason, policy::Confirm},
    ids::MemberId,
    record::{Cause, Confirmed, Current, Elected, Named, Status, limits},
    strategy::{Ground, Ranked, Ranking, Refused},
    time::in_words,
};

/// Announced times are rounded to the minute.
const MINUTE_MS: u64 = 60_000;

impl Pass<'_> {
    /// The named member is present, and acquires leadership.
    pub(crate) fn in_phase(&self, at: At<'_>, named: &Named) -> Verdict {
        match at.current {
            None => self.acquiring(at, named),
            // The same member in an earlier term ends that leadership first, as any other leader would.
            Some((current, _)) if current.ballot != named.ballot || current.term != at.term => {
                self.releasing(at, named, current)
            }
            Some((current, _)) if current.status == Status::Progress => self.taking_over(at, named),
            Some((current, _)) => self.serving(at, named, current),
        }
    }

    /// The leader znode is free, and the member that is named has not created it.
    fn acquiring(&self, at: At<'_>, named: &Named) -> Verdict {
        let limit = self.policy.acquire_timeout;
        let waited = self.phase(at, Phase::Acquire, Some(limit));
        if waited < limit {
            let sentence = format!("{} is named and is to create the leader znode", named.member);
            return quiet(Reason::Acquire, sentence).until(self.now.time + (limit - waited)).into();
        }
        let what = format!("{} did not create the leader znode within {limit:?}", named.member);
        self.exclude(at, Cause::TakeoverFailed, &what, what.clone())
    }

    /// Another member still holds the leader znode.
    fn releasing(&self, at: At<'_>, named: &Named, current: &Current) -> Verdict {
        let limit = self.policy.release_timeout;
        let waited = self.phase(at, Phase::Release, Some(limit));
        if waited < limit {
            let sentence = if current.ballot == named.ballot {
                format!("{} is named anew, and is to end term {} first", named.member, current.term)
            } else {
                format!("{} is named; {} is to let go first", named.member, current.member)
            };
            return quiet(Reason::Release, sentence).until(self.now.time + (limit - waited)).into();
        }
        // This is not the new leader's fault, so no member is excluded for it. Removing the leader znode would break
        // 'at most one leader', so that is left to an operator.
        let sentence = format!(
            "{} has not let go for more than {limit:?} though {} is named; if its session ends its place is free, \
             and `failover --force` takes it",
            current.member, named.member
        );
        loud(Reason::ReleaseOverdue, sentence).into()
    }

    /// The named member holds its leader znode in PROGRESS.
    fn taking_over(&self, at: At<'_>, named: &Named) -> Verdict {
        let limit = self.policy.takeover_timeout;
        let waited = self.phase(at, Phase::Takeover, Some(limit));
        if waited < limit {
            let wait = quiet(Reason::Takeover, format!("{} is taking over", named.member));
            return self.refresh(wait.until(self.now.time + limit.saturating_sub(waited)));
        }
        let what = format!("{} did not take over within {limit:?}", named.member);
        self.exclude(at, Cause::TakeoverFailed, &what, what.clone())
    }

    /// The state is as decided.
    fn serving(&self, at: At<'_>, named: &Named, current: &Current) -> Verdict {
        let tenure = self.phase(at, Phase::Serving, None);
        let question = self.question(at.slot, self.now.unix_ms, Cause::BetterCandidate);
        let ranking = question.rank_elective(&named.ballot);
        if let Some(refused) =
            ranking.refusal(&named.ballot).filter(|refused| refused.ground == Ground::Order)
        {
            return self.obeying(at, named, refused, &ranking);
        }
        let better = ranking.first().filter(|first| first.named.ballot != named.ballot);
        let Some(better) = better else {
            self.timers.borrow_mut().no_better_candidate(at.slot);
            return self.refresh(quiet(Reason::Steady, format!("{} leads", current.member)));
        };
        let all = ranking.order.iter().map(|ranked| &ranked.named.ballot);
        let all = all.take_while(|ballot| **ballot != named.ballot);
        let so_far = self.timers.borrow_mut().better(at.slot, at.term, all, self.now);
        let outlook = Forecast::of(self, at, named, better, so_far, tenure);
        let blockers = self.blockers(at, named, better, &outlook);
        let stays = self.stays_after_calling_off(at);
        let stays = stays.map(|(why, until)| quiet(Reason::HeldByLeader, why).until(until));
        let wait = stays.or_else(|| self.what_is_said(current, named, better, &outlook));
        let Some(wait) = wait else {
            let noticed = self.noticed(at.slot, at.term, "better");
            return match self.better_leads(at, better, &outlook, noticed) {
                Ok(decided) if decided.elected.named(at.slot) == Some(named) => {
                    self.refresh(quiet(Reason::Steady, format!("{} leads", current.member)))
                }
                decided => self.write(decided),
            };
        };
        let mut wait = wait.blocked_by(blockers);
        if self.trace.is_some()
            && let Ok(decided) = self.better_leads(at, better, &outlook, self.now.unix_ms)
        {
            let hold = decided.held.map(|hold| self.hold(hold));
            wait.blockers.extend(hold.into_iter().flat_map(|hold| hold.blockers));
            wait = wait.instead_of(Some(decided.elected));
        }
        self.refresh(wait)
    }

    /// Everything that blocks a move to a better member.
    fn blockers(&self, at: At<'_>, named: &Named, better: &Ranked, outlook: &Forecast<'_>) -> Vec<Blocker> {
        let (leader, better) = (&named.member, &better.named);
        let policy = self.policy;
        let waits = outlook.waits.iter().filter(|(_, wait)| !wait.is_zero()).map(|(reason, wait)| {
            let sentence = match reason {
                Reason::MinTenure => format!("{leader} leads for {} at least", in_words(policy.min_tenure)),
                Reason::FailbackWindow => format!(
                    "leadership moves by itself to another site only within failback_windows ({})",
                    policy.failback_windows.texts().collect::<Vec<_>>().join("; ")
                ),
                _ => format!(
                    "{} must have been better than {leader} for {} without a break; only the elector \
                     knows when that time began",
                    better.member,
                    in_words(outlook.patience)
                ),
            };
            Blocker { reason: *reason, sentence, until: Some(self.now.time + *wait) }
        });
        let mut blockers: Vec<_> = waits.collect();
        let mut add = |reason, sentence| blockers.push(Blocker { reason, sentence, until: None });
        if self.control.stay.contains(&at.term) {
            add(Reason::Stay, stays(leader, better));
        }
        if outlook.is_open {
            add(Reason::Confirm, is_proposed(leader, better));
        }
        if let Some(why) = self.holds(&named.ballot) {
            add(Reason::HeldByLeader, format!("{leader} leads, and does not hand over now: {why}"));
        }
        if let Some((sentence, until)) = self.stays_after_calling_off(at) {
            blockers.push(Blocker { reason: Reason::HeldByLeader, sentence, until: Some(until) });
        }
        blockers
    }

    /// The log line while the better member does not lead yet; `None` if it may lead.
    fn what_is_said(
        &self,
        current: &Current,
        named: &Named,
        better: &Ranked,
        outlook: &Forecast<'_>,
    ) -> Option<Wait> {
        if self.control.stay.contains(&outlook.term) {
            return Some(quiet(Reason::Stay, stays(&current.member, &better.named)));
        }
        let longest = outlook.waits.into_iter().max_by_key(|(_, wait)| *wait);
        if let Some((reason, wait)) = longest.filter(|(_, wait)| !wait.is_zero()) {
            self.wake_at(self.now.time + wait);
            let mut sentence = format!("{} leads; {} would be better", current.member, better.named.member);
            match reason {
                Reason::FailbackWindow => sentence.push_str(" (outside of failback_windows)"),
                Reason::BetterAfter if outlook.patience > self.policy.better_after => {
                    let site = &better.named.site;
                    let times = losses_of(self.policy, outlook.elected, site, self.now.unix_ms);
                    let patience = in_words(outlook.patience);
                    let window = in_words(self.policy.penalty_window);
                    let why = format!("site {site} has lost its leader {times} times in {window}");
                    sentence.push_str(&format!(" ({reason} is not over: {patience}, for {why})"));
                }
                reason => sentence.push_str(&format!(" ({reason} is not over)")),
            }
            if better.named.site != named.site {
                let when = utc(outlook.moves_at.div_ceil(MINUTE_MS).saturating_mul(MINUTE_MS));
                let what = if outlook.is_open { "to be proposed for site" } else { "to site" };
                sentence.push_str(&format!("; {what} {} at {when} unless that changes", better.named.site));
            }
            return Some(quiet(reason, sentence));
        }
        if outlook.is_open {
            return Some(loud(Reason::Confirm, is_proposed(&current.member, &better.named)));
        }
        let why = self.holds(&named.ballot)?;
        let sentence = format!("{} leads, and does not hand over now: {why}", current.member);
        Some(quiet(Reason::HeldByLeader, sentence))
    }

    /// The decision that the better member leads.
    fn better_leads(
        &self,
        at: At<'_>,
        better: &Ranked,
        outlook: &Forecast<'_>,
        noticed_at_ms: u64,
    ) -> Result<Decided, Undecided> {
        let by = outlook
            .confirmed
            .map_or_else(String::new, |confirmed| format!(", as {} has confirmed", confirmed.by));
        let what = format!("{} has been better for {}{by}", better.named.member, in_words(outlook.patience));
        self.question(at.slot, noticed_at_ms, Cause::BetterCandidate).decide(&what, None)
    }

    /// An order or the configuration forbids the leader to lead. It hands over to the best candidate at once: an
    /// order does not waver, and the same ranking does not refuse the next leader, so nothing moves back. If the
    /// orders change all the time, such moves have their own limit.
    fn obeying(&self, at: At<'_>, named: &Named, refused: &Refused, ranking: &Ranking) -> Verdict {
        self.timers.borrow_mut().no_better_candidate(at.slot);
        let what = format!("{} may not lead any more ({})", named.member, refused.reason);
        let Some(best) = ranking.first() else {
            let sentence = format!(
                "{} leads on though it may not ({}): {}",
                named.member,
                refused.reason,
                no_candidate(&ranking.refused)
            );
            return self.refresh(loud(Reason::Nobody, sentence).until(self.wake_at_exclusions_end()));
        };
        let stays = self.stays_after_calling_off(at);
        let called_off = stays.as_ref().map(|(why, _)| why.as_str());
        if let Some(why) = called_off.or_else(|| self.holds(&named.ballot)) {
            let sentence = format!("{what}, and does not hand over now: {why}");
            let question = self.question(at.slot, self.now.unix_ms, Cause::StandingOrder);
            let obey = || Ok(question.obey(&what, best));
            let until = stays.as_ref().map(|(_, until)| *until);
            let wait = quiet(Reason::HeldByLeader, sentence).instead_of(self.would_decide(obey)).until(until);
            return self.refresh(wait);
        }
        let noticed = self.noticed(at.slot, at.term, "standing-order");
        match self.write(Ok(self.question(at.slot, noticed, Cause::StandingOrder).obey(&what, best))) {
            Verdict::Wait(wait) => {
                let sentence = format!("{what}, and leads on: {}", wait.sentence);
                self.refresh(loud(wait.reason, sentence).until(wait.ends()).instead_of(wait.proposal))
            }
            act => act,
        }
    }
}

/// What is known of a move to a better member.
struct Forecast<'a> {
    elected: &'a Elected,
    term: u64,
    /// How long it must have been better.
    patience: Duration,
    /// How long each reason to wait still lasts.
    waits: [(Reason, Duration); 3],
    /// Whether an operator must confirm it, and has not done so.
    is_open: bool,
    confirmed: Option<&'a Confirmed>,
    /// When it may be made, or proposed, in milliseconds since the Unix epoch.
    moves_at: u64,
}

impl<'a> Forecast<'a> {
    fn of(
        facts: &'a Pass<'_>,
        at: At<'a>,
        named: &Named,
        better: &Ranked,
        so_far: Duration,
        tenure: Duration,
    ) -> Self {
        let (policy, now) = (facts.policy, facts.now);
        let patience = patience(policy, at.elected, &better.named.site, now.unix_ms);
        let waits = [patience.saturating_sub(so_far), policy.min_tenure.saturating_sub(tenure)];
        let site = &better.named.site;
        let is_asked = policy.confirm == Confirm::CrossSite && *site != named.site;
        let mut confirmed = facts.control.confirmed.iter().filter(|_| is_asked);
        let confirmed = confirmed.find(|confirmed| confirmed.term == at.term && confirmed.site == *site);
        let is_open = is_asked && confirmed.is_none();
        let longest = waits.into_iter().max().unwrap_or_default();
        let ready = now.unix_ms.saturating_add(limits::millis(longest));
        // A move to another site waits for a window, or for the operator who confirms it and decides when it is made.
        let moves_at = match is_open || *site == named.site {
            true => ready,
            false => policy.failback_windows.open_from(ready),
        };
        let closed = Duration::from_millis(moves_at.saturating_sub(now.unix_ms));
        // Until the other waits are over, it is not known whether the window is what is missing.
        let window = if closed > longest { closed } else { Duration::ZERO };
        let waits = [
            (Reason::BetterAfter, waits[0]),
            (Reason::MinTenure, waits[1]),
            (Reason::FailbackWindow, window),
        ];
        Self { elected: at.elected, term: at.term, patience, waits, is_open, confirmed, moves_at }
    }
}

fn stays(leader: &MemberId, better: &Named) -> String {
    format!(
        "{leader} leads, and stays by an operator's order until the next change of leader; {} would be better",
        better.member
    )
}

fn is_proposed(leader: &MemberId, better: &Named) -> String {
    format!(
        "{leader} leads; {} would be better: a move to site {site} is proposed, and waits for an operator's confirmation",
        better.member,
        site = better.site,
    )
}
