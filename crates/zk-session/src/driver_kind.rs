//! The client implementations.

use std::fmt;
use std::str::FromStr;

/// The client implementation of a session. The section 'Drivers' of the crate's documentation compares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DriverKind {
    /// This crate's own, over `zk-proto`.
    #[default]
    Native,
    /// The crate `zookeeper-async` over the same core. Needs the feature of that name.
    ZookeeperAsync,
}

impl DriverKind {
    /// All kinds, compiled in or not.
    pub const ALL: [Self; 2] = [Self::Native, Self::ZookeeperAsync];
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::ZookeeperAsync => "zookeeper-async",
        })
    }
}

/// No driver has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown driver {0:?}: use \"native\" or \"zookeeper-async\"")]
pub struct UnknownDriver(String);

impl FromStr for DriverKind {
    type Err = UnknownDriver;

    fn from_str(name: &str) -> Result<Self, UnknownDriver> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| UnknownDriver(name.to_owned()))
    }
}
