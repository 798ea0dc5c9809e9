//! How often a server is asked whether it answers, how long it usually takes, and when it takes suspiciously long.
//!
//! Answers that wait for a quorum are timed apart from those that a server gives alone. A server answers a session's
//! requests in order. So a ping behind a write waits for a quorum too, and a slow disk of another server is no reason to
//! leave this one.

use std::time::Duration;

/// A server is suspected after that many usual round trips without an answer.
const PATIENCE: u32 = 8;

/// The pings that may be unanswered at a time, where the server must be suspected soon. If the packet of one is lost, the
/// next one shows it: TCP repeats the first within a round trip, and not after its timer.
const PINGS: usize = 4;

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// The server alone.
    Server,
    /// A quorum.
    Quorum,
}

/// A request that checks whether the server answers: a ping, or a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) sent: Duration,
    pub(super) waits_for: WaitsFor,
}

/// The pace of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    session_timeout: Duration,
    suspect_after: Option<Duration>,
    server: Estimate,
    quorum: Estimate,
}

impl Pace {
    pub(super) fn new(session_timeout: Duration, suspect_after: Option<Duration>) -> Self {
        let (server, quorum) = (Estimate::default(), Estimate::default());
        Self { session_timeout, suspect_after, server, quorum }
    }

    /// How often a session that sends nothing is kept alive.
    pub(super) fn ping_interval(&self) -> Duration {
        self.session_timeout / 10
    }

    /// How long nothing may arrive before the server is checked, while that many pings are unanswered.
    pub(super) fn check_interval(&self, unanswered: usize) -> Option<Duration> {
        self.suspect_after.filter(|_| unanswered < PINGS).map(|after| after / 4)
    }

    pub(super) fn answered(&mut self, check: Check, now: Duration) {
        let took = now.saturating_sub(check.sent);
        match check.waits_for {
            WaitsFor::Server => self.server.measured(took),
            WaitsFor::Quorum => self.quorum.measured(took),
        }
    }

    /// When the server is suspected if that check is not answered by then.
    pub(super) fn suspicious_at(&self, check: Check) -> Duration {
        check.sent + self.patience(check.waits_for)
    }

    /// How long a check may stay unanswered: no less than a twentieth of the session timeout, because shorter delays are
    /// harmless, and no more than a quarter, which is also the value before the first measurement: a server that is usually
    /// slower than this is left only where nothing arrives for three tenths.
    ///
    /// With `suspect_after` no more than five eighths of that for what the server answers alone: a quarter passes before it
    /// is checked, and an eighth is left for the pause before another server is asked. Only a server that is usually so slow
    /// has longer.
    fn patience(&self, waits_for: WaitsFor) -> Duration {
        let most = self.session_timeout / 4;
        let least = self.session_timeout / 20;
        match (waits_for, self.suspect_after) {
            (WaitsFor::Server, Some(after)) => {
                let soon = most.min(after * 5 / 8);
                let usual = self.server.usual();
                self.server.patience(least.min(soon), soon).max(usual * 3 / 2).min(most)
            }
            (WaitsFor::Server, None) => self.server.patience(least, most),
            (WaitsFor::Quorum, _) => self.quorum.patience(least, most),
        }
    }
}

/// The estimate of TCP (RFC 6298): a smoothed round trip and its smoothed deviation.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    smoothed: Duration,
    deviation: Duration,
    known: bool,
}

impl Estimate {
    fn measured(&mut self, took: Duration) {
        if self.known {
            let off = self.smoothed.abs_diff(took);
            self.deviation = (self.deviation * 3 + off) / 4;
            self.smoothed = (self.smoothed * 7 + took) / 8;
        } else {
            *self = Self { smoothed: took, deviation: took / 2, known: true };
        }
    }

    /// Few answers take longer.
    fn usual(&self) -> Duration {
        self.smoothed + self.deviation * 4
    }

    fn patience(&self, least: Duration, most: Duration) -> Duration {
        if self.known { (self.usual() * PATIENCE / 2).clamp(least, most) } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const SOON: Duration = Duration::from_millis(300);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn measured(pace: &mut Pace, waits_for: WaitsFor, times: impl IntoIterator<Item = u64>) {
        times.into_iter().for_each(|took| pace.answered(Check { sent: ms(0), waits_for }, ms(took)));
    }

    #[test]
    fn a_steady_server_is_suspected_soon_and_a_slow_one_late() {
        for waits_for in [WaitsFor::Server, WaitsFor::Quorum] {
            let mut pace = Pace::new(TIMEOUT, None);
            assert_eq!(pace.patience(waits_for), TIMEOUT / 4);
            measured(&mut pace, waits_for, [2; 100]);
            assert_eq!(pace.patience(waits_for), TIMEOUT / 20);
            measured(&mut pace, waits_for, [300; 100]);
            let slow = pace.patience(waits_for);
            assert!(slow > Duration::from_secs(1), "{slow:?}");
            measured(&mut pace, waits_for, (0..100).map(|n| if n % 2 == 0 { 10 } else { 400 }));
            assert!(pace.patience(waits_for) > ms(1200), "it varies");
            assert!(pace.patience(waits_for) <= TIMEOUT / 4);
        }
    }

    #[test]
    fn a_server_is_suspected_in_time_unless_it_is_usually_that_slow() {
        let mut pace = Pace::new(TIMEOUT, Some(SOON));
        let in_time =
            |pace: &Pace| pace.check_interval(0).unwrap() + pace.patience(WaitsFor::Server) <= SOON * 7 / 8;
        assert!(in_time(&pace), "before the first answer");
        measured(&mut pace, WaitsFor::Server, [2; 100]);
        assert!(in_time(&pace));
        // One stall is over before it is suspicious, and six answers later, within half a second, it is forgotten.
        measured(&mut pace, WaitsFor::Server, [180, 105, 30].into_iter().chain([2; 6]));
        assert!(in_time(&pace), "{pace:?}");
        // Writes wait for others.
        measured(&mut pace, WaitsFor::Quorum, [400; 20]);
        assert!(in_time(&pace) && pace.patience(WaitsFor::Quorum) > Duration::from_secs(1), "{pace:?}");
        measured(&mut pace, WaitsFor::Server, [400; 20]);
        assert!(pace.patience(WaitsFor::Server) > ms(600), "all are that slow: another server does not help");
        assert!(pace.patience(WaitsFor::Server) <= TIMEOUT / 4);
    }

    #[test]
    fn a_server_that_does_not_answer_is_not_checked_for_ever() {
        let pace = Pace::new(TIMEOUT, Some(SOON));
        assert_eq!(pace.check_interval(0), Some(SOON / 4));
        assert_eq!(pace.check_interval(PINGS), None);
        assert_eq!(Pace::new(TIMEOUT, None).check_interval(0), None);
    }
}
