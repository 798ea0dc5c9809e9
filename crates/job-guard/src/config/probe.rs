//! One probe: what is tried, how often, and for how long.

use std::time::Duration;

/// How a job's readiness is probed.
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
    /// The pause between two tries, and the timeout of one; `None` without tries.
    pub fn pace(&self) -> Option<(Duration, Duration)> {
        match self {
            ReadyProbe::None { .. } | ReadyProbe::Notify => None,
            ReadyProbe::Exec { interval, timeout, .. }
            | ReadyProbe::Http { interval, timeout, .. }
            | ReadyProbe::Tcp { interval, timeout, .. } => Some((*interval, *timeout)),
        }
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
    /// The pause between the beginnings of two tries.
    pub fn interval(&self) -> Duration {
        self.probe.pace().map_or(Duration::MAX, |(interval, _)| interval)
    }
}
