//! Delays between workers on separate hosts: each reaches the others' HTTP endpoints through this process, which delays
//! every request by the set delay of the link. And delays between workers and servers of ZooKeeper.
//!
//! This needs no delay of packets in the kernel. Only requests are delayed; connections and answers pass at once.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The delays between the workers of a cluster.
#[derive(Debug)]
pub struct Delays {
    links: Arc<Links>,
    _relays: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Links {
    hosts: Mutex<BTreeMap<IpAddr, &'static str>>,
    links: Mutex<BTreeMap<(&'static str, &'static str), Duration>>,
    noise: Mutex<Duration>,
    requests: AtomicU32,
}

impl Delays {
    /// A relay for each worker, at `own`, with its port. The worker listens on the same port of its own address, which
    /// is known once the hosts exist.
    pub(crate) async fn start(own: Ipv4Addr, workers: &[(&'static str, Ipv4Addr)]) -> (Self, Vec<u16>) {
        let links = Arc::new(Links::default());
        let mut relays = JoinSet::new();
        let mut ports = Vec::new();
        for (id, ip) in workers {
            links.lock_hosts().insert(IpAddr::V4(*ip), id);
            let listener = TcpListener::bind((own, 0)).await.expect("a port for the relay");
            let port = listener.local_addr().expect("its port").port();
            ports.push(port);
            let (links, id) = (Arc::clone(&links), *id);
            relays.spawn(relay(listener, SocketAddr::from((*ip, port)), move |peer| links.delay(peer, id)));
        }
        (Self { links, _relays: relays }, ports)
    }

    /// Sets the delay of requests between these two, both ways.
    pub fn between(&self, one: &'static str, other: &'static str, delay: Duration) {
        let mut links = self.links.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert((one, other), delay);
        links.insert((other, one), delay);
    }

    /// Adds a random delay of up to this to every request.
    pub fn noise(&self, at_most: Duration) {
        *self.links.noise.lock().unwrap_or_else(PoisonError::into_inner) = at_most;
    }
}

impl Links {
    fn lock_hosts(&self) -> std::sync::MutexGuard<'_, BTreeMap<IpAddr, &'static str>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self, from: IpAddr, to: &'static str) -> Duration {
        let Some(from) = self.lock_hosts().get(&from).copied() else { return Duration::ZERO };
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let noise = *self.noise.lock().unwrap_or_else(PoisonError::into_inner);
        // Varies without a period that could coincide with the rounds of probes.
        let step = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(7) % 11;
        links.get(&(from, to)).copied().unwrap_or_default() + noise * step / 10
    }
}

/// Servers that are far away from clients that reach them at these addresses: every request takes the set time longer.
#[derive(Debug)]
pub struct FarServers {
    addresses: Vec<SocketAddr>,
    _relays: JoinSet<()>,
}

impl FarServers {
    /// A relay for each server, at `own`.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn start(own: Ipv4Addr, servers: &[SocketAddr], delay: Duration) -> Self {
        let mut relays = JoinSet::new();
        let mut addresses = Vec::new();
        for server in servers.iter().copied() {
            let listener = TcpListener::bind((own, 0)).await.expect("a port for the relay");
            addresses.push(listener.local_addr().expect("its address"));
            relays.spawn(relay(listener, server, move |_| delay));
        }
        Self { addresses, _relays: relays }
    }

    /// Where clients reach them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

async fn relay(
    listener: TcpListener,
    to: SocketAddr,
    delay: impl Fn(IpAddr) -> Duration + Clone + Send + Sync + 'static,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((from, peer)) = accepted else { continue };
                let delay = delay.clone();
                connections.spawn(async move {
                    // The end of either side ends the relay.
                    let _ = carry(from, to, || delay(peer.ip())).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(from: TcpStream, to: SocketAddr, delay: impl Fn() -> Duration) -> io::Result<()> {
    let to = TcpStream::connect(to).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (mut requests, mut to_client) = from.into_split();
    let (mut answers, mut to_server) = to.into_split();
    let there = async {
        let mut buffer = [0; 4096];
        loop {
            let count = requests.read(&mut buffer).await?;
            if count == 0 {
                return io::Result::Ok(());
            }
            tokio::time::sleep(delay()).await;
            to_server.write_all(&buffer[..count]).await?;
        }
    };
    tokio::select! {
        there = there => there,
        back = copy(&mut answers, &mut to_client) => back.map(drop),
    }
}
