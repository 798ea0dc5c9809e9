//! The settings of the embedded server.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Settings of a [`TestServer`](crate::TestServer).
///
/// The defaults are those of [`EnsembleBuilder`](crate::EnsembleBuilder), the one for real servers:
/// ticks of 500 ms, so sessions from 1 s to 10 s (2 to 20 ticks), a sync limit of 10
/// ticks; and otherwise those of Apache ZooKeeper, with one exception:
/// znodes with a [time to live](Self::ttl_nodes) are enabled.
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct TestServerBuilder {
    /// The address to listen on, which must be a loopback address. Default 127.0.0.1.
    pub ip: IpAddr,
    /// Fixed ports: that one and those after it. Default: free ones.
    pub base_port: Option<u16>,
    /// The number of servers; 1 is a standalone server. With more, the first leads at first and the others
    /// follow, each on a port of its own. Default 1.
    pub servers: usize,
    /// The release of Apache ZooKeeper that it imitates. Default [`Release::V3_8`].
    pub release: Release,
    /// `tickTime`. Default 500 ms. Sessions are expired on multiples of it.
    pub tick_time: Duration,
    /// `syncLimit`, in ticks: how long a server without contact to the others serves. Default 10.
    pub sync_limit: u32,
    /// The shortest and the longest session timeout that is granted. Default:
    /// ZooKeeper's own, 2 and 20 ticks.
    pub session_timeouts: Option<(Duration, Duration)>,
    /// `jute.maxbuffer`, in bytes: the longest request. A longer one ends its
    /// connection. Default 1,048,575.
    pub max_request: usize,
    /// `maxClientCnxns`: how many connections from one address a server accepts; it resets further ones.
    /// Default 0, any number; Apache ZooKeeper's is 60.
    pub max_connections: usize,
    /// How long a connection may go without the client's first frame, by the servers' clock;
    /// then it is closed. Apache ZooKeeper, where it is `zookeeper.nio.sessionlessCnxnTimeout`,
    /// rounds it up to a multiple. Default 10 s.
    pub handshake_timeout: Duration,
    /// Whether znodes may have a time to live. Apache ZooKeeper supports it only with
    /// `-Dzookeeper.extendedTypesEnabled=true`. Default true.
    pub ttl_nodes: bool,
    /// The super user, as `name:password` in the scheme `digest`: it has all permissions, whatever the access
    /// lists are. Apache ZooKeeper's `superDigest`. Default: none.
    pub super_user: Option<String>,
    /// `readonlymode.enabled`: a server without a quorum serves reads to clients that accept it in their
    /// connect request. Their sessions are known to that server only, and end when it has a quorum again;
    /// writes and `sync` are refused with the error -119. It has no effect with one server, and when servers
    /// stop because their [log space](crate::TestServerFaults::limit_log_space) is used up. Default false.
    pub read_only_mode: bool,
    /// How often containers without children and znodes past their time to live are removed. Default 60 s.
    pub container_check: Duration,
    /// The servers take TLS connections alone, with this configuration. Not [in memory](Self::start_in_memory). Default: none.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub tls: Option<std::sync::Arc<rustls::ServerConfig>>,
    /// The seed of all random choices: the order of requests that are
    /// [reordered](crate::TestServerFaults::reorder_requests). Default: one that is drawn when the server
    /// starts, and printed when it matters. Session ids and passwords differ from one start to
    /// the next whatever the seed: else a client that outlives its server would take over a
    /// session of the next one on the same port.
    pub seed: Option<u64>,
}

/// A release of Apache ZooKeeper, as far as clients can distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Release {
    /// 3.8.0.
    #[default]
    V3_8,
    /// 3.9.3: events name their transaction, a group returns the stat of what it creates,
    /// `exists` asks for the permission to read, and a connection may watch a path in
    /// several modes.
    V3_9,
}

impl Default for TestServerBuilder {
    fn default() -> Self {
        Self {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            base_port: None,
            servers: 1,
            release: Release::default(),
            tick_time: Duration::from_millis(500),
            sync_limit: 10,
            session_timeouts: None,
            max_request: 0xf_ffff,
            max_connections: 0,
            handshake_timeout: Duration::from_secs(10),
            ttl_nodes: true,
            super_user: None,
            read_only_mode: false,
            container_check: Duration::from_secs(60),
            #[cfg(feature = "tls")]
            tls: None,
            seed: None,
        }
    }
}

impl TestServerBuilder {
    /// The same with other settings.
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// Sets the number of [`servers`](field@Self::servers).
    pub fn servers(self, servers: usize) -> Self {
        Self { servers, ..self }
    }

    /// Sets the [`tick_time`](field@Self::tick_time).
    pub fn tick_time(self, tick_time: Duration) -> Self {
        Self { tick_time, ..self }
    }

    /// Sets the [`sync_limit`](field@Self::sync_limit).
    pub fn sync_limit(self, sync_limit: u32) -> Self {
        Self { sync_limit, ..self }
    }

    /// Sets the [`session_timeouts`](field@Self::session_timeouts).
    pub fn session_timeouts(self, min: Duration, max: Duration) -> Self {
        Self { session_timeouts: Some((min, max)), ..self }
    }

    pub(crate) fn granted(&self) -> (Duration, Duration) {
        self.session_timeouts.unwrap_or((self.tick_time * 2, self.tick_time * 20))
    }
}
