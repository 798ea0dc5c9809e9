//! Resolves names to addresses, without blocking a runtime.
//!
//! A cut of the network (a drill's) is a comparison with the clock at each use of a connection, so no timer can be lost that
//! would have ended it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::lock::lock;
use crate::servers::hosts::{Host, Server};
use crate::servers::known::Known;
use crate::servers::preference::Preference;
use crate::time::{BootTime, within};

/// Once one name is resolved, the others have this long to be as well.
const GRACE: Duration = Duration::from_millis(100);
/// A name with a known address is waited for no longer than this: mostly that address is still valid.
const KNOWN: Duration = Duration::from_secs(1);

type Lookup = Option<Result<Vec<SocketAddr>, String>>;
type LookUp = dyn Fn(&Server) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up on threads of its own: the system's resolver may block for tens of seconds, and a runtime that is
/// shut down would wait for it. At most one thread per name.
pub(crate) struct Resolver {
    servers: Mutex<Vec<Server>>,
    preference: Mutex<Preference>,
    pub(crate) known: Mutex<Known>,
    /// Until when there is no server for the session.
    isolated_until: Mutex<Option<BootTime>>,
    /// The system's resolver.
    look_up: Arc<LookUp>,
    table: Arc<Mutex<Lookups>>,
}

#[derive(Default)]
struct Lookups {
    under_way: HashMap<Server, watch::Receiver<Lookup>>,
    /// The latest answers, including those that came too late for the caller.
    latest: HashMap<Server, Vec<SocketAddr>>,
    /// The names that have never resolved, each reported once.
    nameless: HashSet<Server>,
}

impl Resolver {
    pub(crate) fn new(servers: &[Server], preference: Preference) -> Self {
        let look_up = |server: &Server| Ok((server.name.as_str(), server.port).to_socket_addrs()?.collect());
        Self {
            servers: Mutex::new(servers.to_vec()),
            preference: Mutex::new(preference),
            known: Mutex::default(),
            isolated_until: Mutex::default(),
            look_up: Arc::new(look_up),
            table: Arc::default(),
        }
    }

    pub(crate) fn servers(&self) -> Vec<Server> {
        lock(&self.servers).clone()
    }

    pub(crate) fn set_servers(&self, servers: Vec<Server>) {
        *lock(&self.servers) = servers;
    }

    /// Until then the session has no connection, and finds no server for one. An earlier time ends a longer isolation.
    #[cfg(any(feature = "drill", test))]
    pub(crate) fn isolate(&self, until: BootTime) {
        *lock(&self.isolated_until) = Some(until);
    }

    /// Whether the session may have no connection now. It ends by the clock alone.
    pub(crate) fn is_isolated(&self) -> bool {
        lock(&self.isolated_until).is_some_and(|until| BootTime::now() < until)
    }

    pub(crate) fn preference(&self) -> Preference {
        lock(&self.preference).clone()
    }

    /// Ends the distrust whose time has passed. Returns whether it did.
    pub(crate) fn end_distrust(&self, now: BootTime) -> bool {
        let is_due = lock(&self.preference).distrusted.iter().any(|(_, until)| *until <= now);
        is_due && self.change_preference(|preference| preference.distrusted.retain(|(_, until)| now < *until))
    }

    /// Changes the preference, and returns whether it is another one now.
    pub(crate) fn change_preference(&self, change: impl FnOnce(&mut Preference)) -> bool {
        let mut preference = lock(&self.preference);
        let before = preference.clone();
        change(&mut preference);
        *preference != before
    }

    /// The addresses of the servers in the order in which they are to be asked, equal ones in any order, and what is wrong
    /// with the names that have none. Each name is looked up again. One that does not resolve, or not in that time, or not soon
    /// after the first that does, keeps its last addresses; its lookup continues.
    pub(crate) async fn hosts(&self, within_time: Duration) -> (Vec<Host>, Vec<(Server, String)>) {
        let servers = self.servers();
        if self.is_isolated() {
            let reason = "this process has cut the session off for a time";
            return (Vec::new(), servers.into_iter().map(|server| (server, reason.to_owned())).collect());
        }
        let is_known = servers.iter().any(|server| lock(&self.table).latest.contains_key(server));
        let mut deadline = BootTime::now() + if is_known { within_time.min(KNOWN) } else { within_time };
        let mut lookups: FuturesUnordered<_> =
            servers.iter().map(async |server| (server, self.resolve(server).await)).collect();
        let mut found = HashMap::new();
        while let Some(Some((server, resolved))) = within(deadline, lookups.next()).await {
            if resolved.is_ok() {
                deadline = deadline.min(BootTime::now() + GRACE);
            }
            found.insert(server, resolved);
        }
        drop(lookups);
        let (mut hosts, mut failures) = (Vec::new(), Vec::new());
        for server in &servers {
            let before = || lock(&self.table).latest.get(server).cloned();
            let addresses = match found.remove(server) {
                Some(Ok(addresses)) => Ok(addresses),
                Some(Err(reason)) => before().ok_or(format!("its name does not resolve: {reason}")),
                None => before().ok_or("its name did not resolve in time".to_owned()),
            };
            match addresses {
                Ok(addresses) => hosts
                    .extend(addresses.into_iter().map(|address| Host { server: server.clone(), address })),
                Err(reason) => failures.push((server.clone(), reason)),
            }
        }
        fastrand::shuffle(&mut hosts);
        let preference = self.preference();
        let mut known = lock(&self.known);
        known.retain(&hosts);
        // The sort is stable: equal ones stay shuffled.
        known.sort(&mut hosts, &preference, BootTime::now());
        (hosts, failures)
    }

    async fn resolve(&self, server: &Server) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = server.name.parse() {
            return Ok(vec![SocketAddr::new(address, server.port)]);
        }
        let mut lookup = self.lookup(server)?;
        let found = lookup.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        found.unwrap_or_else(|| Err("the resolver thread has failed".to_owned()))
    }

    /// The lookup that is under way, or a new one.
    fn lookup(&self, server: &Server) -> Result<watch::Receiver<Lookup>, String> {
        let mut table = lock(&self.table);
        if let Some(lookup) = table.under_way.get(server) {
            return Ok(lookup.clone());
        }
        let (sender, receiver) = watch::channel(None);
        let (key, look_up, shared) = (server.clone(), Arc::clone(&self.look_up), Arc::clone(&self.table));
        std::thread::Builder::new()
            .name("zk-session-resolve".to_owned())
            .spawn(move || {
                let found = look_up(&key).map_err(|error| error.to_string()).and_then(|addresses| {
                    if addresses.is_empty() { Err("it has no address".to_owned()) } else { Ok(addresses) }
                });
                let mut table = lock(&shared);
                table.under_way.remove(&key);
                match &found {
                    Ok(addresses) => {
                        if table.nameless.remove(&key) {
                            info!(server = %key, "the name of this ZooKeeper server resolves now");
                        }
                        table.latest.insert(key, addresses.clone());
                    }
                    Err(reason) if !table.latest.contains_key(&key) && table.nameless.insert(key.clone()) => {
                        warn!(server = %key, "the name of this ZooKeeper server does not resolve, so the server is not used: {reason}");
                    }
                    Err(_) => {}
                }
                drop(table);
                sender.send_replace(Some(found));
            })
            .map_err(|error| format!("cannot start a resolver thread: {error}"))?;
        table.under_way.insert(server.clone(), receiver.clone());
        Ok(receiver)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::servers::hosts::ConnectString;

    fn resolver(connect: &str) -> Resolver {
        Resolver::new(&ConnectString::parse(connect).unwrap().servers, Preference::default())
    }

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_name_that_does_not_resolve_says_so_and_stops_no_other() {
        let resolver = resolver("no-such-host.invalid:1,localhost:2,127.0.0.9:3");
        let (hosts, failures) = resolver.hosts(SOON).await;
        assert!(hosts.iter().any(|host| host.server.name == "localhost"));
        assert!(hosts.iter().any(|host| host.address == "127.0.0.9:3".parse().unwrap()));
        let [(server, reason)] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!(server.name, "no-such-host.invalid");
        assert!(reason.contains("name"), "{reason}");
    }

    /// The servers of that connect string, and a resolver that takes its time and counts.
    fn slow(connect: &str, takes: Duration, address: SocketAddr) -> (Resolver, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let look_up = move |_: &Server| {
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(takes);
            Ok(vec![address])
        };
        (Resolver { look_up: Arc::new(look_up), ..resolver(connect) }, asked)
    }

    #[tokio::test]
    async fn a_slow_resolver_holds_up_neither_the_runtime_nor_an_attempt() {
        // A runtime of one thread: were it blocked, the timer could not go off in time.
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let (resolver, asked) = slow("zk.example:9", Duration::from_secs(3), address);
        let ticking = tokio::spawn(async {
            let mut longest = Duration::ZERO;
            for _ in 0..50 {
                let started = std::time::Instant::now();
                tokio::time::sleep(Duration::from_millis(10)).await;
                longest = longest.max(started.elapsed());
            }
            longest
        });
        let started = BootTime::now();
        let (hosts, failures) = resolver.hosts(Duration::from_millis(300)).await;
        assert!(hosts.is_empty());
        assert!(failures[0].1.contains("did not resolve in time"), "{failures:?}");
        resolver.hosts(Duration::from_millis(200)).await;
        let took = BootTime::now().duration_since(started);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "one thread per name, however often it is asked");
        let longest = ticking.await.unwrap();
        assert!(longest < Duration::from_secs(1), "a timer of 10 ms took {longest:?}");
        // The answer that came too late for those who asked is there for the next, and stays while the name does not
        // resolve in time.
        let mut hosts = Vec::new();
        while hosts.is_empty() {
            hosts = resolver.hosts(Duration::from_millis(50)).await.0;
        }
        assert_eq!(hosts[0].address, address);
        assert_eq!(resolver.hosts(Duration::from_millis(50)).await.0, hosts);
    }

    #[tokio::test]
    async fn a_name_that_no_longer_resolves_keeps_its_addresses() {
        let (address, is_up) = (SocketAddr::from(([127, 0, 0, 1], 9)), Arc::new(AtomicBool::new(true)));
        let up = Arc::clone(&is_up);
        let look_up = move |server: &Server| {
            if up.load(Ordering::SeqCst) {
                return Ok(vec![address]);
            }
            // As a resolver fails: for the one name at once, for the other one late.
            std::thread::sleep(if server.name == "silent.example" { SOON } else { Duration::ZERO });
            Err(io::Error::other("no such name"))
        };
        let resolver = Resolver { look_up: Arc::new(look_up), ..resolver("zk.example:9,silent.example:9") };
        // On a busy machine the answer to one name may come too late for the first call.
        let mut known = Vec::new();
        while known.len() < 2 {
            known = resolver.hosts(SOON).await.0;
        }
        is_up.store(false, Ordering::SeqCst);
        let started = BootTime::now();
        let (hosts, _) = resolver.hosts(SOON).await;
        assert!(hosts.len() == 2 && hosts.iter().all(|host| known.contains(host)), "{hosts:?}");
        assert!(BootTime::now().duration_since(started) < SOON / 2, "no time is left for the servers");
    }

    #[tokio::test]
    async fn there_is_no_server_while_the_session_is_isolated() {
        let resolver = resolver("127.0.0.9:3");
        assert!(!resolver.is_isolated());
        resolver.isolate(BootTime::now() + SOON);
        let (hosts, failures) = resolver.hosts(SOON).await;
        assert!(hosts.is_empty() && failures[0].1.contains("cut the session off"), "{hosts:?} {failures:?}");
        // The time has passed.
        resolver.isolate(BootTime::now());
        assert_eq!(resolver.hosts(SOON).await.0.len(), 1);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_again_each_time() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let (resolver, asked) = slow("zk.example:9", Duration::ZERO, address);
        for attempt in 1..=5 {
            resolver.hosts(SOON).await;
            assert_eq!(asked.load(Ordering::SeqCst), attempt);
        }
    }
}
