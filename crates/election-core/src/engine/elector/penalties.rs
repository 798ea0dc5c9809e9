//! Members that keep failing. Each failure is remembered for a while: by the member's id, so that a restart does not
//! clear it, and in the decision, so that the next elector knows it.
//!
//! A member that has failed before is excluded for longer. After a failure, members with fewer failures are preferred
//! (the strategy sees them in [`Trouble`](crate::strategy::Trouble)). An exclusion itself is still that of a ballot: a
//! member that was restarted may be named, after the others.

use std::time::Duration;

use super::{decided::doubled, pass::Question, sites::barred_sites};
use crate::{
    ids::MemberId,
    record::{Cause, Elected, Exclusion, MemberFailure, Named, keep_newest, limits, most},
    strategy::Trouble,
    time::is_within,
};

impl Question<'_> {
    /// What the strategy must know of failures, for a decision of this cause.
    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble_with(self.failures_after())
    }

    /// The same with these failures.
    pub(crate) fn trouble_with(&self, failures: Vec<MemberFailure>) -> Trouble {
        let barred_sites = barred_sites(self.policy, self.elected, self.now.unix_ms);
        Trouble { failures, failed_sites: self.failed_sites(), barred_sites }
    }

    /// The failures among these that still count.
    pub(crate) fn living_failures(&self, all: &[MemberFailure]) -> Vec<MemberFailure> {
        let window = self.policy.penalty_window;
        all.iter().filter(|f| is_within(f.at_ms, window, self.now.unix_ms)).cloned().collect()
    }

    /// The failures that count once a decision of this cause is taken: the member that it blames has failed once
    /// more.
    pub(crate) fn failures_after(&self) -> Vec<MemberFailure> {
        let cause = self.cause;
        let mut failures = self.living_failures(self.elected.map_or(&[], |e| &e.failures));
        // The rest of a takeover that began with vacating the leader znode is not another failure.
        if !blames(cause) || self.is_vacated() || self.policy.penalty_window.is_zero() {
            return failures;
        }
        let holder = self.holders.get(self.slot).copied().flatten().filter(|_| cause == Cause::Suspected);
        let blamed = match holder {
            Some(ballot) => self.members.iter().find(|m| m.ballot == *ballot).map(|m| m.member.clone()),
            None => self.elected.and_then(|e| e.named(self.slot)).map(|named| named.member.clone()),
        };
        if let Some(member) = blamed {
            let term = self.elected.map_or(0, |e| e.term_of(self.slot));
            failures.push(MemberFailure {
                member,
                at_ms: self.now.unix_ms,
                cause: cause.as_str().to_owned(),
                term,
            });
        }
        failures
    }

    /// An exclusion of a member that has just given up or failed. If this is a failure, it is twice as long for each
    /// failure before.
    pub(crate) fn penalty(&self, named: &Named, reason: &str) -> Exclusion {
        let failures = self.living_failures(self.elected.map_or(&[], |e| &e.failures));
        let (span, reason) = self.excluded_for(&failures, &named.member, self.cause, reason);
        self.exclusion_for(named, reason, span)
    }

    /// How long a member that has given up or failed is excluded, after these failures, and the reason.
    fn excluded_for(
        &self,
        before: &[MemberFailure],
        member: &MemberId,
        cause: Cause,
        reason: &str,
    ) -> (Duration, String) {
        let (usual, window) = (self.policy.exclusion, self.policy.penalty_window);
        let most = self.policy.max_exclusion.max(usual);
        match before.iter().filter(|f| f.member == *member).count() {
            before if before > 0 && blames(cause) => (
                doubled(usual, before).min(most),
                format!("{reason} (failure {} within {window:?})", before + 1),
            ),
            _ => (usual, reason.to_owned()),
        }
    }

    /// The decision with what members have given up since: a member that gave up is left out for a while, and a
    /// failure is remembered. Mostly the next decision contains both. A successor may have been quicker, and does not
    /// know why leadership was free.
    pub(crate) fn with_given_up(&self, elected: &Elected) -> Elected {
        let (mut exclusions, mut failures) = (self.living_exclusions(), elected.failures.clone());
        for member in self.members {
            let Some(gave_up) = member.gave_up.as_ref().filter(|gave_up| gave_up.term < elected.term) else {
                continue;
            };
            let is_remembered = failures.iter().any(|f| f.member == member.member && f.term == gave_up.term);
            let before = if is_remembered { Vec::new() } else { self.living_failures(&failures) };
            let reason = format!("{}: {}", gave_up.cause, gave_up.reason);
            let (span, reason) = self.excluded_for(&before, &member.member, gave_up.cause, &reason);
            // Dropped exclusions of a member that is named now must not return.
            let named = elected.slot_of(&member.ballot).is_some();
            let in_time = is_within(gave_up.at_ms, span, self.now.unix_ms);
            // One that was dropped for want of room would drop another one, and so on without end.
            let is_full = exclusions.len() >= most::EXCLUSIONS;
            let has_room = !is_full || exclusions.iter().any(|e| e.since_ms < gave_up.at_ms);
            if !in_time || named || !has_room || exclusions.iter().any(|e| e.ballot == member.ballot) {
                continue;
            }
            exclusions.push(Exclusion {
                member: member.member.clone(),
                ballot: member.ballot.clone(),
                since_ms: gave_up.at_ms,
                until_ms: gave_up.at_ms.saturating_add(limits::millis(span)),
                reason,
            });
            keep_newest(&mut exclusions);
            if blames(gave_up.cause) && !is_remembered && !self.policy.penalty_window.is_zero() {
                let (member, cause) = (member.member.clone(), gave_up.cause.as_str().to_owned());
                failures.push(MemberFailure { member, at_ms: gave_up.at_ms, cause, term: gave_up.term });
            }
        }
        Elected { exclusions, failures, ..elected.clone() }
    }
}

/// Whether a decision of this cause blames the leader. A leader that was lost is not blamed: its host may have been
/// restarted, or its network cut.
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
