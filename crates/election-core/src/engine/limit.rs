//! How many takeovers that nobody ordered may happen within a window, and the hold after
//! too many of them.

use super::{
    decision::{Question, Undecided, ms},
    policy::Policy,
};
use crate::record::{Cause, Elected};

impl Question<'_> {
    pub(super) fn recent_attempts(&self) -> Vec<u64> {
        let window = ms(self.policy.max_takeovers.within);
        let all = self.elected.map(|e| e.attempts.as_slice()).unwrap_or_default();
        all.iter().copied().filter(|at| at.saturating_add(window) > self.unix_ms).collect()
    }

    pub(super) fn check_limit(&self, cause: Cause) -> Result<(), Undecided> {
        if !counts(cause) {
            return Ok(());
        }
        check_limit(self.policy, self.elected, self.unix_ms)
    }
}

/// Whether a takeover that nobody ordered may happen at all.
pub(super) fn check_limit(policy: &Policy, elected: Option<&Elected>, unix_ms: u64) -> Result<(), Undecided> {
    let limit = policy.max_takeovers;
    let window = ms(limit.within);
    let all = elected.map(|e| e.attempts.as_slice()).unwrap_or_default();
    let recent = all.iter().filter(|at| at.saturating_add(window) > unix_ms);
    let (count, oldest) = recent.fold((0u32, u64::MAX), |(n, oldest), at| (n + 1, oldest.min(*at)));
    if count < limit.count {
        return Ok(());
    }
    let until_ms = oldest.saturating_add(window);
    Err(Undecided::Held {
        sentence: format!(
            "held: {count} takeovers within {within:?}, and max_takeovers allows {}; `ack` ends that, and an operator's \
             failover goes on at once, otherwise the next is once the first of these is {within:?} ago",
            limit.count,
            within = limit.within,
        ),
        until_ms,
    })
}

/// Whether the election holds still after too many takeovers, and until when, in milliseconds
/// since the Unix epoch.
pub fn held_until(policy: &Policy, elected: &Elected, unix_ms: u64) -> Option<u64> {
    match check_limit(policy, Some(elected), unix_ms) {
        Err(Undecided::Held { until_ms, .. }) => Some(until_ms),
        _ => None,
    }
}

/// Whether a decision counts against the limit on takeovers: those that nobody ordered.
/// Moves to a better candidate count, for it is they that flap.
pub(super) const fn counts(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::Startup
            | Cause::MemberJoined
            | Cause::Switchover
            | Cause::Failover
            | Cause::TokensRaised
            | Cause::SlotsChanged
            | Cause::StandingOrder
    )
}
