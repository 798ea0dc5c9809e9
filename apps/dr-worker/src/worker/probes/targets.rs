//! Round trips to ZooKeeper and to configured targets.
//!
//! * ZooKeeper: a read over the session, answered by the connected server: one round trip, without work for other
//!   servers.
//! * An address: the time to establish a TCP connection: one round trip. The name is resolved before.
//! * A URL: from the begin of a request on a new connection, name resolution included, to the head of any answer: at
//!   least two round trips. Kept connections are not used, because some targets close them and others don't, and the
//!   times could not be compared.

use std::{sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use zk_session::Session;

use super::{
    prober::Prober,
    published::{Published, Whom},
};
use crate::{
    client,
    config::{HostPort, ProbeTarget},
};

/// Measures the targets that the policy needs, until it is dropped.
pub(super) async fn probe(prober: &Prober, published: &Arc<Published>) {
    let (needs, probes) = (&prober.needs, &prober.probes);
    let mut tasks = JoinSet::new();
    if needs.zookeeper {
        let (session, path) = (prober.session.clone(), prober.paths.base().to_owned());
        let repeat = Repeat::new(prober, published, Whom::ZooKeeper);
        tasks.spawn(async move { repeat.run(|| read(&session, &path)).await });
    }
    for (name, target) in probes.targets.iter().filter(|(name, _)| needs.targets.contains(*name)) {
        let repeat = Repeat::new(prober, published, Whom::Target(name.clone()));
        match target.clone() {
            ProbeTarget::Tcp(HostPort { host, port }) => {
                tasks.spawn(async move { repeat.run(|| connect(&host, port)).await });
            }
            ProbeTarget::Http(url) => match client::plain().pool_max_idle_per_host(0).build() {
                Ok(client) => {
                    tasks.spawn(async move { repeat.run(|| request(&client, &url)).await });
                }
                Err(error) => {
                    tracing::error!(%error, "can't create an HTTP client: {url} is not measured")
                }
            },
        }
    }
    // All tasks end when this function is dropped.
    while tasks.join_next().await.is_some() {}
}

struct Repeat {
    whom: Whom,
    interval: Duration,
    patience: Duration,
    published: Arc<Published>,
}

impl Repeat {
    fn new(prober: &Prober, published: &Arc<Published>, whom: Whom) -> Self {
        let (interval, patience) = (prober.probes.interval, prober.probes.timeout);
        Self { whom, interval, patience, published: Arc::clone(published) }
    }

    async fn run<F: Future<Output = Option<Duration>>>(self, measure: impl Fn() -> F) {
        loop {
            let next = Instant::now() + self.interval;
            match timeout(self.patience, measure()).await.ok().flatten() {
                Some(after) => self.published.answered(self.whom.clone(), Some(after)),
                None => self.published.missed(&self.whom, self.patience),
            }
            self.published.publish();
            sleep_until(next).await;
        }
    }
}

async fn read(session: &Session, path: &str) -> Option<Duration> {
    let incarnation = session.incarnation()?;
    let begun = Instant::now();
    incarnation.get(path).await.ok().map(|_| begun.elapsed())
}

async fn request(client: &reqwest::Client, url: &str) -> Option<Duration> {
    let begun = Instant::now();
    client.get(url).send().await.ok().map(|_| begun.elapsed())
}

async fn connect(host: &str, port: u16) -> Option<Duration> {
    // Always the first of several addresses, so that it is the same one each time.
    let address = lookup_host((host, port)).await.ok()?.next()?;
    let begun = Instant::now();
    TcpStream::connect(address).await.ok().map(|_| begun.elapsed())
}
