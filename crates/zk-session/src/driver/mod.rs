//! The drivers: client implementations that carry a session.
//!
//! **One driver value is one ZooKeeper session.** It may change its connection, never its session: when the session ends,
//! the driver reports it and is of no further use. Nothing outside this directory names a ZooKeeper client crate.
//!
//! Both drivers use `wire`: one task that keeps a [`zk_proto::Connection`] on some server. `zookeeper_async` has that crate
//! encode and decode the requests that it supports, over a pipe of its own to the same task.
//!
//! The contract:
//! - Each request ends in exactly one of: answered, refused or certainly not sent, perhaps applied.
//! - No request is sent on a connection that is known to be down; it is refused as [`DriverError::NotSent`].
//! - Requests of one driver reach ZooKeeper in the order in which they were handed over.
//! - Nothing that a server sends may panic, hang or block the caller's runtime.
//! - Dropping the last handle of a driver is [`Driver::abort`].

use std::sync::Arc;

use crate::driver::close::CloseOutcome;
use crate::driver_kind::DriverKind;

mod answers;
pub(crate) mod close;
mod contract;
mod dial;
mod refusal;
#[cfg(feature = "sasl")]
pub(crate) mod sasl;
mod search;
mod seek;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(feature = "tls")]
pub(crate) mod tls;
mod transport;
mod wire;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async;

pub(crate) use answers::Answers;
#[cfg(any(feature = "sasl", feature = "zookeeper-async"))]
pub(crate) use contract::unguessable;
pub(crate) use contract::{
    Along, Answer, BoxFuture, ConnectFailure, ConnectSpec, Connected, Driver, DriverError, DriverEvent,
    DriverResult, Place, answered, barrier,
};

/// Makes or resumes a session.
///
/// Answers by `spec.deadline`. Cancel safe: a session that is made nevertheless is aborted.
pub(crate) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    match spec.settings.driver {
        DriverKind::Native => {
            let (wire, events, sent) = wire::connect(spec).await?;
            Ok(Connected { driver: Arc::new(wire), events, sent })
        }
        #[cfg(feature = "zookeeper-async")]
        DriverKind::ZookeeperAsync => zookeeper_async::connect(spec).await,
    }
}

/// Resumes a session for nothing but to close it. Both drivers keep their sessions on `wire`, so this closes those of both.
///
/// Answers by `spec.deadline`. Cancel safe.
pub(crate) async fn close(spec: ConnectSpec) -> Result<CloseOutcome, ConnectFailure> {
    let deadline = spec.deadline;
    let (wire, _events, _) = wire::connect(spec).await?;
    Ok(wire.close(deadline).await)
}
