//! Whether and when a job that ended is restarted. Pure: time is an argument.

use std::collections::VecDeque;

use boot_time::BootTime;
use serde::{Deserialize, Serialize};

use crate::{config::RestartPolicy, guard::protocol::Millis};

/// The restarts so far. The next program of this process gets them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct RestartHistory {
    /// When each restart of the window was decided, oldest first.
    recent: VecDeque<Millis>,
    total: u32,
}

impl RestartHistory {
    /// Decides after an end at `now`: when it is restarted, or `None` if it is not. A restart is added to the history.
    pub(super) fn ended(&mut self, policy: &RestartPolicy, now: BootTime) -> Option<BootTime> {
        while self.recent.front().is_some_and(|&at| now.duration_since(at.into()) > policy.within) {
            self.recent.pop_front();
        }
        let so_far = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if so_far >= policy.max {
            return None;
        }
        self.recent.push_back(now.into());
        self.total += 1;
        let pause = policy.backoff.saturating_mul(2u32.saturating_pow(so_far)).min(policy.backoff_max);
        Some(now + pause)
    }

    /// The number of all restarts, including those before the window.
    pub(super) fn total(&self) -> u32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    fn policy(max: u32) -> RestartPolicy {
        RestartPolicy {
            max,
            within: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_millis(500),
        }
    }

    #[test]
    fn pauses_double_up_to_their_bound_until_the_limit() {
        let mut history = RestartHistory::default();
        let policy = policy(4);
        let verdicts: Vec<_> = (0..5).map(|_| history.ended(&policy, at(1_000))).collect();
        assert_eq!(verdicts, [Some(at(1_200)), Some(at(1_400)), Some(at(1_500)), Some(at(1_500)), None]);
        assert_eq!(history.total(), 4);
    }

    #[test]
    fn old_restarts_are_forgiven() {
        let mut history = RestartHistory::default();
        let policy = policy(1);
        assert_eq!(history.ended(&policy, at(0)), Some(at(200)));
        assert_eq!(history.ended(&policy, at(60_000)), None);
        assert_eq!(history.ended(&policy, at(60_001)), Some(at(60_201)), "the pause starts small again");
        assert_eq!(history.total(), 2);
    }

    #[test]
    fn zero_means_never() {
        assert_eq!(RestartHistory::default().ended(&policy(0), at(0)), None);
    }

    #[test]
    fn a_huge_limit_does_not_overflow() {
        let mut history = RestartHistory::default();
        for _ in 0..100 {
            assert_ne!(history.ended(&policy(u32::MAX), at(0)), None);
        }
    }
}
