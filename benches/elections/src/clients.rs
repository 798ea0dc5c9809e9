//! The clients of the benchmark itself, and the unit W.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use zk_session::{CreateMode, Session};

/// New servers run slowly at first: so many writes by each client before the first that is measured.
const WARM_UP: usize = 200;

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Sessions with the native driver, one with each server.
pub struct Clients {
    sessions: Vec<Session>,
    addresses: Vec<SocketAddr>,
    tick: Duration,
    /// The server that was used last by [`next_server`](Self::next_server).
    turn: usize,
    written: u64,
}

impl Clients {
    /// Connects to each server, and lets the servers warm up. `tick` is their tickTime.
    ///
    /// # Errors
    /// If a server can't be reached.
    pub async fn connect(addresses: &[SocketAddr], tick: Duration) -> Result<Self, String> {
        let mut clients =
            Self { sessions: Vec::new(), addresses: addresses.to_vec(), tick, turn: 0, written: 0 };
        for server in 0..addresses.len() {
            let session = clients.another(server).await?;
            clients.sessions.push(session);
        }
        let Some(first) = clients.sessions.first() else { return Err("there are no servers".to_owned()) };
        first.create_parents(&path("x")).await.map_err(|error| error.to_string())?;
        for server in 0..addresses.len() {
            let created = first.create(&path(&format!("unit-{server}")), b"0", CreateMode::Ephemeral).await;
            created.map_err(|error| error.to_string())?;
        }
        clients.round_trips(WARM_UP).await?;
        Ok(clients)
    }

    /// Another session with a server.
    pub(crate) async fn another(&self, server: usize) -> Result<Session, String> {
        let address = self.addresses[server % self.addresses.len()];
        let builder =
            Session::builder(address.to_string()).session_timeout(SESSION_TIMEOUT).tick_time(self.tick);
        builder.connect().await.map_err(|error| format!("{address}: {error}"))
    }

    /// The session with a server; servers count from 0, and again.
    #[must_use]
    pub fn of(&self, server: usize) -> &Session {
        &self.sessions[server % self.sessions.len()]
    }

    /// The session with the next server.
    pub fn of_next(&mut self) -> &Session {
        let server = self.next_server();
        self.of(server)
    }

    /// The number of a server, another one with each call: which of them leads the ensemble makes a difference.
    pub(crate) fn next_server(&mut self) -> usize {
        self.turn = (self.turn + 1) % self.sessions.len();
        self.turn
    }

    /// W: so many writes by each client, one after the other, each through a quorum.
    ///
    /// # Errors
    /// If a write fails.
    pub async fn round_trips(&mut self, each: usize) -> Result<Vec<Duration>, String> {
        let mut all = Vec::with_capacity(each * self.sessions.len());
        for _ in 0..each {
            for server in 0..self.sessions.len() {
                all.push(self.write(server).await?);
            }
        }
        Ok(all)
    }

    /// One write by the next client, when no client has written anything for that long: caches are cold then, and threads
    /// asleep.
    ///
    /// # Errors
    /// If the write fails.
    pub async fn write_after(&mut self, rest: Duration) -> Result<Duration, String> {
        sleep(rest).await;
        let server = self.next_server();
        self.write(server).await
    }

    async fn write(&mut self, server: usize) -> Result<Duration, String> {
        self.written += 1;
        let (path, data) = (path(&format!("unit-{server}")), self.written.to_string());
        let begun = Instant::now();
        self.of(server).set(&path, data, None).await.map_err(|error| error.to_string())?;
        Ok(begun.elapsed())
    }
}

/// The path of a znode of the benchmark itself.
pub(crate) fn path(name: &str) -> String {
    format!("/bench-itself/{name}")
}
