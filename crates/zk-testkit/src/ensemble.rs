//! The ensemble: servers that belong together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::admin::{self, Mode};
use crate::links::Links;
use crate::ports::PortReservation;
use crate::reaper::Reaper;
use crate::server::{Launch, Server};
use crate::times::FAR;
use crate::{Error, Network};

/// How often a server is asked while something is awaited.
const ASK_AGAIN: Duration = Duration::from_millis(25);
/// From SIGTERM to SIGKILL.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// For a process that was sent SIGKILL.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Real ZooKeeper servers on loopback, or each in a network namespace of its own, for as long as this value
/// lives.
///
/// Dropping it ends every server by its pid (SIGKILL, some milliseconds) and
/// removes the files, also on a panic; if this process is killed instead, a helper
/// process does the same within about a second. Only an ensemble that was built
/// [`detached`](crate::EnsembleBuilder::detached) stays.
///
/// All methods take `&self`, so tests may share one ensemble in a static.
/// Methods that take an index panic if there is no such server, as a slice does.
#[derive(Debug)]
pub struct Ensemble {
    // In this order: servers first, then who watches over them, then files and ports.
    pub(crate) servers: Vec<Server>,
    pub(crate) launch: Launch,
    pub(crate) start_within: Duration,
    pub(crate) ends_servers: bool,
    pub(crate) _reaper: Option<Reaper>,
    pub(crate) dir: PathBuf,
    pub(crate) links: Option<Links>,
    pub(crate) _temporary: Option<TempDir>,
    pub(crate) _ports: Option<PortReservation>,
    pub(crate) network: Option<Network>,
}

impl Ensemble {
    pub(crate) fn leave_running(&mut self) {
        self.ends_servers = false;
        for server in &self.servers {
            server.forget();
        }
    }

    /// The connect string for clients: `address:port,address:port,...`, one for each server.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// The addresses for clients, in the order of the servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    /// All servers, running or not.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// One server.
    #[must_use]
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The directory of the ensemble's files, one subdirectory for each server.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends a server by SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub async fn kill(&self, index: usize) -> Result<(), Error> {
        let server = self.server(index);
        server.signal(Signal::SIGKILL)?;
        if server.gone_by(Instant::now() + KILLED_WITHIN).await {
            return Ok(());
        }
        Err(Error::Timeout {
            what: format!("the end of server {index} after SIGKILL"),
            within: KILLED_WITHIN,
            detail: String::new(),
        })
    }

    /// Ends a server by SIGTERM, after ten seconds by SIGKILL, and waits until
    /// it is gone. A paused server is resumed first.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub async fn stop(&self, index: usize) -> Result<(), Error> {
        let server = self.server(index);
        server.signal(Signal::SIGTERM)?;
        // It may have ended by now.
        let _ = server.signal(Signal::SIGCONT);
        if server.gone_by(Instant::now() + STOP_WITHIN).await {
            return Ok(());
        }
        self.kill(index).await
    }

    /// Starts a server again that was killed or stopped, on the same ports and
    /// the same data, and waits until it listens. Without a quorum it does not serve yet. See
    /// [`wait_serving`](Self::wait_serving).
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`]; [`Error::Exited`] with the end of its log.
    pub async fn start_server(&self, index: usize) -> Result<(), Error> {
        let server = self.server(index);
        server.spawn(&self.launch)?;
        let deadline = Instant::now() + self.start_within;
        loop {
            server.running()?;
            if tokio::net::TcpStream::connect(server.address()).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("server {index} listening on {}", server.address()),
                    within: self.start_within,
                    detail: format!("; the end of its log:\n{}", server.log_tail()),
                });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Stops and starts every running server, one after the other, the leader last, as for an upgrade: the next
    /// one when the last one serves again, for which each has the time `within`. With three servers there is
    /// always a quorum.
    ///
    /// # Errors
    /// [`Error::NotRunning`], [`Error::AlreadyRunning`], [`Error::Exited`] or [`Error::Timeout`] for the first
    /// server that fails; the servers after it have not been restarted.
    ///
    /// # Cancel safety
    /// Dropping the future may leave one server stopped.
    pub async fn rolling_restart(&self, within: Duration) -> Result<(), Error> {
        let leader = self.leader().await;
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        order.retain(|index| self.servers[*index].pid().is_some());
        order.sort_by_key(|index| Some(*index) == leader);
        for index in order {
            self.stop(index).await?;
            self.start_server(index).await?;
            self.wait_server_serving(index, within).await?;
        }
        Ok(())
    }

    /// The network that the servers are on, for more hosts on it, if the ensemble was built
    /// [`in_namespaces`](crate::EnsembleBuilder::in_namespaces).
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The mode of a server; `None` while it does not serve.
    pub async fn mode(&self, index: usize) -> Option<Mode> {
        self.mode_of(self.server(index)).await.ok()
    }

    /// Its mode, or its other answer.
    async fn mode_of(&self, server: &Server) -> Result<Mode, String> {
        admin::mode_in(admin::ask(server.address(), "srvr", &self.launch).await)
    }

    /// The server that leads the ensemble's quorum (or is standalone), by the answers to `srvr`; `None` while
    /// there is none. Just after a leader was frozen or cut off, two may answer that they lead; then the one
    /// with the lowest index is returned.
    pub async fn leader(&self) -> Option<usize> {
        for server in &self.servers {
            if server.pid().is_none() {
                continue;
            }
            if let Ok(Mode::Leader | Mode::Standalone) = self.mode_of(server).await {
                return Some(server.index());
            }
        }
        None
    }

    /// Waits until every running server serves: has a quorum, or is standalone.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the answer of the last one; [`Error::Exited`].
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn wait_serving(&self, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within.min(FAR);
        for server in &self.servers {
            self.await_serving(server, within, deadline).await?;
        }
        Ok(())
    }

    /// Waits until one server serves.
    ///
    /// # Errors
    /// [`Error::Timeout`] with its last answer; [`Error::Exited`].
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn wait_server_serving(&self, index: usize, within: Duration) -> Result<(), Error> {
        self.await_serving(self.server(index), within, Instant::now() + within.min(FAR)).await
    }

    async fn await_serving(&self, server: &Server, within: Duration, deadline: Instant) -> Result<(), Error> {
        loop {
            if server.running()?.is_none() {
                return Ok(());
            }
            let said = match self.mode_of(server).await {
                Ok(Mode::ReadOnly) => "Mode: read-only".to_owned(),
                Ok(_) => return Ok(()),
                Err(said) => said,
            };
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("server {} serving", server.index()),
                    within,
                    detail: format!(
                        "; its answer to `srvr`: {said}; the end of {}:\n{}",
                        server.log().display(),
                        server.log_tail()
                    ),
                });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Sends a four-letter word (`srvr`, `mntr`, `conf`, `cons`, `dump`, ...) to
    /// a server and returns its answer.
    ///
    /// # Errors
    /// [`Error::Io`] if there is no answer within two seconds, or ten by TLS.
    pub async fn admin(&self, index: usize, word: &str) -> Result<String, Error> {
        let address = self.server(index).address();
        admin::ask(address, word, &self.launch).await.map_err(|error| Error::Io {
            context: format!("server {index} at {address} did not answer '{word}'"),
            error,
        })
    }

    /// Ends all servers, including detached ones, and waits until they are gone. Files in a directory of the
    /// caller's stay.
    pub fn end(mut self) {
        self.ends_servers = true;
    }

    pub(crate) fn spawn_all(&self) -> Result<(), Error> {
        self.servers.iter().try_for_each(|server| server.spawn(&self.launch))
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        if self.ends_servers {
            // All signals first, so that their ends overlap.
            for server in &self.servers {
                let _ = server.signal(Signal::SIGKILL);
            }
            for server in &self.servers {
                server.end_now();
            }
        }
    }
}
