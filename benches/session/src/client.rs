//! The measured clients, behind one interface.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tokio::sync::Mutex;
use zk_session::{CreateMode, DriverKind, Session};
use zookeeper_async::{WatchedEvent, ZooKeeper};

use crate::setting::{DATA, SESSION_TIMEOUT, TICK};
use crate::socket::Socket;

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No client, but the reference for all clients.
    Socket,
    /// Client crates, used directly.
    ZookeeperClient,
    ZookeeperAsync,
    /// The Python client.
    Kazoo,
    /// A session of zk-session.
    Session(DriverKind),
}

impl Kind {
    const RAW: [Self; 4] = [Self::Socket, Self::ZookeeperClient, Self::ZookeeperAsync, Self::Kazoo];

    /// All of them, each session after the client that carries it.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Self::RAW.to_vec();
        for session in DriverKind::ALL.map(Self::Session) {
            let beneath = session.beneath().unwrap_or(Self::Socket);
            let at = all.iter().position(|kind| *kind == beneath).map_or(all.len(), |at| at + 1);
            all.insert(at, session);
        }
        all
    }

    /// The client crate that carries it, with the driver's name.
    pub(crate) fn beneath(self) -> Option<Self> {
        let Self::Session(driver) = self else { return None };
        Self::RAW.into_iter().find(|raw| raw.to_string() == driver.to_string())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Socket => "socket".to_owned(),
            Self::ZookeeperClient => "zookeeper-client".to_owned(),
            Self::ZookeeperAsync => "zookeeper-async".to_owned(),
            Self::Kazoo => "kazoo".to_owned(),
            Self::Session(driver) => format!("session/{driver}"),
        };
        f.pad(&name)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = Self::all().iter().map(Self::to_string).collect();
            format!("no client is called {name}; there are: {}", known.join(", "))
        })
    }
}

/// A connected client.
#[derive(Clone)]
pub(crate) enum Client {
    Socket(Arc<Mutex<Socket>>),
    Client(zookeeper_client::Client),
    Async(Arc<ZooKeeper>),
    Session(Session),
}

impl Client {
    pub(crate) async fn connect(kind: Kind, address: &str) -> Result<Self, String> {
        match kind {
            Kind::Socket => Socket::connect(address).await.map(Self::Socket),
            Kind::ZookeeperClient => {
                let connector = zookeeper_client::Client::connector().with_session_timeout(SESSION_TIMEOUT);
                connector.connect(address).await.map(Self::Client).map_err(|error| error.to_string())
            }
            Kind::ZookeeperAsync => {
                let connected = ZooKeeper::connect(address, SESSION_TIMEOUT, |_: WatchedEvent| {}).await;
                connected.map(|client| Self::Async(Arc::new(client))).map_err(|error| error.to_string())
            }
            Kind::Session(driver) => {
                let builder = Session::builder(address).driver(driver);
                let connecting = builder.session_timeout(SESSION_TIMEOUT).tick_time(TICK).connect();
                connecting.await.map(Self::Session).map_err(|error| error.to_string())
            }
            Kind::Kazoo => Err(format!("{kind} is no client of this process")),
        }
    }

    /// The znode of the loads, new and with data.
    pub(crate) async fn prepare(&self, path: &str) -> Result<(), String> {
        let data = vec![0; DATA];
        match self {
            Self::Socket(socket) => socket.lock().await.create(path).await,
            Self::Client(client) => {
                let options =
                    zookeeper_client::CreateMode::Ephemeral.with_acls(zookeeper_client::Acls::anyone_all());
                client.create(path, &data, &options).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Async(client) => {
                let acl = zookeeper_async::Acl::open_unsafe().clone();
                let mode = zookeeper_async::CreateMode::Ephemeral;
                client.create(path, data, acl, mode).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Session(session) => {
                let created = session.create(path, data, CreateMode::Ephemeral).await;
                created.map(drop).map_err(|error| error.to_string())
            }
        }
    }

    pub(crate) async fn read(&self, path: &str) -> Result<(), String> {
        let read = match self {
            Self::Socket(socket) => return socket.lock().await.read(path).await,
            Self::Client(client) => {
                client.get_data(path).await.map(|(data, _)| data.len()).map_err(|error| error.to_string())
            }
            Self::Async(client) => {
                let read = client.get_data(path, false).await;
                read.map(|(data, _)| data.len()).map_err(|error| error.to_string())
            }
            Self::Session(session) => match session.get(path).await {
                Ok(node) => Ok(node.map_or(0, |node| node.data.len())),
                Err(error) => Err(error.to_string()),
            },
        }?;
        if read == DATA { Ok(()) } else { Err(format!("{read} bytes were read instead of {DATA}")) }
    }

    pub(crate) async fn write(&self, path: &str, data: &[u8]) -> Result<(), String> {
        match self {
            Self::Socket(socket) => socket.lock().await.write(path, data).await,
            Self::Client(client) => {
                client.set_data(path, data, None).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Async(client) => {
                let written = client.set_data(path, data.to_vec(), None).await;
                written.map(drop).map_err(|error| error.to_string())
            }
            Self::Session(session) => {
                session.set(path, data, None).await.map(drop).map_err(|error| error.to_string())
            }
        }
    }
}
