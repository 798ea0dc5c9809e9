//! Pauses between attempts: exponential, with full jitter, so that many clients do not return at the same time.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    /// How many pauses there have been.
    pub(crate) attempts: u32,
}

impl Backoff {
    pub(crate) const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, attempts: 0 }
    }

    /// The next pause: anything from nothing to the bound, which doubles each time up to the maximum.
    pub(crate) fn next(&mut self) -> Duration {
        let bound = self.bound();
        self.attempts = self.attempts.saturating_add(1);
        bound.mul_f64(fastrand::f64())
    }

    fn bound(&self) -> Duration {
        self.base.saturating_mul(2u32.saturating_pow(self.attempts)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
        for bound in [10, 20, 40, 50, 50] {
            assert_eq!(backoff.bound(), Duration::from_millis(bound));
            assert!(backoff.next() <= Duration::from_millis(bound));
        }
        assert_eq!(backoff.attempts, 5);
    }
    /// Full jitter: each part of what lies between nothing and the bound comes about as often as any other.
    #[test]
    fn the_pauses_are_spread_over_all_of_the_bound() {
        const DRAWS: usize = 10_000;
        let bound = Duration::from_secs(1);
        let mut tenths = [0usize; 10];
        for _ in 0..DRAWS {
            let pause = Backoff::new(bound, bound).next();
            tenths[((pause.as_secs_f64() * 10.0) as usize).min(9)] += 1;
        }
        // A thousand are expected in each, with a deviation of thirty.
        assert!(tenths.iter().all(|count| (800..1200).contains(count)), "{tenths:?}");
    }
}
