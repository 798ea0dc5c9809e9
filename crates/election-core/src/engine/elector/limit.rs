//! How soon takeovers that were not ordered follow each other: a pause while the job fails on one member after
//! another, and a hold after too many takeovers within a window. Both grow, and end by themselves: the cause may be a
//! dependency that recovers.

use std::time::Duration;

use super::{
    decided::{TakeoverHold, doubled},
    pass::Question,
};
use crate::{
    calendar::utc,
    engine::{io::Reason, policy::Policy},
    ids::Ballot,
    record::{Cause, Elected, MemberFailure, Named, limits, most},
    time::{in_words, is_within},
};

/// A limit that is never reached, to see what an election would do without a limit.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// The first hold after too many takeovers; the next is twice as long.
const FIRST_HOLD: Duration = Duration::from_secs(10);

/// The pause before the third member is asked to run a job that has failed on two; the next is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest hold, and the longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a move for a standing order counts against the limit on such moves.
const OBEYED_WITHIN: Duration = Duration::from_secs(600);

/// How soon a member that has resigned is asked again, and a member that was named after a resignation can be followed if it
/// resigns as well.
const PACE: Duration = Duration::from_secs(1);

impl Question<'_> {
    pub(crate) fn recent_attempts(&self) -> Vec<u64> {
        let window = self.policy.max_takeovers.within;
        let all = self.elected.and_then(|e| e.slots.get(self.slot)).map_or(&[][..], |slot| &slot.attempts);
        all.iter().copied().filter(|at| is_within(*at, window, self.now.unix_ms)).collect()
    }

    pub(crate) fn check_limit(&self, chosen: Option<&Named>) -> Result<(), TakeoverHold> {
        match self.cause {
            Cause::Resigned => self.check_pace(chosen),
            // A member that joins and leaves repeatedly may be better each time that it joins: the limit is for this.
            cause if counts(cause) && (cause == Cause::BetterCandidate || !self.has_new_member()) => {
                check_limit(self.policy, self.elected, self.slot, cause, self.now.unix_ms)?;
                if is_of_the_job(cause.as_str()) { self.check_pause() } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// A leader that an order forbids still leads, so no leadership is missing, and an order does not waver. If
    /// leadership still moves for orders again and again, the orders contradict each other: in the members'
    /// configurations, or in what a script sets.
    pub(crate) fn check_obeyed(&self) -> Result<(), TakeoverHold> {
        let recent = self.recent_obeyed();
        let allowed = most::obeyed(self.elected.map_or(1, |e| e.slots.len()));
        let Some(oldest) = recent.first().filter(|_| recent.len() >= allowed) else { return Ok(()) };
        let until_ms = oldest.saturating_add(limits::millis(OBEYED_WITHIN));
        let why = format!("{} moves for standing orders in {}", recent.len(), in_words(OBEYED_WITHIN));
        Err(on_hold(Reason::Held, until_ms, &why))
    }

    fn recent_obeyed(&self) -> Vec<u64> {
        let all = self.elected.and_then(|e| e.slots.get(self.slot)).map_or(&[][..], |slot| &slot.obeyed);
        all.iter().copied().filter(|at| is_within(*at, OBEYED_WITHIN, self.now.unix_ms)).collect()
    }

    /// The moves for standing orders that count once a decision of this cause is taken.
    pub(crate) fn obeyed_after(&self) -> Vec<u64> {
        let mut recent = self.recent_obeyed();
        recent.extend((self.cause == Cause::StandingOrder).then_some(self.now.unix_ms));
        recent
    }

    /// Whether a member has joined since the last decision. It may bring what was missing: another configuration, or
    /// a repaired program. The named member does not count: a leader that crashes repeatedly joins each time.
    fn has_new_member(&self) -> bool {
        let Some((elected, youngest)) = self.elected.and_then(|e| Some((e, e.youngest.as_ref()?))) else {
            return false;
        };
        let named = elected.named(self.slot).map(|named| &named.member);
        self.standing().any(|member| member.ballot > *youngest && Some(&member.member) != named)
    }

    /// The first failure may be the member's fault. Each further failure on another member points at the job.
    fn check_pause(&self) -> Result<(), TakeoverHold> {
        let before = self.elected.map_or(0, |elected| job_failures(self.policy, elected, self.now.unix_ms));
        let Some(doublings) = before.checked_sub(1) else { return Ok(()) };
        let pause = limits::millis(doubled(FIRST_PAUSE, doublings).min(LONGEST));
        let until_ms = self.noticed_at_ms.saturating_add(pause);
        if until_ms <= self.now.unix_ms {
            return Ok(());
        }
        let window = in_words(self.policy.max_takeovers.within);
        let why = format!("the job has failed {} times in {window}", before + 1);
        Err(on_hold(Reason::Backoff, until_ms, &why))
    }

    fn gave_up_at(&self, ballot: &Ballot) -> u64 {
        let of = self.members.iter().find(|member| member.ballot == *ballot);
        of.and_then(|member| member.gave_up.as_ref()).map_or(u64::MAX, |gave_up| gave_up.at_ms)
    }

    /// A member may resign as often as it wants, but not in a hot loop. The one that has just resigned is asked again only
    /// after a pause, in which another may become a candidate.
    fn check_pace(&self, chosen: Option<&Named>) -> Result<(), TakeoverHold> {
        let resigned = self.elected.and_then(|e| e.named(self.slot));
        let again = chosen.filter(|chosen| resigned.is_some_and(|named| named.ballot == chosen.ballot));
        let given = self.elected.and_then(|e| e.given(self.slot));
        let named_at = given.map_or(0, |given| given.decided_at_ms);
        let (since, sentence) = match (again, given.filter(|given| given.cause == Cause::Resigned)) {
            (Some(again), _) => (
                // By its clock; but one that is ahead does not lengthen the pause, and one that is behind does not remove it.
                self.gave_up_at(&again.ballot).min(self.noticed_at_ms).max(named_at),
                format!(
                    "{} has just given leadership up, and no other member may lead; it is named again after {PACE:?}",
                    again.member
                ),
            ),
            (None, Some(given)) => (
                given.decided_at_ms,
                format!("leadership was given up twice within {PACE:?}; the next leader is named after that"),
            ),
            (None, None) => return Ok(()),
        };
        if !is_within(since, PACE, self.now.unix_ms) {
            return Ok(());
        }
        Err(TakeoverHold {
            reason: Reason::ResignedAgain,
            sentence,
            until_ms: since.saturating_add(limits::millis(PACE)),
        })
    }
}

/// Whether a takeover of this slot that no operator requested may happen now. Each slot has its own limit: a slot
/// whose leaders keep failing must not delay another, and the loss of a site removes the leaders of many slots at
/// once.
pub(crate) fn check_limit(
    policy: &Policy,
    elected: Option<&Elected>,
    slot: usize,
    cause: Cause,
    unix_ms: u64,
) -> Result<(), TakeoverHold> {
    let limit = policy.max_takeovers;
    // The record keeps no more takeovers than this.
    let kept = most::attempts(elected.map_or(1, |e| e.slots.len()));
    let window = limits::millis(limit.within);
    let all = elected.and_then(|e| e.slots.get(slot)).map_or(&[][..], |slot| &slot.attempts);
    let recent = all.iter().filter(|at| is_within(**at, limit.within, unix_ms));
    let (count, oldest, latest) =
        recent.fold((0, u64::MAX, 0), |(n, oldest, latest), at| (n + 1, oldest.min(*at), latest.max(*at)));
    let allowed = usize::try_from(limit.count).unwrap_or(kept).min(kept);
    if count < allowed || limit.count == UNLIMITED {
        return Ok(());
    }
    let until_ms = match cause {
        // A leader is present, so no attempt is needed before the window ends.
        Cause::BetterCandidate => oldest.saturating_add(window),
        // A limit of zero is an operator's order.
        _ if allowed == 0 => u64::MAX,
        // A clock that is ahead does not lengthen a hold.
        _ => {
            let pause = limits::millis(doubled(FIRST_HOLD, count - allowed).min(LONGEST));
            latest.min(unix_ms).saturating_add(pause).min(oldest.saturating_add(window))
        }
    };
    if until_ms <= unix_ms {
        return Ok(());
    }
    let s = if count == 1 { "" } else { "s" };
    let why = format!("{count} takeover{s} in {} (limit {allowed})", in_words(limit.within));
    Err(on_hold(Reason::Held, until_ms, &why))
}

/// A hold that ends at this time, or with an acknowledgement.
fn on_hold(reason: Reason, until_ms: u64, why: &str) -> TakeoverHold {
    let end = if until_ms == u64::MAX { String::new() } else { format!(" until {}", utc(until_ms)) };
    let sentence = format!("on hold{end}: {why}; an acknowledgement resumes now");
    TakeoverHold { reason, sentence, until_ms }
}

/// How often the job has failed recently, on any member.
pub(crate) fn job_failures(policy: &Policy, elected: &Elected, unix_ms: u64) -> usize {
    let window = policy.max_takeovers.within;
    let recent = elected.failures.iter().filter(|failure| is_within(failure.at_ms, window, unix_ms));
    recent.filter(|failure| failure.holds_up(elected)).count()
}

impl MemberFailure {
    /// Whether it delays takeovers: the cause points at the job at least as much as at the member, and the failure
    /// has not been acknowledged.
    pub(crate) fn holds_up(&self, elected: &Elected) -> bool {
        is_of_the_job(&self.cause) && self.at_ms > elected.acknowledged_at_ms
    }
}

/// Whether the cause points at the job at least as much as at the member.
fn is_of_the_job(cause: &str) -> bool {
    cause == Cause::TakeoverFailed.as_str() || cause == Cause::WorkFailed.as_str()
}

/// Whether any slot of the election is on hold after too many takeovers, and until when all of them continue, in
/// milliseconds since the Unix epoch.
pub fn held_until(policy: &Policy, elected: &Elected, unix_ms: u64) -> Option<u64> {
    let until = |slot| match check_limit(policy, Some(elected), slot, Cause::LeaderLost, unix_ms) {
        Err(hold) => Some(hold.until_ms),
        Ok(()) => None,
    };
    (0..elected.slots.len()).filter_map(until).max()
}

/// Whether a decision counts against the limit on takeovers: those that were not ordered. Moves to a better candidate
/// count, since these are the moves that flap.
pub(crate) const fn counts(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::Startup
            | Cause::MemberJoined
            | Cause::Resigned
            | Cause::LeaderShutdown
            | Cause::Switchover
            | Cause::Failover
            | Cause::TokensRaised
            | Cause::SlotsChanged
            | Cause::StandingOrder
            | Cause::CalledOff
    )
}
