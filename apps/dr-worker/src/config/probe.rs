//! One probe: what is tried, how often, and for how long.

use std::time::Duration;

use job_guard::ReadyProbe;

use super::{
    parse::{HOUR, MILLISECOND, SECOND, choice},
    table::{flat, required, table, value},
};

choice! {
    /// The kind of a probe.
    pub(super) enum ProbeKind {
        None = "none",
        Exec = "exec",
        Http = "http",
        Tcp = "tcp",
        Notify = "notify",
    }
}

table! {
    /// The keys of a probe.
    #[derive(Clone, Debug, PartialEq)]
    pub(super) struct ProbeKeys {
        /// Kind of check: "none", "exec", "http", "tcp" or "notify" (READY=1 as for sd_notify; only for `ready`).
        pub(super) kind: ProbeKind = ProbeKind::None => value();
        /// The program whose exit code 0 is a success, and its arguments.
        pub(super) command: Vec<String> = Vec::new() => required("the program whose exit code 0 shows {}").only(&["exec"]);
        /// The address where an answer with 2xx is a success.
        pub(super) url: String = String::new() => required(
            "where an answer with 2xx shows {}, such as \"http://127.0.0.1:8080/health\""
        ).only(&["http"]);
        /// The host:port where an accepted connection is a success.
        pub(super) address: String = String::new() => required(
            "the host:port where an accepted connection shows {}"
        ).only(&["tcp"]);
        /// The longest pause between two attempts: the first one is 10ms.
        pub(super) interval: Duration = 500 * MILLISECOND => value().within(MILLISECOND..=HOUR).only(&["exec", "http", "tcp"]);
        /// How long an attempt may take before it counts as failed.
        pub(super) timeout: Duration = 2 * SECOND => value().within(MILLISECOND..=HOUR).only(&["exec", "http", "tcp"]);
    }
}

table! {
    /// `ready` of a job.
    #[derive(Clone)]
    pub(super) struct ReadyKeys {
        probe: ProbeKeys = ProbeKeys::default() => flat();
        /// The job is ready when it has run for this long.
        after: Duration = SECOND => value().within(Duration::ZERO..=HOUR).only(&["none"]);
    }
}

impl From<ReadyKeys> for ReadyProbe {
    fn from(ReadyKeys { probe, after }: ReadyKeys) -> Self {
        probe.with(after)
    }
}

/// Nothing, unless it is tried again and again.
impl From<ProbeKeys> for Option<ReadyProbe> {
    fn from(keys: ProbeKeys) -> Self {
        Some(keys.with(Duration::ZERO)).filter(|probe| probe.pace().is_some())
    }
}

impl ProbeKeys {
    fn with(self, after: Duration) -> ReadyProbe {
        let Self { kind, command, url, address, interval, timeout } = self;
        match kind {
            ProbeKind::None => ReadyProbe::None { after },
            ProbeKind::Notify => ReadyProbe::Notify,
            ProbeKind::Exec => ReadyProbe::Exec { command, interval, timeout },
            ProbeKind::Http => ReadyProbe::Http { url, interval, timeout },
            ProbeKind::Tcp => ReadyProbe::Tcp { address, interval, timeout },
        }
    }
}
