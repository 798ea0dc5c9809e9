#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod acl;
mod backoff;
mod driver;
mod driver_kind;
mod error;
mod features;
mod handle;
mod instruments;
mod lease;
mod lock;
mod locks;
mod node;
mod operations;
mod path;
mod servers;
mod session;
mod settings;
mod time;
mod watch;

pub use acl::{AccessList, Acl, AclEntry, Id, permission};
pub use boot_time::{BootTime, sleep_until};
pub use driver::close::CloseOutcome;
pub use driver_kind::{DriverKind, UnknownDriver};
pub use error::{
    Closed, ConnectError, HostFailure, InactiveReason, NoLease, OpError, UnknownCause, WatchError,
};
pub use handle::builder::SessionBuilder;
pub use handle::lease_keeper::LeaseKeeper;
pub use handle::session::Session;
pub use instruments::{REQUEST_SECONDS_BUCKETS, describe_metrics};
pub use lease::{Lease, LeaseTiming, lease_margin};
pub use locks::{Lock, LockGuard, ReadWriteLock, Semaphore};
pub use node::{Children, CreateMode, Created, Epoch, Node, SessionId, Stat};
pub use operations::Recovery;
pub use operations::administration::{ReadOp, ReadResult, Reconfiguration};
pub use operations::multi::{MultiOp, MultiResult};
#[cfg(feature = "tls")]
pub use rustls;
pub use servers::hosts::check_connect;
pub use session::changes::{Change, ChangeKind};
pub use session::incarnation::{Incarnation, ReliedOn, SessionPin};
pub use session::state::SessionState;
pub use settings::secret::{Secret, SecretFileError};
#[cfg(feature = "tls")]
pub use settings::tls::TlsOptions;
pub use watch::held::{HeldEphemeral, HeldStatus};
pub use watch::lasting::ChangeWatch;
pub use watch::stream::Watch;
pub use watch::value::{ChildrenWatch, DataWatch, Observed};
pub use zk_proto::Ticket;
