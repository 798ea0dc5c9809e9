//! When faults stop and a member is electable, exactly one becomes READY and stays.
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
    settled_since: Option<(Millis, usize)>,
}

impl Calm {
    pub(crate) fn new(since: Millis, bound: Millis) -> Self {
        Self { since, bound, settled_since: None }
    }

    /// `leader` is the only one and READY; answers whether that has lasted.
    pub(crate) fn look(&mut self, now: Millis, leader: Result<usize, String>) -> Result<bool, String> {
        match leader {
            Ok(leader) => {
                let since = match self.settled_since {
                    Some((since, known)) if known == leader => since,
                    _ => now,
                };
                self.settled_since = Some((since, leader));
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
