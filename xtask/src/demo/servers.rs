//! The ZooKeeper that the demo stands on.

use std::time::Duration;

use zk_testkit::{Ensemble, TestServer};

use super::narrator::Narrator;
use crate::packages;

/// Three, so that the workers are given what they would be given in production.
const SERVERS: usize = 3;
/// ZooKeeper's tick here: short, so that short sessions are granted.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Ends with the value.
#[derive(Debug)]
pub(crate) enum Servers {
    /// In this process, with nothing to install. On a thread of its own: the demo waits
    /// for processes that still need it.
    Embedded(TestServer),
    /// Apache ZooKeeper.
    Real(Box<Ensemble>),
}

impl Servers {
    pub(crate) async fn start(real: bool, narrator: &Narrator) -> anyhow::Result<Self> {
        if !real {
            let server = TestServer::builder().servers(SERVERS).tick_time(TICK).start_on_thread()?;
            narrator.say(format!(
                "an embedded ZooKeeper server serves at {}; `cargo xtask demo --real` starts Apache ZooKeeper",
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
        narrator.say(format!("they serve at {}{leader}", ensemble.connect_string()));
        Ok(Self::Real(Box::new(ensemble)))
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Embedded(server) => server.connect_string(),
            Self::Real(ensemble) => ensemble.connect_string(),
        }
    }
}
