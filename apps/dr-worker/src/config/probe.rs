//! One probe: what is tried, how often, and for how long.

use std::time::Duration;

use super::{parse::choice, reader::Section, spec::ReadyProbe};

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);

choice! {
    /// The kind of a probe.
    enum ReadyKind {
        /// No probe; ready after a while.
        None = "none",
        /// By a program.
        Exec = "exec",
        /// By an HTTP request.
        Http = "http",
        /// By a TCP connection.
        Tcp = "tcp",
        /// By a notification of the job.
        Notify = "notify",
    }
    later: []
}

/// A purpose of a probe, and its default pace.
pub(super) struct Tried {
    /// What a success means, such as `that the job is ready`.
    pub(super) says: &'static str,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

pub(super) const READY: Tried = Tried {
    says: "that the job is ready",
    interval: Duration::from_millis(500),
    timeout: Duration::from_secs(2),
};

/// Reads a probe; `none` reads the rest of a section without one.
pub(super) fn read_probe(
    section: &mut Section<'_>,
    tried: &Tried,
    none: impl FnOnce(&mut Section<'_>) -> ReadyProbe,
) -> Option<ReadyProbe> {
    let says = tried.says;
    let pace = |section: &mut Section<'_>| {
        let interval = section.duration("interval", tried.interval, MILLISECOND..=HOUR);
        let timeout = section.duration("timeout", tried.timeout, MILLISECOND..=HOUR);
        (interval, timeout)
    };
    match section.or("kind", ReadyKind::None) {
        ReadyKind::None => Some(none(section)),
        ReadyKind::Notify => Some(ReadyProbe::Notify),
        ReadyKind::Exec => {
            let command = section.required("command", &format!("the program whose exit code 0 says {says}"));
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Exec { command: command?, interval, timeout })
        }
        ReadyKind::Http => {
            let url = section.required(
                "url",
                &format!("where an answer with 2xx says {says}, such as \"http://127.0.0.1:8080/health\""),
            );
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Http { url: url?, interval, timeout })
        }
        ReadyKind::Tcp => {
            let address = section
                .required("address", &format!("the host:port where an accepted connection says {says}"));
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Tcp { address: address?, interval, timeout })
        }
    }
}
