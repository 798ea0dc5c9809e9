use std::{collections::BTreeMap, time::Duration};

use strategies::meter::Publishing;

use super::{
    http::HostPort,
    parse::{HOUR, SECOND},
    reader::Section,
    table::{nested_as, optional, table, tables, value},
};

table! {
    /// `[probes]`: the measurement of round trips, where a policy uses them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ProbesConfig {
        /// Time between two probes. After three missed probes in a row a target counts as unreachable.
        pub interval: Duration = SECOND => value().within(SHORTEST..=HOUR);
        /// Timeout of each.
        pub timeout: Duration = SECOND => value().within(SHORTEST..=HOUR);
        /// When a smoothed measurement is published: changed by more than this percentage and this much, and not more often
        /// than this. With these values ten members of a job write once a second at most.
        pub publishing as publish: Publishing = Publishing::default() => nested_as(PublishKeys::default());
        /// Targets of the stage "latency", by name: time of a TCP connection, or of a request on a new connection.
        pub targets: BTreeMap<String, ProbeTarget> = BTreeMap::new() => tables(TargetKeys::default()).name("db");
    }
}

table! {
    #[derive(Clone)]
    struct PublishKeys {
        /// By more than this percentage of it, ...
        percent: u32 = Publishing::USUAL.percent => value();
        /// ... by more than this, ...
        change: Duration = Duration::from_micros(Publishing::USUAL.micros.into()) => value().within(Duration::ZERO..=HOUR);
        /// ... and not more often than this.
        every: Duration = Publishing::USUAL.every => value().within(SHORTEST..=HOUR);
    }
}

impl From<PublishKeys> for Publishing {
    fn from(PublishKeys { percent, change, every }: PublishKeys) -> Self {
        let micros = u32::try_from(change.as_micros()).unwrap_or(u32::MAX);
        Self { percent, micros, every, ..Self::USUAL }
    }
}

table! {
    #[derive(Clone)]
    struct TargetKeys {
        /// The address of a request; only http.
        url: Option<String> = None => optional().check(|url: &String| wrong_url(url));
        /// The host:port of a connection.
        address: Option<HostPort> = None => optional().example("\"10.0.0.9:5432\"").check(|address: &HostPort| {
            (address.port == 0).then(|| "port 0 cannot be reached; 1 to 65535 is valid".to_owned())
        });
    }
    check TargetKeys::check;
}

/// Something that a round trip is measured to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// By an HTTP request to this address.
    Http(String),
    /// By a TCP connection to this address.
    Tcp(HostPort),
}

/// More frequent probes are load without information.
const SHORTEST: Duration = Duration::from_millis(10);

fn wrong_url(url: &str) -> Option<String> {
    match reqwest::Url::parse(url) {
        Ok(parsed) if parsed.scheme() == "http" => None,
        Ok(parsed) => {
            let scheme = parsed.scheme();
            Some(format!(
                "{scheme} is not supported, only http; address = \"host:port\" measures a connection"
            ))
        }
        Err(error) => Some(format!("{url:?} is not a URL: {error}")),
    }
}

impl TargetKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        match (section.has("url"), section.has("address")) {
            (true, true) => section.problem_here("it has both url and address; leave one of the two out"),
            (false, false) => section.problem_here(
                "the address of the target is missing: url = \"http://host:port/path\" or address = \"host:port\"",
            ),
            _ => {}
        }
    }
}

impl From<TargetKeys> for Option<ProbeTarget> {
    fn from(TargetKeys { url, address }: TargetKeys) -> Self {
        url.map(ProbeTarget::Http).or(address.map(ProbeTarget::Tcp))
    }
}
