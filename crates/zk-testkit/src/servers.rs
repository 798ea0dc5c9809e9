//! Servers of either kind, for one test on both.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Ensemble, Error, TestServer};

/// The kind of servers for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ServerKind {
    /// Apache ZooKeeper, as [`Ensemble`] starts it.
    #[default]
    Apache,
    /// The embedded server, [`TestServer`].
    Embedded,
}

/// Servers of either kind, for tests that run on both.
/// Methods that only one kind has are called on the value inside.
#[derive(Debug)]
pub enum Servers {
    /// Apache ZooKeeper.
    Apache(Box<Ensemble>),
    /// The embedded server.
    Embedded(TestServer),
}

impl Servers {
    /// Starts servers of that kind with that `tickTime`, and otherwise with the
    /// defaults of [`Ensemble::builder`] and [`TestServer::builder`], which are the same except for
    /// [`ttl_nodes`](crate::EnsembleBuilder::ttl_nodes).
    ///
    /// # Errors
    /// For Apache ZooKeeper what is missing on this machine, or which server did not start and the end of its
    /// log; for the embedded server [`Error::Io`] if it can't listen.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start(kind: ServerKind, servers: usize, tick: Duration) -> Result<Self, Error> {
        Ok(match kind {
            ServerKind::Apache => {
                let ensemble = Ensemble::builder().servers(servers).tick_time(tick).start().await?;
                Self::Apache(Box::new(ensemble))
            }
            ServerKind::Embedded => {
                Self::Embedded(TestServer::builder().servers(servers).tick_time(tick).start().await?)
            }
        })
    }

    /// The connect string for clients: `127.0.0.1:p1,127.0.0.1:p2,...`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        match self {
            Self::Apache(ensemble) => ensemble.connect_string(),
            Self::Embedded(server) => server.connect_string(),
        }
    }

    /// The addresses for clients, in the order of the servers.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Apache(ensemble) => ensemble.addresses(),
            Self::Embedded(server) => server.addresses(),
        }
    }

    /// The index of the server that leads, `None` while none does.
    pub async fn leader(&self) -> Option<usize> {
        match self {
            Self::Apache(ensemble) => ensemble.leader().await,
            Self::Embedded(server) => server.leader(),
        }
    }

    /// Ends a server, which keeps its data.
    ///
    /// # Errors
    /// [`Error::NotRunning`]; [`Error::Io`] if its process or its port can't be controlled.
    pub async fn stop(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.stop(index).await,
            Self::Embedded(server) => server.stop(index).await,
        }
    }

    /// Starts a server that was stopped.
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`]; for Apache ZooKeeper that it did not start, with the end of its log; for the
    /// embedded server [`Error::Io`] if it can't listen.
    pub async fn start_server(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.start_server(index).await,
            Self::Embedded(server) => server.start_server(index).await,
        }
    }

    /// Cuts a server off from the others, and not from its clients.
    ///
    /// # Errors
    /// [`Error::Settings`] unless Apache ZooKeeper was built for it (see
    /// [`EnsembleFaults::isolate`](crate::EnsembleFaults::isolate)), [`Error::NoNamespaces`] if `iptables`
    /// refuses. None with the embedded server.
    pub fn isolate(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.faults().isolate(index),
            Self::Embedded(server) => {
                server.faults().isolate(index);
                Ok(())
            }
        }
    }

    /// Ends [`isolate`](Self::isolate).
    ///
    /// # Errors
    /// [`Error::Settings`] unless Apache ZooKeeper was built for it, [`Error::NoNamespaces`] if `iptables`
    /// refuses. None with the embedded server.
    pub fn rejoin(&self, index: usize) -> Result<(), Error> {
        match self {
            Self::Apache(ensemble) => ensemble.faults().rejoin(index),
            Self::Embedded(server) => {
                server.faults().rejoin(index);
                Ok(())
            }
        }
    }
}
