//! A limit of the bytes that pass in a second.

use std::time::{Duration, Instant};

use crate::config::Size;

/// What may pass at once, as the time in which the limit allows it.
const BURST: Duration = Duration::from_secs(10);

/// A limit that is exceeded again sooner is not reported as news.
const QUIET: Duration = Duration::from_secs(60);

/// Lines that were dropped by a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) lines: u64,
    pub(super) bytes: u64,
}

/// What a line does to a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It passes. What was dropped before, if the rate has been below the limit for as long as a burst lasts.
    Passes(Option<Excess>),
    /// It is dropped; whether it is the first one, or the first after a minute.
    Dropped(bool),
}

/// A bucket that the limit fills and lines empty.
#[derive(Debug)]
pub(super) struct Limit {
    bytes: Size,
    left: f64,
    at: Instant,
    excess: Option<Excess>,
    reported: Option<Instant>,
}

impl Limit {
    pub(super) fn new(bytes: Size, now: Instant) -> Self {
        let mut limit = Self { bytes, left: 0.0, at: now, excess: None, reported: None };
        limit.left = limit.most();
        limit
    }

    pub(super) fn bytes(&self) -> Size {
        self.bytes
    }

    /// Whether lines are being dropped.
    pub(super) fn is_over(&self) -> bool {
        self.excess.is_some()
    }

    fn most(&self) -> f64 {
        self.rate() * BURST.as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "a limit needs no more digits")]
    fn rate(&self) -> f64 {
        self.bytes.0 as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "a line is short")]
    pub(super) fn take(&mut self, line: usize, now: Instant) -> Passage {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.rate()).min(self.most());
        self.at = now;
        let is_full = self.left >= self.most();
        let needed = line as f64 + 1.0;
        // While lines are dropped, single ones that fit would only be fragments.
        if self.excess.is_some() && !is_full || self.left < needed {
            let is_known = |at: Instant| now.saturating_duration_since(at) < QUIET;
            let is_first = self.excess.is_none() && !self.reported.is_some_and(is_known);
            self.reported = Some(now);
            let excess = self.excess.get_or_insert_default();
            excess.lines += 1;
            excess.bytes += line as u64 + 1;
            return Passage::Dropped(is_first);
        }
        self.left -= needed;
        Passage::Passes(self.excess.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_is_above_the_limit_is_counted() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut limit = Limit::new(Size(100), start);
        // Ten lines of 100 bytes at once, and one more.
        assert!((0..10).all(|_| limit.take(99, at(0)) == Passage::Passes(None)));
        assert_eq!(limit.take(99, at(0)), Passage::Dropped(true));
        assert_eq!(limit.take(99, at(5_000)), Passage::Dropped(false));
        // The bucket is full again.
        let excess = Excess { lines: 2, bytes: 200 };
        assert_eq!(limit.take(99, at(10_000)), Passage::Passes(Some(excess)));
        assert!(!limit.is_over());
        // At the limit nothing is dropped.
        assert!((11..100).all(|s| limit.take(99, at(s * 1000)) == Passage::Passes(None)));
    }
}
