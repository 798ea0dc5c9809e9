use std::{collections::BTreeMap, time::Duration};

use strategies::meter::Publishing;

use super::{http::HostPort, reader::Section};

/// `[probes]`: the measurement of round trips, where a policy uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbesConfig {
    /// The time between two measurements.
    pub interval: Duration,
    /// The timeout of each.
    pub timeout: Duration,
    /// When a measurement is published.
    pub publishing: Publishing,
    /// Targets other than members and ZooKeeper, by name.
    pub targets: BTreeMap<String, ProbeTarget>,
}

/// Something that a round trip is measured to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// By an HTTP request to this address.
    Http(String),
    /// By a TCP connection to this address.
    Tcp(HostPort),
}

impl Default for ProbesConfig {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        let publishing = Publishing::default();
        Self { interval: second, timeout: second, publishing, targets: BTreeMap::new() }
    }
}

/// More frequent probes are load without information.
const SHORTEST: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);

impl ProbesConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let base = Self::default();
        let interval = section.duration("interval", base.interval, SHORTEST..=HOUR);
        let timeout = section.duration("timeout", base.timeout, SHORTEST..=HOUR);
        let publishing = section.table("publish", |section| {
            let base = base.publishing;
            let change =
                section.duration("change", Duration::from_micros(base.micros.into()), Duration::ZERO..=HOUR);
            Publishing {
                percent: section.or("percent", base.percent),
                micros: u32::try_from(change.as_micros()).unwrap_or(u32::MAX),
                every: section.duration("every", base.every, SHORTEST..=HOUR),
                ..base
            }
        });
        let targets = section.table("targets", |section| {
            section.each_table(|name, section| Some((name.to_owned(), read_target(section)?)))
        });
        Self { interval, timeout, publishing, targets: targets.into_iter().flatten().collect() }
    }
}

fn read_target(section: &mut Section<'_>) -> Option<ProbeTarget> {
    // A key without a default is shown only if it is set.
    let mut url = None;
    let mut address = None;
    match section.has("url") {
        true => url = section.optional::<String>("url"),
        false => section.know("url"),
    }
    match section.has("address") {
        true => address = section.optional::<HostPort>("address"),
        false => section.know("address"),
    }
    match (section.has("url"), section.has("address")) {
        (true, true) => {
            section.problem_here("it has both url and address; leave one of the two out");
            None
        }
        (false, false) => {
            section.problem_here(
                "the address of the target is missing: url = \"http://host:port/path\" or address = \"host:port\"",
            );
            None
        }
        (true, false) => {
            let url = url?;
            match reqwest::Url::parse(&url) {
                Ok(parsed) if parsed.scheme() == "http" => Some(ProbeTarget::Http(url)),
                Ok(parsed) => {
                    let scheme = parsed.scheme();
                    section.problem("url", format!("{scheme} is not supported, only http; address = \"host:port\" measures a connection"));
                    None
                }
                Err(error) => {
                    section.problem("url", format!("{url:?} is not a URL: {error}"));
                    None
                }
            }
        }
        (false, true) => {
            let address = address?;
            if address.port == 0 {
                section.problem("address", "port 0 cannot be reached; 1 to 65535 is valid");
                return None;
            }
            Some(ProbeTarget::Tcp(address))
        }
    }
}
