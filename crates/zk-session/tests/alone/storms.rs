//! Fifty sessions whose servers are gone all come back at once, and none of them may make it worse: attempts are
//! bounded, spread over time and over the servers.
//!
//! # The bounds
//! A session that is still to be saved tries each of three servers once a round. The pauses between rounds are drawn from
//! 0 to 0.1, 0.2, 0.4, 0.8 and then 1 s: in the five seconds that are counted here some 11 rounds, 33 attempts, are
//! expected. Where there is no session any more, each attempt to make one is a look at all three servers at once, and a
//! handshake with each that took the connection; the pauses are drawn from 0 to 0.2, 0.4, 0.8, 1.6 and then 2 s: some 7
//! rounds, 42 attempts. Within the five seconds most sessions go through the beginning of both. So the bound is 12
//! attempts per second and session; the client `zookeeper-async` by itself was seen to make 9,800.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{TICK, TIMEOUT, eventually};
use futures_util::future::join_all;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use zk_session::{DriverKind, Session, SessionBuilder};
use zk_testkit::Proxy;

on_each_server!(
    servers_that_close_at_once_are_not_stormed,
    servers_that_say_nothing_are_not_stormed,
    every_attempt_to_connect_is_bounded;
    // There is no ZooKeeper in these.
    servers_that_refuse_are_not_stormed,
    sessions_share_the_servers_and_their_first_choice_among_them,
);

const SESSIONS: usize = 50;
const SERVERS: usize = 3;
const COUNTED: Duration = Duration::from_secs(5);
const PER_SESSION_AND_SECOND: f64 = 12.0;
const BUCKET: Duration = Duration::from_millis(100);
/// Those of a server's own default.
const BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Attempts to connect, when and to which server.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<(Instant, usize)>>>);

impl Attempts {
    fn note(&self, server: usize) {
        self.0.lock().unwrap().push((Instant::now(), server));
    }

    /// Those of the time that is counted.
    fn since(&self, begin: Instant) -> Vec<(Duration, usize)> {
        let all = self.0.lock().unwrap();
        let after = all.iter().filter_map(|(at, server)| Some((at.checked_duration_since(begin)?, *server)));
        after.filter(|(at, _)| *at < COUNTED).collect()
    }
}

/// What a server does to those who connect to it.
#[derive(Clone, Copy)]
enum Manner {
    ClosesAtOnce,
    SaysNothing,
}

/// Takes the place of a server.
fn impostor(listener: TcpListener, server: usize, manner: Manner, attempts: Attempts) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            attempts.note(server);
            if let Manner::SaysNothing = manner {
                tokio::spawn(
                    async move { while connection.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {} },
                );
            }
        }
    })
}

fn builder(driver: DriverKind, connect: &str) -> SessionBuilder {
    Session::builder(connect)
        .driver(driver)
        .session_timeout(TIMEOUT)
        .connect_timeout(Duration::from_secs(30))
        .tick_time(TICK)
}

/// Judges what came in the time that is counted.
fn judge(what: &str, attempts: &[(Duration, usize)], per_session_and_second: f64) {
    let rate = attempts.len() as f64 / COUNTED.as_secs_f64() / SESSIONS as f64;
    let mut buckets = vec![0usize; (COUNTED.as_millis() / BUCKET.as_millis()) as usize];
    let mut servers = [0usize; SERVERS];
    for (at, server) in attempts {
        buckets[(at.as_millis() / BUCKET.as_millis()) as usize] += 1;
        servers[*server] += 1;
    }
    println!(
        "{what}: {rate:.1} attempts per session and second; by 100 ms {buckets:?}; by server {servers:?}"
    );
    assert!(attempts.len() >= SESSIONS * SERVERS, "{what}: {} attempts: they gave up", attempts.len());
    assert!(rate <= per_session_and_second, "{what}: {rate:.1} attempts per session and second");
    // Past the first second, in which all of them are at the beginning of their pauses.
    let later = &buckets[10..];
    let (sum, most) = (later.iter().sum::<usize>(), later.iter().max().copied().unwrap_or(0));
    assert!(most * 3 <= sum, "{what}: {most} of {sum} within 100 ms: they go in step");
    assert!(most <= SESSIONS * 5, "{what}: {most} within 100 ms");
    let filled = later.iter().filter(|count| **count > 0).count();
    assert!(filled * 2 >= later.len(), "{what}: attempts in {filled} of {} intervals", later.len());
    for count in servers {
        assert!(count * SERVERS * 2 >= attempts.len(), "{what}: {servers:?}: not shared fairly");
    }
}

async fn fifty_lose_their_servers(driver: DriverKind, manner: Manner, what: &str) {
    let _alone = crate::ALONE.lock().await;
    let zookeeper = crate::common::servers(1, TICK, BOUNDS).await;
    // Three ways to the server, so that connections can be told apart from attempts that come later.
    let mut proxies = Vec::new();
    for _ in 0..SERVERS {
        proxies.push(Proxy::start(zookeeper.addresses()[0]).await.unwrap());
    }
    let addresses: Vec<SocketAddr> = proxies.iter().map(Proxy::addr).collect();
    let connect = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let sessions = join_all((0..SESSIONS).map(|_| builder(driver, &connect).connect())).await;
    let sessions: Vec<Session> = sessions.into_iter().map(Result::unwrap).collect();
    eventually("a connection each", || async {
        proxies.iter().map(Proxy::connections).sum::<usize>() == SESSIONS
    })
    .await;
    let shares: Vec<usize> = proxies.iter().map(Proxy::connections).collect();
    println!("{what}: connections by server {shares:?}");
    // Which of them answered in time is the machine's doing; that the choice is fair has a test of its own.
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}: a server that nobody lost tells nothing");

    // They all lose it at the same moment, and find impostors in its place.
    let attempts = Attempts::default();
    drop(proxies);
    let begin = Instant::now();
    let mut impostors = Vec::new();
    for (server, address) in addresses.iter().enumerate() {
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) if begin.elapsed() < Duration::from_secs(10) => tokio::time::sleep(BUCKET / 10).await,
                Err(error) => panic!("{address}: {error}"),
            }
        };
        impostors.push(impostor(listener, server, manner, attempts.clone()));
    }
    let begin = Instant::now();
    // What is counted is what happens in this time.
    tokio::time::sleep(COUNTED).await;
    judge(what, &attempts.since(begin), PER_SESSION_AND_SECOND);
    join_all(sessions.iter().map(|session| session.close(Duration::from_millis(100)))).await;
    impostors.iter().for_each(JoinHandle::abort);
}

async fn servers_that_close_at_once_are_not_stormed(driver: DriverKind) {
    fifty_lose_their_servers(driver, Manner::ClosesAtOnce, "closed at once").await;
}

async fn servers_that_say_nothing_are_not_stormed(driver: DriverKind) {
    fifty_lose_their_servers(driver, Manner::SaysNothing, "silent").await;
}

/// Nobody sees a connection that is refused, so the kernel's own count of them is taken: for each it answers with a reset.
async fn servers_that_refuse_are_not_stormed(driver: DriverKind) {
    // Bound and not listening: nobody else gets the ports.
    let bound: Vec<_> = (0..SERVERS).map(|_| tokio::net::TcpSocket::new_v4().unwrap()).collect();
    for socket in &bound {
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    }
    let connect: Vec<String> = bound.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    let connect = connect.join(",");
    let connecting = (0..SESSIONS).map(|_| {
        let connecting = builder(driver, &connect).connect_timeout(COUNTED).connect();
        tokio::spawn(async move { drop(connecting.await.unwrap_err()) })
    });
    let before = failed_connects();
    let connecting: Vec<_> = connecting.collect();
    for session in connecting {
        session.await.unwrap();
    }
    let rate = (failed_connects() - before) as f64 / COUNTED.as_secs_f64() / SESSIONS as f64;
    println!("refused: {rate:.1} attempts per session and second");
    assert!(rate >= 0.5, "{rate:.1} attempts per session and second: they gave up");
    assert!(rate <= PER_SESSION_AND_SECOND, "{rate:.1} attempts per session and second");
}

/// `AttemptFails` of this network namespace: other tests count in, so it is an upper bound.
fn failed_connects() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut tcp = text.lines().filter_map(|line| line.strip_prefix("Tcp:")).map(str::split_whitespace);
    let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let counts: HashMap<&str, &str> = names.zip(values).collect();
    counts["AttemptFails"].parse().unwrap()
}

async fn sessions_share_the_servers_and_their_first_choice_among_them(driver: DriverKind) {
    let _alone = crate::ALONE.lock().await;
    let attempts = Attempts::default();
    let mut addresses = Vec::new();
    let mut impostors = Vec::new();
    for server in 0..SERVERS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap().to_string());
        impostors.push(handshakes(listener, server, attempts.clone()));
    }
    let connect = addresses.join(",");
    let connecting = (0..SESSIONS).map(|_| {
        let connecting = builder(driver, &connect).connect_timeout(Duration::from_secs(10)).connect();
        async move { tokio::time::timeout(Duration::from_secs(2), connecting).await.is_err() }
    });
    assert!(join_all(connecting).await.into_iter().all(|no_session| no_session));
    // The first handshake of each session: the others of its first round follow as its servers stay silent.
    let mut all = attempts.0.lock().unwrap().clone();
    all.sort();
    let mut firsts = [0usize; SERVERS];
    all.iter().take(SESSIONS).for_each(|(_, server)| firsts[*server] += 1);
    println!("first handshakes by server: {firsts:?}");
    assert!(firsts.iter().all(|first| *first >= SESSIONS / 10), "{firsts:?}: not shared fairly");
    impostors.iter().for_each(JoinHandle::abort);
}

/// Counts those who say something, and not those who only look whether somebody listens.
fn handshakes(listener: TcpListener, server: usize, attempts: Attempts) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let attempts = attempts.clone();
            tokio::spawn(async move {
                let mut request = [0; 64];
                if connection.read(&mut request).await.is_ok_and(|n| n > 0) {
                    attempts.note(server);
                    while connection.read(&mut request).await.is_ok_and(|n| n > 0) {}
                }
            });
        }
    })
}

/// Two servers take connections and say nothing, one is well: however the order falls, a session comes about in time.
async fn every_attempt_to_connect_is_bounded(driver: DriverKind) {
    let _alone = crate::ALONE.lock().await;
    let zookeeper = crate::common::servers(1, TICK, BOUNDS).await;
    let (one, two) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let connect =
        format!("{},{},{}", one.local_addr().unwrap(), two.local_addr().unwrap(), zookeeper.addresses()[0]);
    let attempts = Attempts::default();
    let impostors = [
        impostor(one, 0, Manner::SaysNothing, attempts.clone()),
        impostor(two, 1, Manner::SaysNothing, attempts),
    ];
    let within = Duration::from_secs(12);
    let connecting = (0..10).map(|_| async {
        let started = Instant::now();
        let session = builder(driver, &connect).connect_timeout(within).connect().await.unwrap();
        session.close(Duration::from_secs(2)).await;
        started.elapsed()
    });
    let took = join_all(connecting).await;
    println!("sessions made after {took:?}");
    assert!(took.iter().all(|took| *took < within + Duration::from_secs(3)));
    impostors.iter().for_each(JoinHandle::abort);
}
