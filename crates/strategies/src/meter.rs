//! Round trips, from single measurements to published values.

use std::{collections::BTreeMap, time::Duration};

/// When a measurement is published. Each publication is a write that every elector reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// The published value must be wrong by more than this percentage of it, ...
    pub percent: u32,
    /// ... and by more than this number of microseconds.
    pub micros: u32,
    /// The shortest time between two publications: `n` members write at most `n` times in it.
    pub every: Duration,
    /// A peer that misses this number of probes in a row is out of reach.
    pub misses: u32,
}

impl Publishing {
    /// 20 % and 500 µs, at most every 10 s; three missed probes.
    pub const USUAL: Self = Self { percent: 20, micros: 500, every: Duration::from_secs(10), misses: 3 };
}

impl Default for Publishing {
    fn default() -> Self {
        Self::USUAL
    }
}

/// Smooths round trips to peers, and decides when to publish them. It has no clock: the caller passes the time since
/// any fixed start.
#[derive(Clone, Debug)]
pub struct Meter<K> {
    publishing: Publishing,
    measured: BTreeMap<K, Measured>,
    published: BTreeMap<K, u32>,
    last: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    /// In eighths of a microsecond, so that small changes add up.
    eighths: u64,
    misses: u32,
}

impl Measured {
    fn took(&mut self, micros: u32) {
        self.eighths = self.eighths - self.eighths / 8 + u64::from(micros);
    }
}

impl<K: Ord + Clone> Meter<K> {
    /// A meter without measurements.
    pub fn new(publishing: Publishing) -> Self {
        Self { publishing, measured: BTreeMap::new(), published: BTreeMap::new(), last: None }
    }

    /// This peer answered after this number of microseconds. A new value counts for an eighth, as in the timeouts of
    /// TCP (RFC 6298); the first one in full.
    pub fn answered(&mut self, whom: K, micros: u32) {
        let entry = self.measured.entry(whom).and_modify(|measured| measured.took(micros));
        entry.or_insert(Measured { eighths: 8 * u64::from(micros), misses: 0 }).misses = 0;
    }

    /// This peer did not answer within this number of microseconds. It counts as an answer after that time, so that a
    /// link that loses every other packet is no better than a slow one.
    pub fn missed(&mut self, whom: &K, micros: u32) {
        let most = self.publishing.misses.max(1);
        // A peer that is out of reach gets no worse with time.
        if let Some(measured) = self.measured.get_mut(whom).filter(|measured| measured.misses < most) {
            measured.took(micros);
            measured.misses += 1;
        }
    }

    /// Forgets the peers for which `lives` is false.
    pub fn retain(&mut self, mut lives: impl FnMut(&K) -> bool) {
        self.measured.retain(|whom, _| lives(whom));
    }

    /// The smoothed round trips of all peers in reach, in microseconds.
    pub fn smoothed(&self) -> BTreeMap<K, u32> {
        let most = self.publishing.misses.max(1);
        let reached = self.measured.iter().filter(|(_, measured)| measured.misses < most);
        let micros = |measured: &Measured| u32::try_from((measured.eighths + 4) / 8).ok();
        reached.filter_map(|(whom, m)| Some((whom.clone(), micros(m)?))).collect()
    }

    /// The values to publish at the time `now`, if they differ enough. They count as published from then on.
    pub fn publish(&mut self, now: Duration) -> Option<BTreeMap<K, u32>> {
        let soon = self.last.is_some_and(|last| now.saturating_sub(last) < self.publishing.every);
        let smoothed = self.smoothed();
        if soon || !self.is_news(&smoothed) {
            return None;
        }
        self.last = Some(now);
        self.published.clone_from(&smoothed);
        Some(smoothed)
    }

    /// The earliest time at which [`publish`](Self::publish) can return values.
    pub fn next(&self) -> Option<Duration> {
        self.last.map(|last| last.saturating_add(self.publishing.every))
    }

    fn is_news(&self, smoothed: &BTreeMap<K, u32>) -> bool {
        let differs = |(whom, micros): (&K, &u32)| match self.published.get(whom) {
            None => true,
            Some(published) => {
                let change = u64::from(micros.abs_diff(*published));
                let share = u64::from(*published) * u64::from(self.publishing.percent) / 100;
                change > share && change > u64::from(self.publishing.micros)
            }
        };
        smoothed.iter().any(differs) || self.published.keys().any(|whom| !smoothed.contains_key(whom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn meter() -> Meter<&'static str> {
        Meter::new(Publishing::default())
    }

    #[test]
    fn a_value_that_stays_is_published_once() {
        let mut meter = meter();
        let mut published = Vec::new();
        for second in 0..600 {
            // It wavers by a tenth.
            meter.answered("a", if second % 2 == 0 { 9_000 } else { 10_000 });
            published.extend(meter.publish(SECOND * second));
        }
        assert_eq!(published, [BTreeMap::from([("a", 9_000)])]);
    }

    #[test]
    fn a_value_that_changes_is_followed_and_no_faster_than_it_may_be() {
        let mut meter = meter();
        let mut times = Vec::new();
        for second in 0..600 {
            meter.answered("a", if second < 300 { 1_000 } else { 40_000 });
            if meter.publish(SECOND * second).is_some() {
                times.push(second);
            }
        }
        assert_eq!(times[0], 0);
        assert!(times[1] == 300 && times.len() <= 5, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{times:?}");
        let known = meter.smoothed()["a"];
        assert!((39_900..=40_000).contains(&known), "{known}");
    }

    #[test]
    fn noise_without_end_is_written_at_most_every_so_often() {
        let mut meter = meter();
        let publications = (0..600_u32).filter(|second| {
            let noise = second.wrapping_mul(2_654_435_761) >> 12;
            meter.answered("a", noise);
            meter.publish(SECOND * *second).is_some()
        });
        let publications = publications.count();
        assert!((2..=60).contains(&publications), "{publications} in ten minutes");
    }

    #[test]
    fn who_does_not_answer_is_gone_after_some_misses_and_back_with_the_first_answer() {
        let mut meter = meter();
        meter.answered("a", 1_000);
        meter.answered("b", 2_000);
        assert!(meter.publish(SECOND).is_some());
        meter.missed(&"a", 1_000);
        meter.missed(&"a", 1_000);
        assert_eq!(meter.publish(SECOND * 20), None);
        meter.missed(&"a", 1_000);
        assert_eq!(meter.publish(SECOND * 20), Some(BTreeMap::from([("b", 2_000)])));
        meter.answered("a", 9_000);
        assert_eq!(meter.publish(SECOND * 21), None, "not yet");
        assert_eq!(meter.next(), Some(SECOND * 30));
        assert_eq!(meter.publish(SECOND * 30), Some(BTreeMap::from([("a", 2_000), ("b", 2_000)])));
    }

    #[test]
    fn what_is_published_once_at_most_is_never_published_again() {
        let mut meter = Meter::new(Publishing { every: Duration::MAX, ..Publishing::default() });
        meter.answered("a", 1_000);
        assert!(meter.publish(SECOND).is_some());
        assert_eq!(meter.next(), Some(Duration::MAX));
    }

    #[test]
    fn who_has_left_is_not_published_any_more() {
        let mut meter = meter();
        meter.answered("a", 1_000);
        meter.answered("b", 2_000);
        assert!(meter.publish(SECOND).is_some());
        meter.retain(|whom| *whom == "b");
        assert_eq!(meter.publish(SECOND * 20), Some(BTreeMap::from([("b", 2_000)])));
        meter.missed(&"nobody", 1_000);
        assert_eq!(meter.publish(SECOND * 40), None);
    }

    #[test]
    fn who_answers_at_times_only_is_slow() {
        let mut meter = meter();
        for second in 0..600_u32 {
            // Three of five are lost.
            match second.wrapping_mul(2_654_435_761) >> 16 & 0xff {
                noise if noise < 102 => meter.answered("a", 1_000),
                _ => meter.missed(&"a", 1_000_000),
            }
        }
        let known = meter.smoothed().get("a").copied();
        assert!(known.is_none_or(|micros| micros > 250_000), "{known:?}");
    }

    #[test]
    fn small_changes_add_up() {
        let mut meter = meter();
        meter.answered("a", 0);
        for _ in 0..200 {
            meter.answered("a", 5);
        }
        assert_eq!(meter.smoothed()["a"], 5);
    }
}
