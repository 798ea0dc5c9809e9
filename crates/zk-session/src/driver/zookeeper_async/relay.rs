//! The relay of the client: requests in the order of the callers, a bounded number at a time, each passed from the client
//! to the session's connection and back.

use std::collections::VecDeque;
use std::future::{Future as _, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::{MissedTickBehavior, interval};
use zk_proto::{ErrorCode, OpCode, Reply, ReplyHeader, Request, RequestHeader, cut_frame, xid};
use zookeeper_async::ZooKeeper;

use super::call::Call;
use super::gate::Local;
use super::wire::Wire;
use crate::driver::{Along, Answer, Driver as _, DriverError, DriverResult};
use crate::lock::lock;

/// Requests that the client has at one time. Its run loop sends to its own channel with a capacity of 64, and stops for
/// ever when that is full.
const AT_ONE_TIME: usize = 48;

/// Between checks of a client that has requests.
const LOOK: Duration = Duration::from_millis(250);
/// Consecutive checks without progress until the client is given up. Checks are counted, not time: a process that was
/// frozen has not been checked.
const PATIENCE: u32 = 20;

/// What waits for its turn.
pub(super) enum Job {
    /// A request through the client.
    Call { call: Call, along: Along, answer: oneshot::Sender<DriverResult<Reply>> },
    /// What goes past the client, once it has sent all that was asked before.
    Beside(Box<dyn FnOnce(&Wire) + Send>),
}

/// A request that is to come from the client.
struct Expected {
    op: OpCode,
    path: String,
    along: Along,
    failure: Failure,
}

/// What the client is owed, in its order.
enum Owed {
    Reply { xid: i32, answer: Answer, failure: Failure },
    Pong,
}

/// Why the client has failed.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Why a request failed, which the client does not report.
type Failure = Arc<Mutex<Option<DriverError>>>;

pub(super) struct Relay {
    client: Arc<ZooKeeper>,
    wire: Arc<Wire>,
    failed: mpsc::UnboundedSender<String>,
    expected: VecDeque<Expected>,
    /// The next one, whose turn has not come.
    next: Option<Job>,
    owed: VecDeque<Owed>,
    to_client: BytesMut,
}

impl Relay {
    pub(super) fn new(
        client: Arc<ZooKeeper>,
        wire: Arc<Wire>,
        failed: mpsc::UnboundedSender<String>,
    ) -> Self {
        let (expected, owed, to_client) = (VecDeque::new(), VecDeque::new(), BytesMut::new());
        Self { client, wire, failed, expected, next: None, owed, to_client }
    }

    /// Serves the client for as long as there may be requests; the error is why it had to end before.
    pub(super) async fn run(
        mut self,
        local: Local,
        mut jobs: mpsc::UnboundedReceiver<Job>,
        mut failures: mpsc::UnboundedReceiver<String>,
    ) -> Result<(), Broken> {
        let Local { mut stream, mut input } = local;
        let (mut from_client, mut to_client) = stream.split();
        let mut calls = FuturesUnordered::new();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stuck = 0;
        loop {
            // What goes beside the client waits until the client has sent all that is before it.
            let may_pass = self.expected.is_empty();
            if let Some(job) = self.next.take_if(|job| may_pass || matches!(job, Job::Call { .. }))
                && let Some(call) = self.begin(job).await
            {
                calls.push(call);
            }
            tokio::select! {
                biased;
                Some(reason) = failures.recv() => return Err(reason.into()),
                Some(()) = calls.next(), if !calls.is_empty() => stuck = 0,
                answer = next_answer(&mut self.owed) => self.pay(answer),
                read = from_client.read_buf(&mut input) => {
                    stuck = 0;
                    if read? == 0 {
                        return Err("it dropped its connection".into());
                    }
                    while let Some(frame) = cut_frame(&mut input, usize::MAX)? {
                        self.hear(&frame)?;
                    }
                }
                written = to_client.write_buf(&mut self.to_client), if !self.to_client.is_empty() => drop(written?),
                job = jobs.recv(), if self.next.is_none() && calls.len() < AT_ONE_TIME => match job {
                    Some(job) => self.next = Some(job),
                    None => return Ok(()),
                },
                _ = looks.tick(), if !calls.is_empty() => {
                    // Requests that are neither on their way nor owed are stuck in the client.
                    stuck = if self.owed.is_empty() { stuck + 1 } else { 0 };
                    if stuck >= PATIENCE {
                        return Err(format!("it made no progress with requests for {:?}", LOOK * PATIENCE).into());
                    }
                }
            }
        }
    }

    /// Begins a job; returns what remains to be done.
    async fn begin(&mut self, job: Job) -> Option<BoxFuture<'static, ()>> {
        let (call, along, answer) = match job {
            Job::Call { call, along, answer } => (call, along, answer),
            Job::Beside(act) => {
                act(&self.wire);
                return None;
            }
        };
        // Without its caller it never leaves.
        if answer.is_closed() {
            return None;
        }
        let failure = Failure::default();
        let (op, path) = (call.op, call.path.clone());
        self.expected.push_back(Expected { op, path, along, failure: Arc::clone(&failure) });
        let (client, failed) = (Arc::clone(&self.client), self.failed.clone());
        // Unconstrained: tokio's budget could otherwise make a channel with room report that it has none.
        let mut request = Box::pin(unconstrained(async move {
            let performed = AssertUnwindSafe(call.perform(&client)).catch_unwind().await;
            let result = match (lock(&failure).take(), performed) {
                (Some(failure), _) => Err(failure),
                (None, Ok(Ok(reply))) => Ok(reply),
                (None, Ok(Err(error))) => Err(DriverError::Ambiguous(format!("no usable answer: {error}"))),
                (None, Err(_)) => {
                    let reason = "it panicked over a reply".to_owned();
                    let _ = failed.send(reason.clone());
                    Err(DriverError::Ambiguous(reason))
                }
            };
            // The caller may be gone by now.
            let _ = answer.send(result);
        }));
        // The first poll puts the request into the client's channel, which has room: so requests leave in this order.
        let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
        first.is_pending().then_some(request as BoxFuture<'static, ()>)
    }

    /// Takes a frame of the client.
    fn hear(&mut self, frame: &Bytes) -> Result<(), Broken> {
        let header = RequestHeader::decode(frame)?;
        if header.op == OpCode::PING {
            self.owed.push_back(Owed::Pong);
            return Ok(());
        }
        let mut request = Request::decode(header.op, &frame[RequestHeader::LEN..])?;
        let (along, failure) = match self.expected.pop_front() {
            Some(Expected { op, path, along, failure })
                if op == header.op && request.path() == Some(&path) =>
            {
                (along, failure)
            }
            _ => return Err(format!("it sent a request that it was not asked for: {:?}", header.op).into()),
        };
        if let Request::GetData { watch, .. } | Request::Exists { watch, .. } = &mut request {
            *watch = along.watch.is_some();
        }
        let answer = self.wire.send(&request, along);
        self.owed.push_back(Owed::Reply { xid: header.xid, answer, failure });
        Ok(())
    }

    fn pay(&mut self, answer: Option<DriverResult<Reply>>) {
        let (xid, error, reply) = match (self.owed.pop_front(), answer) {
            (Some(Owed::Reply { xid, .. }), Some(Ok(reply))) => (xid, ErrorCode::OK, reply),
            (Some(Owed::Reply { xid, failure, .. }), answer) => {
                let error = match answer {
                    Some(Err(error)) => error,
                    _ => DriverError::Ambiguous("the session was given up".to_owned()),
                };
                let code = match &error {
                    DriverError::Refused(code) => *code,
                    _ => ErrorCode::CONNECTION_LOSS,
                };
                *lock(&failure) = Some(error);
                (xid, code, Reply::Empty)
            }
            (Some(Owed::Pong), _) => (xid::PING, ErrorCode::OK, Reply::Empty),
            (None, _) => return,
        };
        reply.encode(ReplyHeader { xid, zxid: 0, error }, &mut self.to_client);
    }
}

/// The answer to what has been owed longest; `None` where that is a pong, or the driver has ended.
async fn next_answer(owed: &mut VecDeque<Owed>) -> Option<DriverResult<Reply>> {
    match owed.front_mut() {
        None => pending().await,
        Some(Owed::Pong) => None,
        Some(Owed::Reply { answer, .. }) => answer.await.ok(),
    }
}
