//! The client crate at work: requests in the order in which they were asked for, a bounded number at a time, each
//! followed to its end whether or not anybody still waits for it.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;
use zookeeper_async::{ZkError, ZkResult, ZooKeeper};

use super::link::{Command, LinkState};
use super::wire::{Fields, STAT_LEN};
use crate::driver::{Code, DriverError, DriverResult};
use crate::node::Stat;
use crate::time::{BootTime, within};

/// Requests that the client has at one time, the barrier aside. Its run loop sends to its own channel of 64 places, and
/// stops for ever when it finds that full.
const AT_ONE_TIME: usize = 48;

/// Where requests wait for their turn.
#[derive(Clone)]
pub(super) struct Queue(mpsc::UnboundedSender<Job>);

/// A request that waits for its turn.
pub(super) struct Job {
    ticket: Arc<Ticket>,
    start: Box<dyn FnOnce(Arc<ZooKeeper>) -> BoxFuture<'static, ()> + Send>,
}

/// How far a request has come, agreed between who waits for it and who sends it.
#[derive(Default)]
struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const LEFT: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Ticket {
    /// Whether the request may leave now.
    fn leave(&self) -> bool {
        self.0.compare_exchange(WAITING, LEFT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the request has not left; then it never will.
    fn withdraw(&self) -> bool {
        self.0.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire) != Err(LEFT)
    }
}

/// Withdraws the request of a caller that is dropped.
struct Waiting(Arc<Ticket>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

impl Queue {
    pub(super) fn new() -> (Queue, mpsc::UnboundedReceiver<Job>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Queue(sender), receiver)
    }

    /// Has the client make a request, and waits for the answer until `deadline`.
    ///
    /// # Cancel safety
    /// Dropped before the request has left, it never leaves; later, it is followed to its end all the same.
    pub(super) async fn call<T, F>(
        &self,
        deadline: BootTime,
        request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static,
    ) -> DriverResult<T>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send + 'static,
    {
        let waiting = Waiting(Arc::default());
        let (answer, answered) = oneshot::channel();
        let start = Box::new(move |client: Arc<ZooKeeper>| {
            let request = request(client);
            // The caller may be gone; that is its affair.
            async move { drop(answer.send(request.await)) }.boxed()
        });
        // With nobody to take it the job is dropped, and the answer's channel says so.
        let _ = self.0.send(Job { ticket: waiting.0.clone(), start });
        match within(deadline, answered).await {
            Some(Ok(answer)) => answer.map_err(class_of),
            Some(Err(_)) if waiting.0.withdraw() => {
                Err(DriverError::NotSent("there is no connection to ZooKeeper now".to_owned()))
            }
            Some(Err(_)) => {
                Err(DriverError::Ambiguous("the client ended before it had the answer".to_owned()))
            }
            None if waiting.0.withdraw() => Err(DriverError::NotSent(
                "the deadline passed while the request waited for its turn".to_owned(),
            )),
            None => Err(DriverError::Ambiguous("no answer by the deadline".to_owned())),
        }
    }
}

/// Hands requests to the client for as long as somebody may ask: `beats` has a place of its own, so that a session full
/// of requests can still prove itself alive.
pub(super) async fn dispatch(
    client: Arc<ZooKeeper>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    mut beats: mpsc::UnboundedReceiver<Job>,
    link: Arc<LinkState>,
    commands: mpsc::UnboundedSender<Command>,
) {
    let mut ordinary = FuturesUnordered::new();
    let mut beating = FuturesUnordered::new();
    loop {
        let (job, places) = tokio::select! {
            biased;
            Some(()) = ordinary.next() => continue,
            Some(()) = beating.next() => continue,
            Some(job) = beats.recv(), if beating.is_empty() => (job, &mut beating),
            Some(job) = jobs.recv(), if ordinary.len() < AT_ONE_TIME => (job, &mut ordinary),
            else => return,
        };
        if !link.is_up() || !job.ticket.leave() {
            // Dropping it tells the caller; its ticket says that nothing has left.
            continue;
        }
        if link.requests() == 1 {
            let _ = commands.send(Command::Hurry);
        }
        let request = link.count_request(guarded((job.start)(client.clone()), commands.clone()));
        let mut request = Box::pin(request);
        // The first poll puts the request into the client's channel, which has room: so requests leave in this order.
        let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
        if first.is_pending() {
            places.push(request);
        }
    }
}

/// A request that ends the session, not the process, if the client panics over it.
async fn guarded(request: BoxFuture<'static, ()>, commands: mpsc::UnboundedSender<Command>) {
    // Unconstrained: tokio's budget would otherwise make a channel with room say that it has none.
    let request = unconstrained(AssertUnwindSafe(request).catch_unwind());
    if request.await.is_err() {
        let _ = commands.send(Command::ClientFailed("it panicked over a reply".to_owned()));
    }
}

/// What an error of the client says about the request.
fn class_of(error: ZkError) -> DriverError {
    DriverError::Definite(match error {
        ZkError::NoNode => Code::NoNode,
        ZkError::NodeExists => Code::NodeExists,
        ZkError::BadVersion => Code::BadVersion,
        ZkError::NotEmpty => Code::NotEmpty,
        ZkError::NoChildrenForEphemerals => Code::NoChildrenForEphemerals,
        ZkError::NoAuth => Code::NoAuth,
        ZkError::BadArguments => Code::Invalid("ZooKeeper does not accept the path or the data".to_owned()),
        ZkError::InvalidACL => Code::Invalid("ZooKeeper does not accept the access control list".to_owned()),
        // Servers before 3.5 do not know the request; any code that the client does not know comes as this one, too.
        // Either way it is the server's answer, and it did nothing.
        ZkError::Unimplemented
        | ZkError::AuthFailed
        | ZkError::EphemeralOnLocalSession
        | ZkError::NotReadOnly
        | ZkError::SessionExpired
        | ZkError::SessionMoved => Code::Other(format!("ZooKeeper says {error}")),
        // Made up by the link, and by nobody else: it turns a server's into the ambiguous one.
        ZkError::OperationTimeout => {
            return DriverError::NotSent("there is no connection to ZooKeeper now".to_owned());
        }
        // The connection broke, the reply could not be read, or the server does not know itself what happened.
        _ => return DriverError::Ambiguous(format!("no usable answer: {error}")),
    })
}

pub(super) fn stat_of(stat: &zookeeper_async::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        pzxid: stat.pzxid,
        version: stat.version,
        cversion: stat.cversion,
        ephemeral_owner: stat.ephemeral_owner,
        ctime_ms: stat.ctime,
        mtime_ms: stat.mtime,
        num_children: stat.num_children,
        data_length: stat.data_length,
    }
}

/// A `Stat` as it is on the wire.
pub(super) fn stat_from_wire(bytes: &[u8]) -> Option<Stat> {
    if bytes.len() != STAT_LEN {
        return None;
    }
    let mut fields = Fields(bytes);
    let (czxid, mzxid) = (fields.i64().ok()?, fields.i64().ok()?);
    let (ctime_ms, mtime_ms) = (fields.i64().ok()?, fields.i64().ok()?);
    let (version, cversion, _aversion) = (fields.i32().ok()?, fields.i32().ok()?, fields.i32().ok()?);
    let ephemeral_owner = fields.i64().ok()?;
    let (data_length, num_children) = (fields.i32().ok()?, fields.i32().ok()?);
    let pzxid = fields.i64().ok()?;
    Some(Stat {
        czxid,
        mzxid,
        pzxid,
        version,
        cversion,
        ephemeral_owner,
        ctime_ms,
        mtime_ms,
        num_children,
        data_length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_left_or_is_withdrawn_never_both() {
        let ticket = Ticket::default();
        assert!(ticket.leave());
        assert!(!ticket.withdraw());
        let ticket = Ticket::default();
        assert!(ticket.withdraw());
        assert!(!ticket.leave());
        assert!(ticket.withdraw(), "still withdrawn");
    }

    #[test]
    fn what_may_have_been_applied_is_never_called_definite() {
        for error in [
            ZkError::ConnectionLoss,
            ZkError::MarshallingError,
            ZkError::SystemError,
            ZkError::RuntimeInconsistency,
            ZkError::DataInconsistency,
        ] {
            assert!(matches!(class_of(error), DriverError::Ambiguous(_)), "{error}");
        }
        assert_eq!(class_of(ZkError::NoNode), DriverError::Definite(Code::NoNode));
        assert!(matches!(class_of(ZkError::OperationTimeout), DriverError::NotSent(_)));
    }

    #[tokio::test]
    async fn a_caller_that_nobody_serves_is_told_that_nothing_left() {
        let (queue, jobs) = Queue::new();
        let deadline = BootTime::now() + std::time::Duration::from_millis(20);
        let answer: DriverResult<()> = queue.call(deadline, |_| async { Ok(()) }).await;
        assert!(matches!(answer, Err(DriverError::NotSent(_))), "{answer:?}");
        drop(jobs);
        let far = BootTime::now() + std::time::Duration::from_secs(3600);
        let answer: DriverResult<()> = queue.call(far, |_| async { Ok(()) }).await;
        assert!(matches!(answer, Err(DriverError::NotSent(_))), "{answer:?}");
    }
}
