//! The clients that are measured, behind one interface.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use zk_session::{CreateMode, DriverKind, Session};
use zookeeper_async::{WatchedEvent, ZooKeeper};

use crate::setting::{DATA, SESSION_TIMEOUT, TICK};

/// Which client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A client crate by itself.
    Raw(DriverKind),
    /// A session of ours over it.
    Session(DriverKind),
    /// The Python client.
    Kazoo,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Raw(DriverKind::ZookeeperClient),
        Self::Session(DriverKind::ZookeeperClient),
        Self::Raw(DriverKind::ZookeeperAsync),
        Self::Session(DriverKind::ZookeeperAsync),
        Self::Kazoo,
    ];

    /// What carries it.
    pub(crate) fn beneath(self) -> Option<Self> {
        match self {
            Self::Session(driver) => Some(Self::Raw(driver)),
            Self::Raw(_) | Self::Kazoo => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Raw(driver) => driver.to_string(),
            Self::Session(driver) => format!("session/{driver}"),
            Self::Kazoo => "kazoo".to_owned(),
        };
        f.pad(&name)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            format!("no client is called {name}; there are: {}", known.join(", "))
        })
    }
}

/// A connected one.
#[derive(Clone)]
pub(crate) enum Client {
    Client(zookeeper_client::Client),
    Async(Arc<ZooKeeper>),
    Session(Session),
}

impl Client {
    pub(crate) async fn connect(kind: Kind, address: &str) -> Result<Self, String> {
        match kind {
            Kind::Raw(DriverKind::ZookeeperClient) => {
                let connector = zookeeper_client::Client::connector().with_session_timeout(SESSION_TIMEOUT);
                connector.connect(address).await.map(Self::Client).map_err(|error| error.to_string())
            }
            Kind::Raw(DriverKind::ZookeeperAsync) => {
                let connected = ZooKeeper::connect(address, SESSION_TIMEOUT, |_: WatchedEvent| {}).await;
                connected.map(|client| Self::Async(Arc::new(client))).map_err(|error| error.to_string())
            }
            Kind::Session(driver) => {
                let builder = Session::builder(address).driver(driver);
                let connecting = builder.session_timeout(SESSION_TIMEOUT).tick_time(TICK).connect();
                connecting.await.map(Self::Session).map_err(|error| error.to_string())
            }
            other => Err(format!("{other} is no client of this process")),
        }
    }

    /// The znode that the loads are about, new and with data.
    pub(crate) async fn prepare(&self, path: &str) -> Result<(), String> {
        let data = vec![0; DATA];
        match self {
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
