#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acl;
mod administration;
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
mod lasting;
mod lease;
mod multi;
mod node;
mod operations;
mod path;
mod resolve;
mod secret;
mod session;
mod shared;
mod state;
mod subtree;
mod supervisor;
mod time;
mod watching;

pub use acl::{AccessList, Acl, AclEntry, Id, permission};
pub use administration::{ReadOp, ReadResult, Reconfiguration};
pub use config::{DriverKind, TlsOptions, UnknownDriver};
pub use error::{Closed, ConnectError, HostFailure, NoLease, OpError, UnknownCause};
pub use held::{HeldEphemeral, HeldStatus};
pub use incarnation::{Incarnation, SessionPin};
pub use instruments::{REQUEST_SECONDS_BUCKETS, describe_metrics};
pub use lasting::{Change, ChangeKind, ChangeWatch};
pub use lease::{Lease, LeaseTiming, lease_margin};
pub use multi::{MultiOp, MultiResult};
pub use node::{Children, CreateMode, Created, Epoch, Node, SessionId, Stat};
pub use operations::Recovery;
pub use secret::{Secret, SecretFileError};
pub use session::{CloseOutcome, LeaseKeeper, Session, SessionBuilder};
pub use state::{InactiveReason, SessionState};
pub use time::{BootTime, sleep_until};
pub use watching::{ChildrenWatch, DataWatch, Observed};
pub use zk_proto::Ticket;
