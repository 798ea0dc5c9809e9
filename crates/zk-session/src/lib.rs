//! A ZooKeeper session that recovers and knows its own state.

#![forbid(unsafe_code)]

mod config;
mod driver;
mod error;
mod hosts;
mod lease;
mod node;
mod path;
mod state;
mod time;

pub use config::{DriverKind, Secret, UnknownDriver};
pub use error::{Closed, ConnectError, HostFailure, OpError, UnknownCause};
pub use lease::{Lease, beat_interval, lease_margin};
pub use node::{Children, CreateMode, Created, Epoch, Node, SessionId, Stat};
pub use state::{InactiveReason, SessionState};
pub use time::{BootTime, sleep_until};
