//! Three servers, of which some can be made to lag behind.

use zk_session::{DriverKind, Session};
use zk_testkit::{Ensemble, Proxy};

use super::{TICK, builder};

/// Three servers, each behind a proxy of its own.
pub struct Three {
    pub ensemble: Ensemble,
    pub proxies: Vec<Proxy>,
    pub leader: usize,
}

impl Three {
    pub async fn start() -> Self {
        let ensemble = Ensemble::builder()
            .servers(3)
            .tick_time(TICK)
            .sync_limit(20)
            .breakable_links(true)
            .start()
            .await
            .unwrap();
        let mut proxies = Vec::new();
        for address in ensemble.addresses() {
            proxies.push(Proxy::start(address).await.unwrap());
        }
        let leader = ensemble.leader().await.expect("a leader");
        Self { ensemble, proxies, leader }
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
        let leader = self.ensemble.addresses()[self.leader];
        builder(DriverKind::default(), leader).connect().await.unwrap()
    }
}
