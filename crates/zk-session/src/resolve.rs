//! Names to addresses, without ever blocking a runtime, and which of the addresses answer.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::driver::Host;
use crate::hosts::Server;
use crate::incarnation::lock;
use crate::time::{BootTime, within};

/// Once one server answers, the others have this long to be tried before those that did not answer.
const GRACE: Duration = Duration::from_millis(100);
/// No server is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(3);

type Lookup = Option<Result<Vec<SocketAddr>, String>>;
type LookUp = dyn Fn(&Server) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up on threads of its own: the system's resolver may block for tens of seconds, and a runtime that is
/// shut down would wait for it. At most one thread per name.
pub(crate) struct Resolver {
    servers: Vec<Server>,
    /// The system's resolver.
    look_up: Arc<LookUp>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    under_way: HashMap<Server, watch::Receiver<Lookup>>,
    /// The latest answers, also those that came too late for whoever asked.
    latest: HashMap<Server, Vec<SocketAddr>>,
}

/// What is known of the servers at the moment.
pub(crate) struct Survey {
    /// In the order in which to try them.
    pub(crate) hosts: Vec<Host>,
    /// The servers that took a connection.
    pub(crate) reachable: Vec<Server>,
    /// What is wrong, by server.
    pub(crate) failures: HashMap<Server, String>,
}

impl Resolver {
    pub(crate) fn new(servers: &[Server]) -> Self {
        let look_up = |server: &Server| Ok((server.name.as_str(), server.port).to_socket_addrs()?.collect());
        Self { servers: servers.to_vec(), look_up: Arc::new(look_up), table: Arc::default() }
    }

    /// With another resolver than the system's.
    #[cfg(test)]
    pub(crate) fn with_lookup(
        servers: &[Server],
        look_up: impl Fn(&Server) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { look_up: Arc::new(look_up), ..Self::new(servers) }
    }

    /// Looks every name up again, and puts the addresses into `hosts` in place of those of before. A name that does not
    /// resolve in that time, or at all, keeps the latest that are known; the lookup goes on.
    pub(crate) async fn refresh(&self, hosts: &mut Vec<Host>, within_time: Duration) {
        let deadline = BootTime::now() + within_time;
        let named = self.servers.iter().filter(|server| server.literal().is_none());
        let lookups = named.map(async |server| (server, within(deadline, self.resolve(server)).await));
        for (server, found) in join_all(lookups).await {
            let addresses = match found {
                Some(Ok(addresses)) => Some(addresses),
                _ => lock(&self.table).latest.get(server).cloned(),
            };
            if let Some(addresses) = addresses {
                hosts.retain(|host| host.name != server.name || host.address.port() != server.port);
                hosts.extend(to_hosts(server, addresses));
            }
        }
    }

    /// Resolves every name and tries every address, all at the same time.
    pub(crate) async fn survey(&self, deadline: BootTime) -> Survey {
        let deadline = deadline.min(BootTime::now() + PATIENCE);
        let mut trials: FuturesUnordered<_> =
            self.servers.iter().map(|server| self.try_server(server, deadline)).collect();
        let mut reachable = Vec::new();
        let mut answered = Vec::new();
        let mut others = Vec::new();
        let mut failures = HashMap::new();
        let mut until = deadline;
        while let Some(Some((server, trial))) = within(until, trials.next()).await {
            match trial {
                Trial::Reachable(addresses) => {
                    reachable.extend(to_hosts(server, addresses));
                    answered.push(server.clone());
                    until = until.min(BootTime::now() + GRACE);
                }
                Trial::Silent(addresses, reason) => {
                    others.extend(to_hosts(server, addresses));
                    failures.insert(server.clone(), reason);
                }
                Trial::Nameless(reason) => {
                    failures.insert(server.clone(), reason);
                }
            }
        }
        drop(trials);
        // Those that were still being tried: a driver should know of them for later.
        for server in &self.servers {
            if !answered.contains(server) && !failures.contains_key(server) {
                let addresses = self.known_addresses(server);
                others.extend(to_hosts(server, addresses));
                failures.insert(server.clone(), "no answer in time".to_owned());
            }
        }
        fastrand::shuffle(&mut reachable);
        fastrand::shuffle(&mut others);
        reachable.append(&mut others);
        Survey { hosts: reachable, reachable: answered, failures }
    }

    async fn try_server<'a>(&self, server: &'a Server, deadline: BootTime) -> (&'a Server, Trial) {
        let addresses = match within(deadline, self.resolve(server)).await {
            Some(Ok(addresses)) => addresses,
            Some(Err(reason)) => {
                return (server, Trial::Nameless(format!("its name does not resolve: {reason}")));
            }
            None => return (server, Trial::Nameless("its name did not resolve in time".to_owned())),
        };
        let mut connections: FuturesUnordered<_> = addresses.iter().map(TcpStream::connect).collect();
        let mut reason = "no answer in time".to_owned();
        while let Some(Some(connection)) = within(deadline, connections.next()).await {
            match connection {
                Ok(_) => return (server, Trial::Reachable(addresses.clone())),
                Err(error) => reason = error.to_string(),
            }
        }
        drop(connections);
        (server, Trial::Silent(addresses, reason))
    }

    async fn resolve(&self, server: &Server) -> Result<Vec<SocketAddr>, String> {
        if let Some(address) = server.literal() {
            return Ok(vec![SocketAddr::new(address, server.port)]);
        }
        let mut lookup = self.lookup(server)?;
        match lookup.wait_for(Option::is_some).await {
            Ok(found) => found.clone().unwrap_or_else(|| Err("nothing was found".to_owned())),
            Err(_) => Err("the thread that looked it up has failed".to_owned()),
        }
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
                if let Ok(addresses) = &found {
                    table.latest.insert(key, addresses.clone());
                }
                drop(table);
                sender.send_replace(Some(found));
            })
            .map_err(|error| format!("no thread to look it up: {error}"))?;
        table.under_way.insert(server.clone(), receiver.clone());
        Ok(receiver)
    }

    fn known_addresses(&self, server: &Server) -> Vec<SocketAddr> {
        server.literal().map(|address| SocketAddr::new(address, server.port)).into_iter().collect()
    }
}

enum Trial {
    Reachable(Vec<SocketAddr>),
    /// Addresses are known, none took a connection.
    Silent(Vec<SocketAddr>, String),
    Nameless(String),
}

fn to_hosts(server: &Server, addresses: Vec<SocketAddr>) -> impl Iterator<Item = Host> {
    let name = server.name.clone();
    addresses.into_iter().map(move |address| Host { name: name.clone(), address })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::hosts::ConnectString;

    fn resolver(connect: &str) -> Resolver {
        Resolver::new(&ConnectString::parse(connect).unwrap().servers)
    }

    fn soon() -> BootTime {
        BootTime::now() + Duration::from_secs(10)
    }

    #[tokio::test]
    async fn those_that_answer_come_first() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (open_at, closed_at) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        for connect in [format!("{closed_at},{open_at}"), format!("{open_at},{closed_at}")] {
            let survey = resolver(&connect).survey(soon()).await;
            assert_eq!(survey.reachable.len(), 1);
            assert_eq!(
                survey.hosts.iter().map(|host| host.address).collect::<Vec<_>>(),
                [open_at, closed_at]
            );
            assert_eq!(survey.failures.len(), 1);
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_says_so_and_stops_no_other() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = open.local_addr().unwrap().port();
        let survey = resolver(&format!("no-such-host.invalid:1,localhost:{port}")).survey(soon()).await;
        assert_eq!(survey.reachable.len(), 1);
        assert!(survey.hosts.iter().all(|host| host.name == "localhost"));
        let (server, reason) = survey.failures.iter().find(|(server, _)| server.name != "localhost").unwrap();
        assert_eq!(server.name, "no-such-host.invalid");
        assert!(reason.contains("name"), "{reason}");
    }

    /// The servers of that connect string, and a resolver that takes its time and counts.
    fn slow(connect: &str, takes: Duration, address: SocketAddr) -> (Resolver, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let servers = ConnectString::parse(connect).unwrap().servers;
        let resolver = Resolver::with_lookup(&servers, {
            let asked = asked.clone();
            move |_| {
                asked.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(takes);
                Ok(vec![address])
            }
        });
        (resolver, asked)
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
        let survey = resolver.survey(started + Duration::from_millis(300)).await;
        assert!(survey.hosts.is_empty());
        assert!(survey.failures.values().all(|reason| reason.contains("did not resolve in time")));
        let mut hosts = vec![Host { name: "zk.example".to_owned(), address }];
        resolver.refresh(&mut hosts, Duration::from_millis(200)).await;
        assert_eq!(hosts.len(), 1, "what was known is kept");
        let took = BootTime::now().duration_since(started);
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "one thread per name, however often it is asked");
        let longest = ticking.await.unwrap();
        assert!(longest < Duration::from_secs(1), "a timer of 10 ms took {longest:?}");
        // The answer that came too late for those who asked is there for the next.
        let mut hosts = Vec::new();
        while hosts.is_empty() {
            resolver.refresh(&mut hosts, Duration::from_millis(50)).await;
        }
        assert_eq!(hosts[0].address, address);
    }

    #[tokio::test]
    async fn names_are_looked_up_again_in_every_survey() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let (resolver, asked) = slow("zk.example:9", Duration::ZERO, address);
        for attempt in 1..=5 {
            resolver.survey(soon()).await;
            assert_eq!(asked.load(Ordering::SeqCst), attempt);
        }
    }
}
