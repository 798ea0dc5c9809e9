//! When faults stop and a member is electable, exactly one becomes READY in each
//! slot that there are members for, and they stay.
//!
//! Rests on watches that are re-armed, the watchdog and the succession. The
//! failures: four contenders and no leader for two days (python-zk/kazoo#116),
//! contenders that re-create around each other for ever (apache/curator#1161).

use super::Verdict;
use crate::zookeeper::Millis;

/// How long one leader must stay until the election counts as stable.
const REST: Millis = 4000;

/// Waits for one leader.
#[derive(Debug)]
pub(crate) struct Calm {
    /// The election must be stable by then.
    rests_by: Millis,
    /// From then on leadership must not move, not even to a better candidate.
    stays_from: Millis,
    /// How long the same must lead for the run to count as settled.
    stays: Millis,
    rested: bool,
    settled_since: Option<(Millis, Vec<usize>)>,
}

impl Calm {
    pub(crate) fn new(rests_by: Millis, stays_from: Millis, stays: Millis) -> Self {
        Self { rests_by, stays_from, stays, rested: false, settled_since: None }
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
                if since == now {
                    self.check(now, "the leaders have changed")?;
                }
                self.rested |= now - since >= REST;
                Ok(now - since >= self.stays)
            }
            Err(why) => {
                self.settled_since = None;
                self.check(now, &why)?;
                Ok(false)
            }
        }
    }

    fn check(&self, now: Millis, why: &str) -> Verdict {
        let (limit, what) =
            if self.rested { (self.stays_from, "still moving") } else { (self.rests_by, "no rest") };
        if now <= limit {
            return Ok(());
        }
        Err(format!("one leader in the end: {what} {} ms after it was due: {why}", now - limit))
    }
}
