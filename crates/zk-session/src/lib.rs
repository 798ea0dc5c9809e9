//! A ZooKeeper session that recovers and knows its own state.

#![forbid(unsafe_code)]

mod attempts;
mod backoff;
mod config;
mod driver;
mod error;
mod establish;
mod held;
mod hosts;
mod incarnation;
mod instruments;
mod lease;
mod node;
mod operations;
mod path;
mod resolve;
mod session;
mod state;
mod supervisor;
mod time;
mod watching;

pub use config::{DriverKind, Secret, UnknownDriver};
pub use error::{Closed, ConnectError, HostFailure, OpError, UnknownCause};
pub use held::{HeldEphemeral, HeldStatus};
pub use incarnation::{Incarnation, Tether};
pub use instruments::describe_metrics;
pub use lease::{Lease, beat_interval, lease_margin};
pub use node::{Children, CreateMode, Created, Epoch, Node, SessionId, Stat};
pub use operations::Recovery;
pub use session::{CloseOutcome, LeaseKeeper, Session, SessionBuilder};
pub use state::{InactiveReason, SessionState};
pub use time::{BootTime, sleep_until};
pub use watching::{ChildrenWatch, DataWatch, Observed};
