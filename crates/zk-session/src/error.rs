//! Errors. Each states whether the request was applied.

use std::time::Duration;

use crate::driver_kind::DriverKind;

/// The session has been closed by [`Session::close`](crate::Session::close), every handle of it was dropped, or the runtime
/// on which it lived has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ZooKeeper session has been closed by this process")]
pub struct Closed;

/// Why a watch returned no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The session is closed. Final.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The path is invalid, or ZooKeeper refuses the watch: [`OpError::is_refused`]. The next call asks again, after a pause
    /// that grows to seconds.
    #[error("cannot watch {0}")]
    Refused(OpError),
}

/// No lease can be given on a session: its server ends it with its connection, so it can end at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no lease is possible: this server ends a session with its connection, as ClickHouse Keeper does; \
     use Apache ZooKeeper for leases and elections"
)]
#[non_exhaustive]
pub struct NoLease;

/// Why [`SessionBuilder::connect`](crate::SessionBuilder::connect) made no session. Nothing is left running.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connect string is invalid.
    #[error("connect string {connect:?}: {reason}")]
    InvalidConnectString {
        /// As given.
        connect: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting is invalid.
    #[error("{reason}")]
    InvalidSetting {
        /// The setting, its value and its bounds.
        reason: String,
    },
    /// No server made a session within the connect timeout.
    #[error("ZooKeeper is not reachable: no session within {:.0?}: {}", .within, list(.hosts))]
    Unreachable {
        /// The connect timeout.
        within: Duration,
        /// Every host of the connect string and its last answer.
        hosts: Vec<HostFailure>,
    },
    /// Each server refused the credentials, or a majority did within the connect timeout and no server made a session.
    #[error("ZooKeeper refused the credentials: {reason}")]
    AuthFailed {
        /// The servers and their reasons.
        reason: String,
    },
    /// Each server granted a session timeout that is too short for the driver, or a majority did as above.
    #[error(
        "ZooKeeper granted a session timeout of {granted:?}, and {driver} needs at least {needed:?}: \
         raise session_timeout, or the server's maxSessionTimeout"
    )]
    TimeoutTooShort {
        /// The longest of them.
        granted: Duration,
        /// By the driver.
        needed: Duration,
        /// The driver.
        driver: DriverKind,
    },
    /// TLS failed: for the files; or with each server, or a majority as above, for the server's certificate or because the
    /// server refused this client's. A server's certificate that has expired counts as a server that is down.
    #[error("TLS with ZooKeeper failed: {reason}")]
    Tls {
        /// The file, or the servers, and what is wrong.
        reason: String,
    },
    /// A majority of the servers reports that the session to be resumed has expired; or a server has ended it by granting a
    /// shorter session timeout than it had.
    #[error("the session to be resumed has expired")]
    Expired,
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InactiveReason {
    /// No session has been made yet.
    #[error("not yet connected")]
    NotYetConnected,
    /// A majority of the servers reports that it has expired.
    #[error("the servers have expired the session")]
    Expired,
    /// No request was answered for a session timeout: the servers may have expired it.
    #[error("no answer for a whole session timeout")]
    DeadlinePassed,
    /// The driver failed.
    #[error("the driver failed: {reason}")]
    DriverFailed {
        /// The reason.
        reason: String,
    },
    /// The servers refused the credentials for a new session: each of them, or a majority within the connect timeout. A
    /// single server with another configuration ends no session and no attempt.
    ///
    /// Credentials that were accepted at first are refused after a change on the servers. Until that is corrected, operations fail at once with [`OpError::AuthFailed`](OpError::AuthFailed), and a new
    /// session is attempted every five to ten seconds. A process that should rather end can watch for this state and close
    /// the session. Credentials are not read again from their file: new ones need a new
    /// [`SessionBuilder`](crate::SessionBuilder).
    #[error("the servers refused the credentials: {reason}")]
    AuthFailed {
        /// The servers and their reasons.
        reason: String,
    },
}

/// One server and why it made no session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFailure {
    /// As written in the connect string, with its port.
    pub host: String,
    /// What went wrong there.
    pub reason: String,
}

fn list(hosts: &[HostFailure]) -> String {
    hosts.iter().map(|failure| format!("{}: {}", failure.host, failure.reason)).collect::<Vec<_>>().join("; ")
}

/// Why an operation failed.
///
/// The first question is whether the request was applied: [`has_no_effect`](Self::has_no_effect) if it certainly was not,
/// [`is_unknown`](Self::is_unknown) if it may have been. Paths are the caller's, without a chroot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The znode, or the parent of one to be created, does not exist.
    #[error("{path}: no such znode")]
    NoNode {
        /// Of the operation.
        path: String,
    },
    /// The znode exists, and this operation did not create it.
    #[error("{path}: the znode exists{}", owned_by(*.owner))]
    NodeExists {
        /// Of the operation.
        path: String,
        /// The session that owns it, `None` if it is persistent or was deleted before that could be read.
        owner: Option<i64>,
    },
    /// Another client has changed the data.
    #[error(
        "{path}: the version is not the expected one: another client has changed the znode; read it again"
    )]
    BadVersion {
        /// Of the operation.
        path: String,
    },
    /// The znode to be deleted has children.
    #[error("{path}: the znode has children")]
    NotEmpty {
        /// Of the operation.
        path: String,
    },
    /// The znode's access list does not allow it.
    #[error("{path}: not authorized: check the znode's access list and the credentials of this session")]
    NoAuth {
        /// Of the operation.
        path: String,
    },
    /// ZooKeeper refuses the credentials, so there is no session. Nothing was sent.
    /// [`InactiveReason::AuthFailed`](crate::InactiveReason::AuthFailed) describes how the session recovers.
    #[error("{path}: ZooKeeper refuses the credentials of this session: {reason}")]
    AuthFailed {
        /// Of the operation.
        path: String,
        /// The server's reason.
        reason: String,
    },
    /// The session has ended, by the server's word or by the local clock. Nothing was sent, and nothing will ever be
    /// applied.
    #[error("the ZooKeeper session is over")]
    SessionOver,
    /// Perhaps applied, perhaps not: the answer was lost, and what could be read did not show the outcome. It may even be
    /// applied later, as long as the session lives.
    #[error("{path}: the outcome is unknown: {cause}")]
    Unknown {
        /// Of the operation.
        path: String,
        /// Why the outcome could not be found out.
        cause: UnknownCause,
    },
    /// Certainly not applied: no connection carried it in time.
    #[error("{path}: not done within {within:.1?}: {reason}")]
    Unavailable {
        /// Of the operation.
        path: String,
        /// The time the operation had.
        within: Duration,
        /// The last obstacle.
        reason: String,
    },
    /// The server, or a check before sending, refuses such a request permanently; or the answer to a read has more than
    /// 16 MiB.
    #[error("{path}: {reason}")]
    Invalid {
        /// Of the operation.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why the outcome of an operation is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownCause {
    /// No answer in the time that the operation had.
    #[error("no answer came in time: {last}")]
    NoAnswer {
        /// The last obstacle.
        last: String,
    },
    /// Part of it was done before an error.
    #[error("part of it was done: {deleted} deleted, then {error}")]
    Partly {
        /// Znodes that are gone.
        deleted: u64,
        /// The obstacle.
        error: Box<OpError>,
    },
    /// The session ended before the outcome could be found out.
    #[error("the answer was lost and the ZooKeeper session is over")]
    SessionOver,
    /// The answer was lost, and what exists now does not show whether the request was applied.
    #[error("the answer was lost and {now}")]
    Changed {
        /// What exists now.
        now: String,
    },
}

pub(crate) fn owned_by(owner: Option<i64>) -> String {
    owner.map(|id| format!(" and belongs to session {id:#x}")).unwrap_or_default()
}

impl OpError {
    /// The request was perhaps applied: read before you decide anything.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// The request certainly had no effect and never will have one.
    pub fn has_no_effect(&self) -> bool {
        !self.is_unknown()
    }

    /// The request itself is refused, by ZooKeeper or by a check before sending: for its path, an access list or the
    /// credentials; or the answer to a read is too large. Repeating it is pointless until one of these has changed.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::NoAuth { .. } | Self::AuthFailed { .. } | Self::Invalid { .. })
    }

    /// The session is over, so that repeating the operation on it is pointless. Its outcome may be unknown at the same
    /// time.
    pub fn is_session_over(&self) -> bool {
        match self {
            Self::SessionOver | Self::Unknown { cause: UnknownCause::SessionOver, .. } => true,
            Self::Unknown { cause: UnknownCause::Partly { error, .. }, .. } => error.is_session_over(),
            _ => false,
        }
    }

    /// The path of the operation, empty for [`OpError::SessionOver`].
    pub fn path(&self) -> &str {
        match self {
            Self::NoNode { path }
            | Self::NodeExists { path, .. }
            | Self::BadVersion { path }
            | Self::NotEmpty { path }
            | Self::NoAuth { path }
            | Self::AuthFailed { path, .. }
            | Self::Unknown { path, .. }
            | Self::Unavailable { path, .. }
            | Self::Invalid { path, .. } => path,
            Self::SessionOver => "",
        }
    }

    /// The label of metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::NoNode { .. } => "no_node",
            Self::NodeExists { .. } => "node_exists",
            Self::BadVersion { .. } => "bad_version",
            Self::NotEmpty { .. } => "not_empty",
            Self::NoAuth { .. } => "no_auth",
            Self::AuthFailed { .. } => "auth_failed",
            Self::SessionOver => "session_over",
            Self::Unknown { .. } => "unknown",
            Self::Unavailable { .. } => "unavailable",
            Self::Invalid { .. } => "invalid",
        }
    }
}
