//! When faults stop and a member is electable, exactly one becomes READY in each
//! slot that there are members for, and they stay.
//!
//! Rests on watches that are re-armed, the watchdog and the succession. The
//! failures: four contenders and no leader for two days (python-zk/kazoo#116),
//! contenders that re-create around each other for ever (apache/curator#1161).

use super::Verdict;
use crate::zookeeper::Millis;

/// How long one leader must stay for the run to count as settled.
const STAYS: Millis = 4000;

/// Waits for one leader.
#[derive(Debug)]
pub(crate) struct Calm {
    since: Millis,
    bound: Millis,
    settled_since: Option<(Millis, Vec<usize>)>,
}

impl Calm {
    pub(crate) fn new(since: Millis, bound: Millis) -> Self {
        Self { since, bound, settled_since: None }
    }

    /// `leaders` are all that lead, one in each slot, and READY; answers whether that
    /// has lasted.
    pub(crate) fn look(&mut self, now: Millis, leaders: Result<Vec<usize>, String>) -> Result<bool, String> {
        match leaders {
            Ok(leaders) => {
                let since = match &self.settled_since {
                    Some((since, known)) if *known == leaders => *since,
                    _ => now,
                };
                self.settled_since = Some((since, leaders));
                Ok(now - since >= STAYS)
            }
            Err(why) => {
                self.settled_since = None;
                self.check(now, &why)?;
                Ok(false)
            }
        }
    }

    fn check(&self, now: Millis, why: &str) -> Verdict {
        if now - self.since <= self.bound {
            return Ok(());
        }
        Err(format!("one leader in the end: not within {} ms after the last fault: {why}", now - self.since))
    }
}
