//! Three servers, of which some can be made to lag behind.

use zk_session::{DriverKind, Session};
use zk_testkit::{Ensemble, Proxy, ServerKind, Servers, TestServer};

use super::{TICK, builder, server_kind};

/// Three servers, each behind a proxy of its own.
pub struct Three {
    pub servers: Servers,
    pub proxies: Vec<Proxy>,
    pub leader: usize,
}

impl Three {
    pub async fn start() -> Self {
        let servers = three_servers(20).await;
        let mut proxies = Vec::new();
        for address in servers.addresses() {
            proxies.push(Proxy::start(address).await.unwrap());
        }
        let leader = servers.leader().await.expect("a leader");
        Self { servers, proxies, leader }
    }

    /// Where only real ones will do.
    pub fn ensemble(&self) -> &Ensemble {
        match &self.servers {
            Servers::Apache(ensemble) => ensemble,
            Servers::Embedded(_) => panic!("this test is for Apache ZooKeeper"),
        }
    }

    /// All three, through their proxies.
    pub fn connect_string(&self) -> String {
        self.proxies.iter().map(|proxy| proxy.addr().to_string()).collect::<Vec<_>>().join(",")
    }

    /// Which of them take no new connections.
    pub async fn refuse(&self, refuse: impl Fn(usize) -> bool) {
        for (n, proxy) in self.proxies.iter().enumerate() {
            proxy.refuse(refuse(n)).await.unwrap();
        }
    }

    pub async fn cut(&self) {
        for proxy in &self.proxies {
            proxy.cut().await;
        }
    }

    /// A session past the proxies, with the leader alone: what it has written the others may not know yet.
    pub async fn observer(&self) -> Session {
        let leader = self.servers.addresses()[self.leader];
        builder(DriverKind::default(), leader).connect().await.unwrap()
    }
}

/// Three servers whose followers can be cut off from the others, and go on for so many ticks.
pub async fn three_servers(sync_limit: u32) -> Servers {
    match server_kind() {
        ServerKind::Apache => {
            let builder = Ensemble::builder().servers(3).tick_time(TICK).sync_limit(sync_limit);
            Servers::Apache(Box::new(
                builder.with(|settings| settings.breakable_links = true).start().await.unwrap(),
            ))
        }
        ServerKind::Embedded => {
            let builder = TestServer::builder().servers(3).tick_time(TICK).sync_limit(sync_limit);
            Servers::Embedded(builder.start().await.unwrap())
        }
    }
}
