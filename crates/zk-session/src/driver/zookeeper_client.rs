//! The driver over the crate `zookeeper-client`.

use super::{ConnectFailure, ConnectSpec, Connected};
use crate::config::DriverKind;

/// Makes a session.
pub(super) async fn connect(_spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    Err(ConnectFailure::NotBuilt { kind: DriverKind::ZookeeperClient })
}
