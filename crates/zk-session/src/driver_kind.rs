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
    /// The crate `zookeeper-async` over the same core.
    #[cfg(feature = "zookeeper-async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "zookeeper-async")))]
    ZookeeperAsync,
}

impl DriverKind {
    /// All kinds that are compiled in.
    #[cfg(feature = "zookeeper-async")]
    pub const ALL: [Self; 2] = [Self::Native, Self::ZookeeperAsync];

    /// All kinds that are compiled in.
    #[cfg(not(feature = "zookeeper-async"))]
    pub const ALL: [Self; 1] = [Self::Native];
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            #[cfg(feature = "zookeeper-async")]
            Self::ZookeeperAsync => "zookeeper-async",
        })
    }
}

/// No driver that is compiled in has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown driver {0:?}: use \"native\", or \"zookeeper-async\", which needs the feature of that name in zk-session"
)]
pub struct UnknownDriver(String);

impl FromStr for DriverKind {
    type Err = UnknownDriver;

    fn from_str(name: &str) -> Result<Self, UnknownDriver> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        kind.ok_or_else(|| UnknownDriver(name.to_owned()))
    }
}
