//! How long a server usually takes to answer a heartbeat, and when it takes suspiciously long.

use std::time::Duration;

/// A server is suspected after that many usual round trips without an answer.
const PATIENCE: u32 = 8;

/// The estimate of TCP (RFC 6298): a smoothed round trip and its smoothed deviation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    smoothed: Duration,
    deviation: Duration,
    known: bool,
}

impl Pace {
    pub(super) fn measured(&mut self, took: Duration) {
        if self.known {
            let off = self.smoothed.abs_diff(took);
            self.deviation = (self.deviation * 3 + off) / 4;
            self.smoothed = (self.smoothed * 7 + took) / 8;
        } else {
            *self = Self { smoothed: took, deviation: took / 2, known: true };
        }
    }

    /// How long a heartbeat may stay unanswered before the server is suspected: no less than a twentieth of the session
    /// timeout, because shorter delays are harmless, and no more than a fifth, which is also the value before the first
    /// measurement.
    pub(super) fn suspicious_after(&self, session_timeout: Duration) -> Duration {
        let most = session_timeout / 5;
        if !self.known {
            return most;
        }
        let usual = self.smoothed + self.deviation * 4;
        (usual * PATIENCE / 2).clamp((session_timeout / 20).min(most), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn a_steady_server_is_suspected_soon_and_a_slow_one_late() {
        let mut pace = Pace::default();
        assert_eq!(pace.suspicious_after(TIMEOUT), TIMEOUT / 5);
        for _ in 0..100 {
            pace.measured(Duration::from_millis(2));
        }
        assert_eq!(pace.suspicious_after(TIMEOUT), TIMEOUT / 20);
        for _ in 0..100 {
            pace.measured(Duration::from_millis(300));
        }
        let slow = pace.suspicious_after(TIMEOUT);
        assert!(slow > Duration::from_secs(1), "{slow:?}");
        for n in 0..100 {
            pace.measured(Duration::from_millis(if n % 2 == 0 { 10 } else { 400 }));
        }
        assert!(pace.suspicious_after(TIMEOUT) > Duration::from_millis(1200), "it varies");
        assert!(pace.suspicious_after(TIMEOUT) <= TIMEOUT / 5);
    }
}
