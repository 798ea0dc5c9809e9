//! What a ZooKeeper client must do to carry a session, and nothing more.
//!
//! **One driver value is one ZooKeeper session.** It may change its connection, never its session: when the session
//! ends, the driver says so and is of no further use. Nothing outside this directory names a client crate.
//!
//! The contract of every driver:
//! - Every operation takes a deadline and answers by it. A driver that can't answer in time answers
//!   [`DriverError::Ambiguous`] if the request may have left, [`DriverError::NotSent`] if it certainly did not.
//! - No operation is sent on a connection that is known to be down; it is refused as [`DriverError::NotSent`].
//! - Requests of one driver reach ZooKeeper in the order in which the operations were first polled.
//! - Nothing that a server sends may panic, hang or block the caller's runtime.
//! - Dropping the last handle of a driver is [`Driver::abort`].

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::acl::Acl;
use crate::config::DriverKind;
use crate::multi::{MultiOp, MultiResult};
use crate::node::{CreateMode, SessionId, Stat};
use crate::resolve::Resolver;
use crate::secret::Secret;
use crate::secure::Secure;
use crate::time::BootTime;

#[cfg(test)]
pub(crate) mod fake;
mod seek;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async;
#[cfg(feature = "zookeeper-client")]
mod zookeeper_client;

#[cfg(not(any(feature = "zookeeper-client", feature = "zookeeper-async")))]
compile_error!("zk-session needs a driver: enable the feature `zookeeper-client` or `zookeeper-async`");

/// A znode that never exists, under one that never exists either: its deletion is the quorum round trip of
/// [`Driver::barrier`]. [`acknowledged`] says which answer counts.
///
/// The deletion of a znode that is not there fails, changes nothing and wakes no watch, and yet it goes through the
/// ensemble's log like any write. A `sync` does not: a deposed leader that does not know it yet answers one.
///
/// The parent is missing because a deletion is a matter of the parent's access list. Servers with
/// `zookeeper.enableEagerACLCheck` look at it themselves and refuse what it forbids without asking anybody, even when
/// they are cut off from the others. Where there is no parent they find nothing to check and pass the request on.
pub(crate) const BARRIER_PATH: &str = "/zk-session-barrier/never-created";

/// What the answer to the deletion of [`BARRIER_PATH`] proves: 'no such znode' comes from a quorum, and nothing else
/// counts.
///
/// A refusal by an access list may be the word of one server alone. It means, as does a deletion that was done, that
/// somebody has created the znode or its parent. The error says so, because an operator has to put that right.
pub(crate) fn acknowledged(answer: DriverResult<()>) -> DriverResult<()> {
    let said = match answer {
        Err(DriverError::Definite(Code::NoNode)) => return Ok(()),
        // These say nothing about the znode.
        Err(DriverError::Definite(Code::Invalid(_) | Code::Other(_))) => return answer,
        Err(DriverError::Ambiguous(_) | DriverError::NotSent(_)) => return answer,
        Err(DriverError::Definite(code)) => code.to_string(),
        Ok(()) => "it was there, and is deleted now".to_owned(),
    };
    Err(DriverError::Definite(Code::Other(format!(
        "the deletion of {BARRIER_PATH} must be answered by '{}', and the answer is: {said}; \
         nobody may create that znode or its parent",
        Code::NoNode
    ))))
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The outcome of an operation.
pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// Names one armed watch. Chosen by the caller, unique within a driver, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WatchToken(pub(crate) u64);

/// One server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// As written in the connect string, without the port: what a certificate would have to carry.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

/// Credentials, added to the connection before anything else and again after each reconnect.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    pub(crate) scheme: String,
    pub(crate) secret: Secret,
}

/// What a driver needs in order to make a session.
#[derive(Clone)]
pub(crate) struct ConnectSpec {
    /// Shuffled, those that accepted a connection lately first; never empty.
    pub(crate) hosts: Vec<Host>,
    /// For later attempts: names are looked up again in each.
    pub(crate) resolver: Arc<Resolver>,
    /// Asked for; the server grants what it likes.
    pub(crate) session_timeout: Duration,
    pub(crate) auth: Vec<Auth>,
    /// Of every znode that is created.
    pub(crate) acl: Acl,
    /// Only what the driver can do.
    #[cfg_attr(not(any(feature = "tls", feature = "sasl")), allow(dead_code, reason = "nothing to be had"))]
    pub(crate) secure: Secure,
    /// By when [`connect`] must have answered.
    pub(crate) deadline: BootTime,
}

/// A living session.
pub(crate) struct Connected {
    pub(crate) driver: Arc<dyn Driver>,
    /// Ends when the driver has nothing to say any more, which counts as [`DriverEvent::Dead`].
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
}

/// Why no session came about.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    /// Another attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The server refused the credentials: another attempt fails alike.
    #[error("authentication failed: {0}")]
    AuthFailed(String),
    /// TLS fails for a reason that lasts.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "needed with TLS"))]
    #[error("TLS: {0}")]
    Tls(String),
    /// This driver is not compiled in.
    #[error("the driver {kind} is not compiled in: enable the feature of that name in zk-session")]
    NotBuilt { kind: DriverKind },
}

/// Makes a session by the driver of that kind.
///
/// Answers by `spec.deadline`. Cancel safe: a session that is made nevertheless is aborted.
pub(crate) async fn connect(kind: DriverKind, spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    // On the heap: the futures of whoever connects would otherwise be as large, and as deep, as those of both clients.
    match kind {
        #[cfg(feature = "zookeeper-client")]
        DriverKind::ZookeeperClient => Box::pin(zookeeper_client::connect(spec)).await,
        #[cfg(feature = "zookeeper-async")]
        DriverKind::ZookeeperAsync => Box::pin(zookeeper_async::connect(spec)).await,
        #[allow(unreachable_patterns, reason = "reached when a driver's feature is off")]
        kind => Err(ConnectFailure::NotBuilt { kind }),
    }
}

/// One ZooKeeper session. See the module's documentation for the contract.
pub(crate) trait Driver: Send + Sync + 'static {
    /// What it is.
    fn kind(&self) -> DriverKind;

    /// The session's id. It never changes.
    fn session_id(&self) -> SessionId;

    /// The session timeout that the server granted. It never changes.
    ///
    /// A driver must know this for certain: leases are computed from it.
    fn granted_timeout(&self) -> Duration;

    /// Data and stat of a znode. With `watch`, one event follows when the data changes or the znode is deleted.
    fn get(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<u8>, Stat)>>;

    /// The stat of a znode, `None` if there is none. With `watch`, one event follows when it is created, deleted or
    /// its data changes.
    fn exists(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Option<Stat>>>;

    /// Names of the children, in no order, and the stat of their parent. With `watch`, one event follows when a child
    /// comes or goes, or the parent is deleted.
    fn children(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<String>, Stat)>>;

    /// Creates a znode, with the access list of the session, and answers its path and its stat, whose `czxid` is right. With `sequential`, the
    /// server appends a number to `path`.
    fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        sequential: bool,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(String, Stat)>>;

    /// Replaces the data; with `version`, only if the data still has that version.
    fn set(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Stat>>;

    /// Deletes a znode without children; with `version`, only if its data still has that version.
    fn delete(
        &self,
        path: &str,
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<()>>;

    /// Whether [`multi`](Self::multi) may be called.
    fn has_multi(&self) -> bool {
        false
    }

    /// Does all of the operations, whose paths are absolute, or none. A group that the server refuses is `Ok`, too.
    fn multi(&self, _ops: &[MultiOp], _deadline: BootTime) -> BoxFuture<'static, DriverResult<MultiAnswer>> {
        let refused = DriverError::NotSent("this driver has no groups of operations".to_owned());
        Box::pin(std::future::ready(Err(refused)))
    }

    /// A quorum round trip: `Ok` once a request sent after the call has gone through the ensemble's log, by the rule of
    /// [`acknowledged`]. Where a driver bounds the requests under way, a place is kept for this one: leases depend on it.
    fn barrier(&self, deadline: BootTime) -> BoxFuture<'static, DriverResult<()>>;

    /// Gives up a watch: no event of it need follow, and one that does is ignored. Never blocks.
    fn forget(&self, token: WatchToken);

    /// Closes the session in good order, then does what [`Driver::abort`] does. Answers by `deadline`.
    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseAnswer>;

    /// Ends tasks and sockets at once, says nothing to the server, never blocks, may be called more than once.
    /// Requests not yet written are never written; operations under way answer at once.
    fn abort(&self);
}

/// The server's answer to a group of operations.
#[cfg_attr(not(feature = "zookeeper-client"), allow(dead_code, reason = "the other driver has none"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MultiAnswer {
    /// One result for each operation.
    Done(Vec<MultiResult>),
    /// The operation at that place was refused, and none was done.
    Refused { at: usize, code: Code },
}

/// What became of the request to close a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseAnswer {
    /// The server has closed the session: its ephemerals are gone.
    Acknowledged,
    /// The request was handed to a living connection; whether the server acted is not known.
    Sent,
    /// Nothing is known: the session may live until its timeout.
    Unknown,
}

/// What a driver says unasked.
///
/// A driver starts connected: the first event about the connection is `Suspended` or one of the last four.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverEvent {
    /// The connection is lost; the driver looks for another one. The session may live.
    Suspended { reason: String },
    /// The same session has a connection again. Credentials have been replayed, and each watch armed before is armed
    /// again or has fired, if need be as [`WatchKind::Gap`].
    Resumed,
    /// An armed watch fired. It is no longer armed.
    Watch { token: WatchToken, kind: WatchKind, path: String },
    /// The server says that the session has ended. Last event.
    Expired,
    /// The credentials were refused. Last event.
    AuthFailed { reason: String },
    /// The driver can't go on, whatever became of the session. Last event.
    Dead { reason: String },
}

/// What a watch saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// Something may have happened while nobody looked: read again.
    #[cfg_attr(not(feature = "zookeeper-client"), allow(dead_code, reason = "the other driver loses none"))]
    Gap,
}

/// Why an operation failed, in the three classes that matter for what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DriverError {
    /// The server answered this: the request had no effect, and the connection is in order.
    #[error("{0}")]
    Definite(Code),
    /// The request may have been applied, or may be applied later, as long as the session lives.
    #[error("{0}")]
    Ambiguous(String),
    /// The request never left: it had no effect and never will.
    #[error("{0}")]
    NotSent(String),
}

/// The server's answer to a request that it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    NoNode,
    NodeExists,
    BadVersion,
    NotEmpty,
    NoChildrenForEphemerals,
    NoAuth,
    /// Path or data that the client or the server does not accept, with what it says.
    Invalid(String),
    /// Any other answer that certainly means 'not done', with what the server says.
    Other(String),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("no such znode"),
            Self::NodeExists => f.write_str("znode exists"),
            Self::BadVersion => f.write_str("version does not match"),
            Self::NotEmpty => f.write_str("znode has children"),
            Self::NoChildrenForEphemerals => f.write_str("an ephemeral znode can't have children"),
            Self::NoAuth => f.write_str("not authorized"),
            Self::Invalid(what) | Self::Other(what) => f.write_str(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_that_there_is_no_such_znode_acknowledges_a_barrier() {
        let refused = |code| Err(DriverError::Definite(code));
        assert_eq!(acknowledged(refused(Code::NoNode)), Ok(()));
        for (answer, said) in [
            (Ok(()), "is deleted"),
            (refused(Code::NoAuth), "not authorized"),
            (refused(Code::NotEmpty), "has children"),
        ] {
            match acknowledged(answer) {
                Err(DriverError::Definite(Code::Other(what))) => {
                    assert!(what.contains(BARRIER_PATH) && what.contains(said), "{what}");
                }
                other => panic!("{said}: {other:?}"),
            }
        }
        for error in [
            DriverError::Definite(Code::Other("session moved".to_owned())),
            DriverError::Ambiguous("lost".to_owned()),
            DriverError::NotSent("lost".to_owned()),
        ] {
            assert_eq!(acknowledged(Err(error.clone())), Err(error));
        }
    }
}
