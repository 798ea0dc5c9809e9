//! Members that keep failing: each failure is remembered for a while, by the member's id, so
//! that a restart forgets nothing, and in the decision, so that the next elector knows.
//!
//! A member that has failed before is excluded for longer, and after a failure those with
//! fewer of them go first (the strategy sees them in
//! [`Trouble`](crate::strategy::Trouble)). An exclusion itself is still that of a ballot: one
//! who was restarted may be named, if only after the others.

use std::time::Duration;

use super::decision::Question;
use crate::{
    record::{Cause, Exclusion, Failure, Named},
    strategy::Trouble,
    time::is_within,
};

impl Question<'_> {
    /// What the strategy is to know of failures, for a decision of this cause.
    pub(super) fn trouble(&self, cause: Cause) -> Trouble {
        self.trouble_with(self.failures_after(cause))
    }

    /// The same with these failures.
    pub(super) fn trouble_with(&self, failures: Vec<Failure>) -> Trouble {
        Trouble { failures, failed_sites: self.failed_sites(), barred_sites: self.barred_sites() }
    }

    /// Those of these failures that count still.
    pub(super) fn living_failures(&self, all: &[Failure]) -> Vec<Failure> {
        let window = self.policy.penalty_window;
        all.iter().filter(|f| is_within(f.at_ms, window, self.unix_ms)).cloned().collect()
    }

    /// The failures that count once a decision of this cause is taken: whom it blames has failed
    /// once more.
    pub(super) fn failures_after(&self, cause: Cause) -> Vec<Failure> {
        let mut failures = self.living_failures(self.elected.map_or(&[], |e| &e.failures));
        // The rest of a takeover that began with vacating the place is not another failure.
        if !blames(cause) || self.is_vacated() || self.policy.penalty_window.is_zero() {
            return failures;
        }
        let holder = self.holders.get(self.slot).copied().flatten().filter(|_| cause == Cause::Suspected);
        let blamed = match holder {
            Some(ballot) => self.members.iter().find(|m| m.ballot == *ballot).map(|m| m.member.clone()),
            None => self.elected.and_then(|e| e.named(self.slot)).map(|named| named.member.clone()),
        };
        if let Some(member) = blamed {
            failures.push(Failure { member, at_ms: self.unix_ms, cause: cause.as_str().to_owned() });
        }
        failures
    }

    /// An exclusion of one who has just given up or failed: twice as long for each failure before,
    /// where this is one.
    pub(super) fn penalty(&self, named: &Named, cause: Cause, reason: &str) -> Exclusion {
        if !blames(cause) {
            return self.exclusion_for(named, reason.to_owned(), self.policy.exclusion);
        }
        let failures = self.living_failures(self.elected.map_or(&[], |e| &e.failures));
        let before = failures.iter().filter(|f| f.member == named.member).count();
        let most = self.policy.max_exclusion.max(self.policy.exclusion);
        let span = doubled(self.policy.exclusion, before).min(most);
        let reason = match before {
            0 => reason.to_owned(),
            before => format!("{reason} (failure {} within {:?})", before + 1, self.policy.penalty_window),
        };
        self.exclusion_for(named, reason, span)
    }
}

/// So often twice as long.
pub(super) fn doubled(span: Duration, times: usize) -> Duration {
    let factor = u32::try_from(times).ok().and_then(|times| 1_u32.checked_shl(times)).unwrap_or(u32::MAX);
    span.saturating_mul(factor)
}

/// Whether a decision of this cause says that whoever led could not be kept. Not when it was
/// lost: its host may have been restarted, or its network cut, and that says little of it.
const fn blames(cause: Cause) -> bool {
    matches!(cause, Cause::TakeoverFailed | Cause::WorkFailed | Cause::Suspected | Cause::Unhealthy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_double_without_an_overflow() {
        let span = Duration::from_secs(300);
        for (times, minutes) in [(0, 5), (1, 10), (2, 20), (5, 160)] {
            assert_eq!(doubled(span, times), Duration::from_secs(60 * minutes), "{times}");
        }
        for many in [31, 32, 33, 1000] {
            assert!(doubled(span, many) >= doubled(span, 30), "{many}");
        }
    }
}
