//! One probe: what is tried, how often, and for how long.

use std::time::Duration;

use job_guard::ReadyProbe;

use super::{parse::Words, reader::Section};

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The kind of a probe.
#[derive(Clone, Copy, PartialEq)]
enum ProbeKind {
    None,
    Exec,
    Http,
    Tcp,
    Notify,
}

impl Words for ProbeKind {
    const WORDS: &[(&str, Self)] = &[
        ("none", Self::None),
        ("exec", Self::Exec),
        ("http", Self::Http),
        ("tcp", Self::Tcp),
        ("notify", Self::Notify),
    ];
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
    match section.or("kind", ProbeKind::None) {
        ProbeKind::None => Some(none(section)),
        ProbeKind::Notify => Some(ReadyProbe::Notify),
        ProbeKind::Exec => {
            let command = section.required("command", &format!("the program whose exit code 0 shows {says}"));
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Exec { command: command?, interval, timeout })
        }
        ProbeKind::Http => {
            let url = section.required(
                "url",
                &format!("where an answer with 2xx shows {says}, such as \"http://127.0.0.1:8080/health\""),
            );
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Http { url: url?, interval, timeout })
        }
        ProbeKind::Tcp => {
            let address = section
                .required("address", &format!("the host:port where an accepted connection shows {says}"));
            let (interval, timeout) = pace(section);
            Some(ReadyProbe::Tcp { address: address?, interval, timeout })
        }
    }
}
