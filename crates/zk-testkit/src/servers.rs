//! One test, two servers.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Ensemble, Error, TestServer};

/// Which servers a test is to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServerKind {
    /// Apache ZooKeeper, as [`Ensemble`] starts it.
    #[default]
    Apache,
    /// The [`TestServer`] in this process.
    InProcess,
}

/// Servers of either kind, for tests that are to hold on both.
///
/// What only one of them can do is done to the value inside.
#[derive(Debug)]
pub enum Servers {
    /// Apache ZooKeeper.
    Apache(Box<Ensemble>),
    /// The server in this process.
    InProcess(TestServer),
}

impl Servers {
    /// Starts servers of that kind with that `tickTime`, and otherwise with the
    /// defaults of [`Ensemble::builder`] and [`TestServer::builder`], which are alike.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn start(kind: ServerKind, servers: usize, tick: Duration) -> Result<Self, Error> {
        Ok(match kind {
            ServerKind::Apache => {
                let ensemble = Ensemble::builder().servers(servers).tick_time(tick).start().await?;
                Self::Apache(Box::new(ensemble))
            }
            ServerKind::InProcess => {
                Self::InProcess(TestServer::builder().servers(servers).tick_time(tick).start().await?)
            }
        })
    }

    /// What a client is given: `127.0.0.1:p1,127.0.0.1:p2,...`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        match self {
            Self::Apache(ensemble) => ensemble.connect_string(),
            Self::InProcess(server) => server.connect_string(),
        }
    }

    /// Where clients connect, in the order of the servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Apache(ensemble) => ensemble.addresses(),
            Self::InProcess(server) => server.addresses(),
        }
    }

    /// The index of the server that leads, `None` while none does.
    pub async fn leader(&self) -> Option<usize> {
        match self {
            Self::Apache(ensemble) => ensemble.leader().await,
            Self::InProcess(server) => server.leader(),
        }
    }

    /// Ends a server, which keeps its data.
    ///
    /// # Errors
    /// As [`Ensemble::stop`] and [`TestServer::stop`].
    pub async fn stop(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.stop(index).await,
            Self::InProcess(server) => server.stop(index).await,
        }
    }

    /// Starts a server that was stopped.
    ///
    /// # Errors
    /// As [`Ensemble::start_server`] and [`TestServer::start_server`].
    pub async fn start_server(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.start_server(index).await,
            Self::InProcess(server) => server.start_server(index).await,
        }
    }

    /// Cuts a server off from the others, and not from its clients.
    ///
    /// # Errors
    /// As [`Ensemble::isolate`]: Apache ZooKeeper has to be built for it.
    pub fn isolate(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.isolate(index),
            Self::InProcess(server) => {
                server.isolate(index);
                Ok(())
            }
        }
    }

    /// Ends [`isolate`](Self::isolate).
    ///
    /// # Errors
    /// As there.
    pub fn rejoin(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.rejoin(index),
            Self::InProcess(server) => {
                server.rejoin(index);
                Ok(())
            }
        }
    }
}
