//! The ZooKeeper servers of the demo.

use std::time::Duration;

use zk_testkit::{ServerKind, Servers, TestServer};

use super::narrator::Narrator;
use crate::packages;

/// Three, as in production.
const SERVERS: usize = 3;
/// ZooKeeper's tick: short, so that it grants short sessions.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Starts an embedded server, which needs no installation, or Apache ZooKeeper. Dropping it ends the servers.
pub(crate) async fn start(real: bool, narrator: &Narrator) -> anyhow::Result<Servers> {
    if !real {
        // It has its own thread, because the demo waits for processes that still need it.
        let server = TestServer::builder().servers(SERVERS).tick_time(TICK).start_on_thread()?;
        narrator.say(format!(
            "an embedded ZooKeeper server runs at {}; `cargo xtask demo --real` uses Apache ZooKeeper",
            server.connect_string()
        ));
        return Ok(Servers::Embedded(server));
    }
    packages::ensure_zookeeper().await?;
    narrator.say("starting three ZooKeeper servers on this machine");
    let servers = Servers::start(ServerKind::Apache, SERVERS, TICK).await?;
    let leader = servers.leader().await.map(|leader| format!("; server {} leads their quorum", leader + 1));
    narrator.say(format!("they run at {}{}", servers.connect_string(), leader.unwrap_or_default()));
    Ok(servers)
}
