//! The servers' clock, which can be stopped and put forward.

use std::time::Duration;

use crate::times::FAR;

#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What it showed at `since`.
    shown: Duration,
    since: Duration,
    stopped: bool,
}

impl Clock {
    pub(super) fn read(&self, now: Duration) -> Duration {
        if self.stopped { self.shown } else { self.shown + now.saturating_sub(self.since) }
    }

    pub(super) fn stop(&mut self, now: Duration, stop: bool) {
        self.shown = self.read(now);
        self.since = now;
        self.stopped = stop;
    }

    pub(super) fn put_forward(&mut self, now: Duration, by: Duration) {
        self.shown = self.read(now) + by.min(FAR);
        self.since = now;
    }

    /// When it will show that; `None` while it is stopped.
    pub(super) fn when(&self, shows: Duration) -> Option<Duration> {
        (!self.stopped).then(|| self.since + shows.saturating_sub(self.shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_stops_and_goes_on() {
        let mut clock = Clock::default();
        assert_eq!(clock.read(s(3)), s(3));
        clock.stop(s(3), true);
        assert_eq!(clock.read(s(9)), s(3));
        assert_eq!(clock.when(s(4)), None);
        clock.put_forward(s(9), s(10));
        assert_eq!(clock.read(s(9)), s(13));
        clock.stop(s(20), false);
        assert_eq!(clock.read(s(21)), s(14));
        assert_eq!(clock.when(s(15)), Some(s(22)));
        clock.put_forward(s(22), Duration::MAX);
        clock.put_forward(s(22), Duration::MAX);
        assert_eq!(clock.read(s(23)), FAR * 2 + s(16));
        assert_eq!(clock.when(FAR * 2 + s(18)), Some(s(25)));
    }
}
