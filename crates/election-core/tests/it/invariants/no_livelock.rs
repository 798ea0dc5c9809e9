//! There are no endless loops: a bounded number of operations per second of virtual time, and never a wake-up in the
//! past.
//!
//! The failures: millions of znodes in two hours after a reset race
//! (apache/curator#1024, #1160), a thousand defeats per second (marathon #2557).

use std::collections::VecDeque;

use super::Verdict;
use crate::zookeeper::Millis;

/// The most steps of one member within a second: a whole takeover with its registration takes about thirty
/// operations.
const STEPS: usize = 30;

/// A step of an elector that can't be taken back reads the decision, the members and each slot's leader znode before,
/// so what a member may ask for grows with the slots.
fn limit(slots: usize) -> usize {
    STEPS * (slots + 3)
}

/// When a member's last operations were, and how many slots it knew of then: of fewer in a new session at first.
#[derive(Debug, Default)]
pub(crate) struct Pace(VecDeque<(Millis, usize)>);

impl Pace {
    pub(crate) fn operation(&mut self, now: Millis, host: usize, slots: usize) -> Verdict {
        while self.0.front().is_some_and(|(at, _)| *at + 1000 < now) {
            self.0.pop_front();
        }
        self.0.push_back((now, slots));
        let most = self.0.iter().map(|(_, slots)| *slots).max().unwrap_or(slots);
        if self.0.len() > limit(most) {
            return Err(format!(
                "no livelock: host {host} asked for {} operations in a second",
                self.0.len()
            ));
        }
        Ok(())
    }
}
