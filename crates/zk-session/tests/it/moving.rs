//! Moving while connected: a session whose server is silent for several of its usual round trips looks for another one
//! beside the connection that it has, and long before silence alone makes it give that up.
//!
//! A heartbeat that has not been answered for a twentieth of the session timeout is suspicious where servers answer fast;
//! silence ends a connection after three tenths. What is sent right after the last answer shows which of them it was.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, eventually, soon};
use futures_util::future::join_all;
use zk_session::{ChangeKind, CreateMode, DriverKind, Epoch, Session, SessionBuilder};
use zk_testkit::{Proxy, Servers};

on_each_server!(
    a_session_leaves_a_link_that_says_nothing,
    when_all_servers_are_slow_few_connections_are_made,
    a_session_with_one_server_stays;
    a_session_leaves_a_server_that_stands_still,
    when_all_servers_stand_still_few_connections_are_made,
    the_sessions_of_a_server_that_stands_still_spread_over_the_others
);

const TICK: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// A twentieth of it is 1.5 s, three tenths are 9 s.
const TIMEOUT: Duration = Duration::from_secs(30);
/// By then a session has moved, which has not lost its connection by then.
const MOVED: Duration = Duration::from_secs(6);

struct Bed {
    servers: Servers,
    /// One before each server.
    proxies: Vec<Proxy>,
    leader: usize,
}

impl Bed {
    async fn start(number: usize) -> Self {
        let servers = crate::common::servers(number, TICK, (TICK * 2, LONGEST)).await;
        let mut proxies = Vec::new();
        for address in servers.addresses() {
            proxies.push(Proxy::start(address).await.unwrap());
        }
        let leader = servers.leader().await.unwrap_or(0);
        Self { servers, proxies, leader }
    }

    /// The servers that do not lead: without the leader the others do nothing for a while.
    fn followers(&self) -> Vec<usize> {
        (0..self.proxies.len()).filter(|n| *n != self.leader).collect()
    }

    fn connect_string(&self, servers: &[usize]) -> String {
        servers.iter().map(|n| self.proxies[*n].addr().to_string()).collect::<Vec<_>>().join(",")
    }

    fn all(&self) -> Vec<usize> {
        (0..self.proxies.len()).collect()
    }

    fn connections(&self) -> Vec<usize> {
        self.proxies.iter().map(Proxy::connections).collect()
    }

    fn accepted(&self) -> usize {
        self.proxies.iter().map(|proxy| proxy.accepted().len()).sum()
    }

    /// The only server with a connection. What one has that is `dead` does not count: nobody hears there that it is
    /// given up.
    async fn at(&self, dead: Option<usize>) -> usize {
        let alive = || {
            let mut connections = self.connections();
            dead.into_iter().for_each(|dead| connections[dead] = 0);
            connections
        };
        eventually("one connection", async || alive().iter().sum::<usize>() == 1).await;
        alive().iter().position(|count| *count == 1).unwrap()
    }

    /// Past the proxies.
    async fn observer(&self) -> Session {
        let address = self.servers.addresses()[self.leader].to_string();
        builder(DriverKind::default(), address, TIMEOUT).connect().await.unwrap()
    }

    /// On Apache ZooKeeper alone.
    fn freeze(&self, server: usize, frozen: bool) {
        let Servers::Apache(ensemble) = &self.servers else { panic!("the embedded server can't be frozen") };
        let done = if frozen { ensemble.faults().pause(server) } else { ensemble.faults().resume(server) };
        done.unwrap();
    }
}

fn builder(driver: DriverKind, connect: String, timeout: Duration) -> SessionBuilder {
    Session::builder(connect)
        .driver(driver)
        .session_timeout(timeout)
        .connect_timeout(Duration::from_secs(15))
        .operation_timeout(timeout)
        .tick_time(TICK)
}

async fn a_session_leaves_a_link_that_says_nothing(driver: DriverKind) {
    leaves(driver, |bed, server, dead| bed.proxies[server].black_hole(dead)).await;
}

async fn a_session_leaves_a_server_that_stands_still(driver: DriverKind) {
    leaves(driver, Bed::freeze).await;
}

async fn leaves(driver: DriverKind, strike: impl Fn(&Bed, usize, bool)) {
    let bed = Bed::start(3).await;
    let observer = bed.observer().await;
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    let session = builder(driver, bed.connect_string(&bed.followers()), TIMEOUT).connect().await.unwrap();
    let id = session.active().await.unwrap().session_id();
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let mut data = session.watch_data("/a");
    soon("data", data.next()).await.unwrap();
    let mut children = session.watch_children("/a");
    soon("children", children.next()).await.unwrap();
    let mut each = session.watch_each("/a");
    soon("a gap", each.next()).await.unwrap();
    for round in 0..2 {
        let here = bed.at(None).await;
        // It knows how long an answer takes.
        session.barrier().await.unwrap();
        let before = bed.accepted();
        strike(&bed, here, true);
        let struck = Instant::now();
        let written = format!("while it stood still, {round}");
        let (took, ()) = tokio::join!(
            async {
                session.barrier().await.unwrap();
                struck.elapsed()
            },
            async {
                observer.set("/a", &written, None).await.unwrap();
                observer.create(&format!("/a/{round}"), "", CreateMode::Persistent).await.unwrap();
            }
        );
        println!("{round}: {took:?}");
        assert!(took < MOVED, "{took:?}");
        let now = session.active().await.unwrap();
        assert_eq!((now.session_id(), now.epoch()), (id, Epoch(1)));
        let there = bed.at(Some(here)).await;
        assert_ne!(there, here);
        assert_eq!(bed.accepted() - before, 1, "one search, and one other server");
        // Nothing is lost on the way.
        loop {
            let node = soon("data", data.next()).await.unwrap().value.unwrap();
            if node.data == written.as_bytes() {
                break;
            }
        }
        loop {
            let names = soon("children", children.next()).await.unwrap().value.unwrap().names;
            if names.len() == round + 1 {
                break;
            }
        }
        assert_eq!(soon("a gap", each.next()).await.unwrap().kind, ChangeKind::Gap);
        strike(&bed, here, false);
        assert_eq!(bed.at(None).await, there, "the old connection is given up");
        // What the old server does now harms nobody.
        session.barrier().await.unwrap();
        assert!(session.get("/mine").await.unwrap().unwrap().stat.is_owned_by(id));
        observer.set("/a", "later", None).await.unwrap();
        let node = soon("data", data.next()).await.unwrap().value.unwrap();
        assert_eq!(node.data, b"later");
        // An event from before the move, if one was told at all, comes before the gap.
        loop {
            let change = soon("a change", each.next()).await.unwrap();
            if change.kind == ChangeKind::DataChanged {
                break;
            }
        }
    }
}

async fn when_all_servers_are_slow_few_connections_are_made(driver: DriverKind) {
    few_connections_are_made(driver, async |bed, sessions| {
        // Beyond what is suspicious, below what is silence.
        for delay in [100, 700, 1500, 1500, 1500, 200, 1500, 1500, 0] {
            for proxy in &bed.proxies {
                proxy.delay_replies(Duration::from_millis(delay));
            }
            barriers(sessions).await;
        }
    })
    .await;
}

async fn when_all_servers_stand_still_few_connections_are_made(driver: DriverKind) {
    few_connections_are_made(driver, async |bed, sessions| {
        for server in bed.all() {
            bed.freeze(server, true);
        }
        tokio::join!(barriers(sessions), async {
            // This long, and not until something happens.
            tokio::time::sleep(Duration::from_secs(2)).await;
            for server in bed.all() {
                bed.freeze(server, false);
            }
        });
    })
    .await;
}

/// While that happens all sessions live on, and none looks for servers all the time.
async fn few_connections_are_made(driver: DriverKind, happening: impl AsyncFnOnce(&Bed, &[Session])) {
    const SESSIONS: usize = 10;
    const SHORT: Duration = Duration::from_secs(10);
    // A search tries the two other servers, and may end with the loss of the connection that goes on. The second one
    // comes a tenth of the session timeout later, the next ones twice as much each time, give or take a half.
    const MOST: usize = 9 * SESSIONS;
    let bed = Bed::start(3).await;
    let sessions = several(driver, &bed, &bed.all(), SESSIONS, SHORT).await;
    let before = ids(&sessions).await;
    let (accepted, began) = (bed.accepted(), Instant::now());
    happening(&bed, &sessions).await;
    assert_eq!(ids(&sessions).await, before);
    let made = bed.accepted() - accepted;
    println!("{made} connections of {SESSIONS} sessions within {:?}", began.elapsed());
    assert!(made <= MOST, "{made} connections, and {MOST} are bearable");
    eventually("one connection each", async || bed.connections().iter().sum::<usize>() == SESSIONS).await;
    barriers(&sessions).await;
}

/// A quorum round trip of each, side by side.
async fn barriers(sessions: &[Session]) {
    for done in join_all(sessions.iter().map(Session::barrier)).await {
        done.unwrap();
    }
}

async fn several(
    driver: DriverKind,
    bed: &Bed,
    servers: &[usize],
    number: usize,
    timeout: Duration,
) -> Vec<Session> {
    let connect = bed.connect_string(servers);
    let making = (0..number).map(|_| builder(driver, connect.clone(), timeout).connect());
    let sessions: Vec<Session> = join_all(making).await.into_iter().map(Result::unwrap).collect();
    // Each knows how long an answer takes, and what looked for servers is gone.
    for _ in 0..5 {
        barriers(&sessions).await;
    }
    eventually("one connection each", async || bed.connections().iter().sum::<usize>() == number).await;
    sessions
}

async fn ids(sessions: &[Session]) -> Vec<zk_session::SessionId> {
    let ids = sessions.iter().map(async |session| session.active().await.unwrap().session_id());
    join_all(ids).await
}

async fn a_session_with_one_server_stays(driver: DriverKind) {
    const SHORT: Duration = Duration::from_secs(10);
    let bed = Bed::start(1).await;
    let session = builder(driver, bed.connect_string(&[0]), SHORT).connect().await.unwrap();
    let id = session.active().await.unwrap().session_id();
    session.barrier().await.unwrap();
    for _ in 0..3 {
        bed.proxies[0].black_hole(true);
        let (done, ()) = tokio::join!(session.barrier(), async {
            // Suspicious for a while, and not yet silent.
            tokio::time::sleep(SHORT / 6).await;
            bed.proxies[0].black_hole(false);
        });
        done.unwrap();
        session.barrier().await.unwrap();
    }
    assert_eq!(bed.proxies[0].accepted().len(), 1);
    assert_eq!(session.active().await.unwrap().session_id(), id);
}

async fn the_sessions_of_a_server_that_stands_still_spread_over_the_others(driver: DriverKind) {
    const SESSIONS: usize = 50;
    let bed = Bed::start(3).await;
    let here = bed.followers()[0];
    let sessions = several(driver, &bed, &[here], SESSIONS, TIMEOUT).await;
    let before = ids(&sessions).await;
    for session in &sessions {
        session.set_servers(&bed.connect_string(&bed.all())).unwrap();
    }
    for done in join_all(sessions.iter().map(Session::barrier)).await {
        done.unwrap();
    }
    assert_eq!(bed.connections()[here], SESSIONS);
    bed.freeze(here, true);
    let struck = Instant::now();
    for done in join_all(sessions.iter().map(Session::barrier)).await {
        done.unwrap();
    }
    let took = struck.elapsed();
    println!("all are back after {took:?}");
    assert!(took < MOVED, "{took:?}");
    eventually("they are elsewhere", async || {
        bed.connections().iter().sum::<usize>() - bed.connections()[here] == SESSIONS
    })
    .await;
    bed.freeze(here, false);
    eventually("they have all left", async || bed.connections()[here] == 0).await;
    let connections = bed.connections();
    println!("{connections:?}");
    assert_eq!(connections.iter().sum::<usize>(), SESSIONS);
    for other in bed.all().into_iter().filter(|n| *n != here) {
        // By chance alone it is less once in 10^8.
        assert!(connections[other] >= 6, "{connections:?}");
    }
    let accepted = bed.proxies.iter().flat_map(Proxy::accepted);
    let mut accepted: Vec<Duration> =
        accepted.filter(|at| *at > struck).map(|at| at.duration_since(struck)).collect();
    accepted.sort_unstable();
    println!("{} connections from {:?} to {:?}", accepted.len(), accepted[0], accepted[accepted.len() - 1]);
    assert!(accepted.len() <= SESSIONS * 2, "{}", accepted.len());
    // They are spread over 200 ms.
    let spread = accepted[accepted.len() - 1] - accepted[0];
    assert!(spread >= Duration::from_millis(100), "{spread:?}");
    assert_eq!(ids(&sessions).await, before);
    let closed = join_all(sessions.iter().map(|session| session.close(PATIENCE))).await;
    assert_eq!(closed.len(), SESSIONS);
}
