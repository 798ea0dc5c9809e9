//! One probe: what is tried, how often, and for how long.

use std::time::Duration;

/// The shortest pause between two tries: without any, a processor would do nothing else.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The longest one: so much can be added to any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How a job's readiness is probed. An interval is at least 1 ms and at most a year; another one counts as the nearest of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyProbe {
    /// No probe: the job is ready when its program has run for a while.
    None {
        /// For how long; a job that ends earlier was never ready.
        after: Duration,
    },
    /// The job is ready when this command ends with exit code 0.
    Exec {
        /// The program and its arguments; environment and directory as for the job.
        command: Vec<String>,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try is killed and counts as failed.
        timeout: Duration,
    },
    /// The job is ready when a GET of this address is answered with a 2xx status.
    Http {
        /// `http://...`
        url: String,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try counts as failed.
        timeout: Duration,
    },
    /// The job is ready when this address accepts a connection.
    Tcp {
        /// `HOST:PORT`
        address: String,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try counts as failed.
        timeout: Duration,
    },
    /// The job is ready when it sends `READY=1` to the socket that `NOTIFY_SOCKET` names, as with `sd_notify`.
    Notify,
}

impl ReadyProbe {
    /// The interval and the timeout of one try, as they are configured; `None` without tries.
    pub fn pace(&self) -> Option<(Duration, Duration)> {
        match self {
            ReadyProbe::None { .. } | ReadyProbe::Notify => None,
            ReadyProbe::Exec { interval, timeout, .. }
            | ReadyProbe::Http { interval, timeout, .. }
            | ReadyProbe::Tcp { interval, timeout, .. } => Some((*interval, *timeout)),
        }
    }

    /// The pause between two tries: the longest one for a probe without tries.
    pub(crate) fn pause(&self) -> Duration {
        self.pace().map_or(LONGEST_PAUSE, |(interval, _)| interval.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }
}

/// A probe that is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The probe: `exec`, `http` or `tcp`.
    pub probe: ReadyProbe,
    /// How many failures in a row count as failing; at least 1.
    pub failures: u32,
}

impl Check {
    /// The pause between the beginnings of two tries: the longest one for a probe without tries.
    pub fn interval(&self) -> Duration {
        self.probe.pause()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn any_check_has_a_pause_that_can_be_added_to_a_time_and_does_not_spin() {
        let tcp = |interval| ReadyProbe::Tcp { address: "h:1".to_owned(), interval, timeout: interval };
        for probe in [
            ReadyProbe::Notify,
            ReadyProbe::None { after: Duration::ZERO },
            tcp(Duration::MAX),
            tcp(Duration::ZERO),
        ] {
            let interval = Check { probe, failures: 1 }.interval();
            assert!(interval >= SHORTEST_PAUSE && Instant::now().checked_add(interval).is_some());
        }
    }
}
