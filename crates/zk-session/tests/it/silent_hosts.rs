//! Servers that are tried side by side: hosts that say nothing hold nobody up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::{TICK, eventually};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use zk_session::{CreateMode, DriverKind, Session, SessionBuilder};
use zk_testkit::Proxy;

on_each_server!(
    a_session_is_made_beside_hosts_that_say_nothing,
    a_lost_connection_is_replaced_beside_hosts_that_say_nothing,
);

/// So often, for the order of the servers is left to chance.
const ROUNDS: usize = 6;
/// Whoever waits for a silent host waits for twice as long.
const SOON: Duration = Duration::from_secs(4);
/// Whose parts are long enough to be told from what a busy machine adds.
const TIMEOUT: Duration = Duration::from_secs(40);

/// One that takes connections and says nothing, and one that takes none and refuses none.
struct Silent {
    mute: TcpListener,
    full: SocketAddr,
    _crowd: (TcpListener, Vec<TcpStream>),
}

impl Silent {
    async fn start() -> Self {
        let mute = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let full = listener.local_addr().unwrap();
        let mut crowd = Vec::new();
        // Until the kernel lets the next one wait.
        while let Ok(stream) =
            tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(full)).await
        {
            crowd.push(stream.unwrap());
            assert!(crowd.len() < 100, "it takes everybody");
        }
        Self { mute, full, _crowd: (listener, crowd) }
    }

    /// How many connections the one that takes them has.
    async fn asked(&self) -> usize {
        let mut taken = Vec::new();
        while let Ok(next) = tokio::time::timeout(Duration::from_millis(10), self.mute.accept()).await {
            taken.push(next.unwrap());
        }
        taken.len()
    }

    fn and(&self, others: &str) -> String {
        format!("{},{},{others}", self.mute.local_addr().unwrap(), self.full)
    }
}

fn builder(driver: DriverKind, connect: String) -> SessionBuilder {
    Session::builder(connect)
        .driver(driver)
        .session_timeout(TIMEOUT)
        .connect_timeout(Duration::from_secs(15))
        .tick_time(TICK)
}

async fn a_session_is_made_beside_hosts_that_say_nothing(driver: DriverKind) {
    let servers = crate::common::servers(1, TICK, (TICK * 2, TIMEOUT)).await;
    let silent = Silent::start().await;
    for round in 0..ROUNDS {
        let began = Instant::now();
        let session = builder(driver, silent.and(&servers.connect_string())).connect().await.unwrap();
        let took = began.elapsed();
        println!("{round}: {took:?}");
        assert!(took < SOON, "{took:?}");
        session.close(SOON).await;
    }
}

async fn a_lost_connection_is_replaced_beside_hosts_that_say_nothing(driver: DriverKind) {
    let servers = crate::common::servers(1, TICK, (TICK * 2, TIMEOUT)).await;
    let silent = Silent::start().await;
    let address = servers.addresses()[0];
    let ways = [Proxy::start(address).await.unwrap(), Proxy::start(address).await.unwrap()];
    let both = format!("{},{}", ways[0].addr(), ways[1].addr());
    let session = builder(driver, silent.and(&both)).connect().await.unwrap();
    let id = session.active().await.unwrap().session_id();
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    for round in 0..ROUNDS {
        eventually("one connection", async || ways[0].connections() + ways[1].connections() == 1).await;
        let (here, there) =
            if ways[0].connections() == 1 { (&ways[0], &ways[1]) } else { (&ways[1], &ways[0]) };
        here.refuse(true).await.unwrap();
        let began = Instant::now();
        here.cut().await;
        eventually("the other connection", async || there.connections() == 1).await;
        session.barrier().await.unwrap();
        let took = began.elapsed();
        println!("{round}: {took:?}");
        assert!(took < SOON, "{took:?}");
        here.refuse(false).await.unwrap();
    }
    assert!(silent.asked().await <= 1, "it is asked again, and was silent before");
    assert_eq!(session.active().await.unwrap().session_id(), id);
    assert!(session.get("/mine").await.unwrap().unwrap().stat.is_owned_by(id));
}
