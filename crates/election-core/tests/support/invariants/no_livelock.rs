//! Nobody runs in circles: a bounded number of operations per second of virtual
//! time, and never a wake-up that lies in the past.
//!
//! The failures: millions of znodes in two hours after a reset race
//! (apache/curator#1024, #1160), a thousand defeats per second (marathon #2557).

use std::collections::VecDeque;

use super::Verdict;
use crate::zookeeper::Millis;

/// The most operations of one member within a second: a whole takeover with its
/// registration takes about thirty.
const LIMIT: usize = 120;

/// When a member's last operations were.
#[derive(Debug, Default)]
pub(crate) struct Pace(VecDeque<Millis>);

impl Pace {
    pub(crate) fn operation(&mut self, now: Millis, host: usize) -> Verdict {
        while self.0.front().is_some_and(|at| *at + 1000 < now) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        if self.0.len() > LIMIT {
            return Err(format!(
                "no livelock: host {host} asked for {} operations in a second",
                self.0.len()
            ));
        }
        Ok(())
    }
}
