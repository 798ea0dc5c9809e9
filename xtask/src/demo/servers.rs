//! The ZooKeeper servers of the demo.

use std::time::Duration;

use zk_testkit::{Ensemble, TestServer};

use super::narrator::Narrator;
use crate::packages;

/// Three, as in production.
const SERVERS: usize = 3;
/// ZooKeeper's tick: short, so that it grants short sessions.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Dropping it ends the servers.
#[derive(Debug)]
pub(crate) enum Servers {
    /// An embedded server, without an installation. It has its own thread, because the demo waits for processes that still
    /// need it.
    Embedded(TestServer),
    /// Apache ZooKeeper.
    Real(Box<Ensemble>),
}

impl Servers {
    pub(crate) async fn start(real: bool, narrator: &Narrator) -> anyhow::Result<Self> {
        if !real {
            let server = TestServer::builder().servers(SERVERS).tick_time(TICK).start_on_thread()?;
            narrator.say(format!(
                "an embedded ZooKeeper server runs at {}; `cargo xtask demo --real` uses Apache ZooKeeper",
                server.connect_string()
            ));
            return Ok(Self::Embedded(server));
        }
        packages::ensure_zookeeper().await?;
        narrator.say("starting three ZooKeeper servers on this machine");
        let ensemble = Ensemble::builder().servers(SERVERS).tick_time(TICK).start().await?;
        let leader = ensemble
            .leader()
            .await
            .map_or_else(String::new, |leader| format!("; server {} leads their quorum", leader + 1));
        narrator.say(format!("they run at {}{leader}", ensemble.connect_string()));
        Ok(Self::Real(Box::new(ensemble)))
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Embedded(server) => server.connect_string(),
            Self::Real(ensemble) => ensemble.connect_string(),
        }
    }
}
