//! What a session and a driver expect of each other; the contract in words is in [`super`].

use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use zk_proto::{ErrorCode, Purpose, Reply, Request, Ticket, WatchId, WatchKind};

use super::answers::Answers;
use crate::driver::close::CloseOutcome;
use crate::error::{ConnectError, InactiveReason};
use crate::servers::resolve::Resolver;
use crate::settings::Settings;
use crate::time::{BootTime, Moment, within};

/// A znode that never exists, under one that never exists either: its deletion is the quorum round trip of [`barrier`].
/// [`acknowledged`] defines which answer counts.
/// The deletion of a znode that does not exist fails, changes nothing and fires no watch, but goes through the ensemble's
/// log like any write. A `sync` does not: a deposed leader that has not noticed it yet answers one. The parent is missing
/// because the parent's access list applies to a deletion. Servers with `zookeeper.enableEagerACLCheck` check it and refuse
/// by themselves, even when they are cut off from the others. Without a parent there is nothing to check, and they pass the
/// request on.
pub(crate) const BARRIER_PATH: &str = "/zk-session-barrier/never-created";

/// The outcome of a request.
pub(crate) type DriverResult<T> = Result<T, DriverError>;

/// The outcome of a request. If the sender is gone, the driver has ended: perhaps applied.
pub(crate) type Answer = oneshot::Receiver<DriverResult<Reply>>;

/// A request's permit; their number limits the requests in progress. It is returned when the request has ended, even if
/// its caller gave up long before.
pub(crate) type Place = OwnedSemaphorePermit;

/// What a driver needs in order to make or resume a session.
#[derive(Clone)]
pub(crate) struct ConnectSpec {
    pub(crate) purpose: Purpose,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) settings: Arc<Settings>,
    /// By when [`connect`] must have answered.
    pub(crate) deadline: BootTime,
    /// Whether the session is resumed to be closed: its timeout does not matter.
    pub(crate) closes: bool,
}

/// A living session.
pub(crate) struct Connected {
    pub(crate) driver: Arc<dyn Driver>,
    /// Ends when the driver has ended without a last event, which counts as a failure of the driver.
    pub(crate) events: mpsc::UnboundedReceiver<DriverEvent>,
    /// When the connect request was sent that was granted: the session can't have begun before.
    pub(crate) sent: Moment,
}

/// Why no session was made.
#[derive(Debug)]
pub(crate) enum ConnectFailure {
    /// Another attempt may succeed, unless all servers agree.
    Unavailable(Answers),
    /// Another attempt would fail in the same way, whatever the servers answer, or because a quorum has answered.
    Final(ConnectError),
}

/// Options of a request.
#[derive(Debug, Default)]
pub(crate) struct Along {
    /// Armed by a successful reply; the request must ask for one.
    pub(crate) watch: Option<WatchId>,
    /// Whether it is sent to check the server.
    pub(crate) heartbeat: bool,
    pub(crate) place: Option<Place>,
}

/// One ZooKeeper session. See the module's documentation for the contract.
pub(crate) trait Driver: Send + Sync + 'static {
    /// The ticket that resumes the session in another process. Its id and its timeout never change.
    fn ticket(&self) -> Ticket;

    /// When the connect request of the present connection was sent; of the last one if there is none. A request that is
    /// handed over after that is sent over this connection, or over a later one.
    fn attached(&self) -> Moment;

    /// The server of the present connection; that of the last one if there is none.
    fn server(&self) -> SocketAddr;

    /// Hands a request over. Never blocks.
    fn send(&self, request: &Request<'_>, along: Along) -> Answer;

    /// Gives up a watch: no event of it need follow, and one that does is ignored. Never blocks.
    fn forget(&self, watch: WatchId);

    /// The list of servers has changed: the session leaves one that is no longer in it.
    fn servers_changed(&self);

    /// Closes the session on the server, then does what [`Driver::abort`] does. Answers by `deadline`.
    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseOutcome>;

    /// Ends tasks and sockets at once, without closing the session on the server. Never blocks, may be called more than
    /// once. Requests not yet written are never written; operations under way answer at once.
    fn abort(&self);
}

/// The events of a driver.
///
/// A driver starts connected: the first event about the connection is `Lost` or `Ended`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverEvent {
    /// The connection is lost; the driver looks for another one. The session may be alive.
    Lost { reason: String },
    /// The same session has a connection again. Credentials have been replayed, and each watch armed before is armed
    /// again or has fired.
    Ready,
    /// A watch fired. Unless it is a lasting one, it is no longer armed.
    Watch { watch: WatchId, kind: WatchKind, path: String },
    /// A quorum reports that the session has ended, or the driver has failed, whatever the state of the session. The last
    /// event.
    Ended(InactiveReason),
}

/// Why a request was not done, by what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DriverError {
    /// The server answered this: the request had no effect, and the connection is in order.
    #[error("{0}")]
    Refused(ErrorCode),
    /// It was not sent, and never will be as it is; or it is a read whose answer is too large to be taken.
    #[error("{0}")]
    Invalid(String),
    /// The request may have been applied, or may be applied later, as long as the session lives.
    #[error("{0}")]
    Ambiguous(String),
    /// The request was not sent, or the server did not accept it: it had no effect and never will. Another attempt may
    /// succeed.
    #[error("{0}")]
    NotSent(String),
}

/// Waits for an answer, until `deadline` at the latest.
pub(crate) async fn answered(answer: Answer, deadline: BootTime) -> DriverResult<Reply> {
    match within(deadline, answer).await {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(DriverError::Ambiguous("the session was given up".to_owned())),
        None => Err(DriverError::Ambiguous("no answer in time".to_owned())),
    }
}

/// A quorum round trip: `Ok` once a request sent after the call has gone through the ensemble's log. It needs no
/// permit: leases depend on it.
pub(crate) async fn barrier(driver: &dyn Driver, deadline: BootTime) -> DriverResult<()> {
    let request = Request::Delete { path: BARRIER_PATH.into(), version: -1 };
    let answer = driver.send(&request, Along { heartbeat: true, ..Along::default() });
    acknowledged(answered(answer, deadline).await)
}

/// What the answer to the deletion of [`BARRIER_PATH`] proves: 'no such znode' comes from a quorum, and nothing else
/// counts.
/// One server alone may refuse by an access list. A refusal means, as does a successful deletion, that a client has created
/// the znode or its parent. The error says so, because an operator has to delete it.
fn acknowledged(answer: DriverResult<Reply>) -> DriverResult<()> {
    let said = match answer {
        Err(DriverError::Refused(ErrorCode::NO_NODE)) => return Ok(()),
        Err(DriverError::Refused(code)) => code.to_string(),
        Err(other) => return Err(other),
        Ok(_) => "the znode existed and was deleted".to_owned(),
    };
    Err(DriverError::Invalid(format!(
        "the deletion of {BARRIER_PATH} must fail with '{}', but the result was: {said}; \
         delete that znode and its parent",
        ErrorCode::NO_NODE
    )))
}

/// A number that no other process can guess: a hash whose key comes from the operating system.
#[cfg(any(feature = "sasl", feature = "zookeeper-async"))]
pub(crate) fn unguessable() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};

    RandomState::new().build_hasher().finish()
}
