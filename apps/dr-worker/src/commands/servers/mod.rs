//! The servers of the ensemble: what they answer, and whether their quorum survives the loss of a site.

mod ask;
pub(crate) mod clock;
mod quorum;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

pub(crate) use ask::{addresses, ask};
pub(crate) use quorum::Quorum;

/// What a server has answered to one question.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerAnswer {
    pub(crate) values: BTreeMap<String, String>,
    /// Why there is none.
    pub(crate) missing: Option<String>,
}

impl ServerAnswer {
    pub(crate) fn none(why: impl Into<String>) -> Self {
        Self { values: BTreeMap::new(), missing: Some(why.into()) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.parse().ok()
    }
}

/// A clock, compared with that of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// How far it is ahead.
    pub(crate) ahead_ms: i64,
    /// How exact that is.
    pub(crate) within_ms: i64,
}

impl Clock {
    /// How far they are apart at least.
    pub(crate) fn apart(self) -> Duration {
        Duration::from_millis((self.ahead_ms.abs() - self.within_ms).max(0).unsigned_abs())
    }
}

/// A server of the ensemble.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    /// As in `zookeeper.connect`.
    pub(crate) name: String,
    pub(crate) site: Option<String>,
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// Why no connection was made.
    pub(crate) unreachable: Option<String>,
    /// `srvr`.
    pub(crate) stats: ServerAnswer,
    /// `conf`, or `configuration` of its AdminServer.
    pub(crate) settings: ServerAnswer,
    /// `mntr`, or `monitor` of its AdminServer.
    pub(crate) metrics: ServerAnswer,
    /// `system_properties` of its AdminServer.
    pub(crate) properties: ServerAnswer,
    /// By the time in its AdminServer's answer.
    pub(crate) clock: Option<Clock>,
    /// The disk of its data, if that is on this node.
    pub(crate) disk: Option<Disk>,
}

/// A file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) free: u64,
    pub(crate) size: u64,
}

impl Server {
    /// `leader`, `follower`, `observer`, `standalone` or `read-only`; `None` if it does not serve.
    pub(crate) fn role(&self) -> Option<&str> {
        self.stats.get("Mode").or_else(|| self.metrics.get("zk_server_state"))
    }

    /// Its version, without the build.
    pub(crate) fn version(&self) -> Option<&str> {
        let whole = self.stats.get("Zookeeper version").or_else(|| self.metrics.get("zk_version"))?;
        whole.split(['-', ',']).next().map(str::trim)
    }

    pub(crate) fn tick(&self) -> Option<Duration> {
        self.millis("tickTime")
    }

    pub(crate) fn millis(&self, key: &str) -> Option<Duration> {
        self.settings.get(key)?.parse().ok().map(Duration::from_millis)
    }

    /// A limit that is given in ticks.
    pub(crate) fn ticks(&self, key: &str) -> Option<Duration> {
        let count: u32 = self.settings.get(key)?.parse().ok()?;
        Some(self.tick()? * count)
    }

    /// The servers in its own list of the ensemble: whether each has a vote, by id.
    pub(crate) fn membership(&self) -> BTreeMap<&str, bool> {
        let servers = self.settings.values.iter();
        let servers = servers.filter_map(|(key, value)| Some((key.strip_prefix("server.")?, value)));
        servers.map(|(id, value)| (id, !value.contains(":observer"))).collect()
    }
}

/// The servers with a vote, by the ensemble's own list: the server of `zookeeper.connect`, `None` if it is not there.
/// Without such a list: those of `zookeeper.connect` that are not observers.
pub(crate) fn voters(servers: &[Server]) -> Vec<Option<&Server>> {
    let list = servers.iter().map(Server::membership).find(|list| !list.is_empty());
    match list {
        None => servers.iter().filter(|server| server.role() != Some("observer")).map(Some).collect(),
        Some(list) => {
            let mut unnamed = servers.iter().filter(|server| server.settings.get("serverId").is_none());
            let mut server = |id: &str| {
                let named = servers.iter().find(|server| server.settings.get("serverId") == Some(id));
                // One that does not answer is in the list by another address.
                named.or_else(|| unnamed.next())
            };
            list.into_iter()
                .map(|(id, votes)| (server(id), votes))
                .filter(|(_, votes)| *votes)
                .map(|(s, _)| s)
                .collect()
        }
    }
}
