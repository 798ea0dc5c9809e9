//! The driver over the crate `zookeeper-async`.
//!
//! That client encodes requests and decodes replies well, at any rate that matters. Its handling of connections and
//! sessions can't be relied on: tests/README.md lists what it does by itself. None of this can be corrected from outside:
//! when it reports something, it has already acted. So it does none of that here. The session is carried by [`Wire`] as
//! with the other driver, and the client is connected to this process and to nothing else:
//!
//! ```text
//!   callers --> Clerk --> zookeeper-async ==loopback==> Relay --> Wire ==TCP==> server, another server, ...
//!      |       (at most 48,   (requests,    (one connection)       ^
//!      |        in order)      replies)                            |
//!      +--- what the client can't do, and heartbeats --------------+
//! ```
//!
//! - **What goes through it**: reading data and stats, and creating, changing and deleting znodes. Requests that it does
//!   not support (groups, children with their stat, lasting watches, access lists, `sync` and the rest) go to `Wire` beside
//!   it, in the order in which the callers asked; so do heartbeats, on which leases depend, out of that order.
//! - **What it never sees**: reconnects, watches, credentials, other sessions, TLS. Anything that it does by itself
//!   (dropping its connection, changing its state) ends the driver, and the socket to which it would reconnect is closed.
//! - **Outcomes** come from `Wire`, beside the client's own errors, which do not distinguish refusals from lost answers.
//! - **Hangs.** A client that makes no progress with requests for five seconds, panics or drops its connection is ended,
//!   with its session.
//! - **Ends.** The client and its tasks have a runtime of their own on a thread of its own, which is shut down without
//!   waiting for anything. Nothing of it is kept anywhere else: a handle alone would keep its poll descriptors open.
//!
//! # What it costs
//! One more hop over loopback for each message, and one to another thread; a listening socket on 127.0.0.1 for the
//! milliseconds that the client takes to connect (another process that connects first is distinguished from the client by a
//! number of 31 bits that only the client knows), two more sockets and one thread per session. The loopback interface has
//! to be up, which it is not in a network namespace fresh from `ip netns add`.
//!
//! # Logs
//! The client prints the whole handshake, password included, at INFO as `zookeeper_async::io`. The handshake that it
//! gets is the relay's: the id and the password in that line are made up and useless. Its other lines add nothing to this
//! crate's own; an application may filter the target `zookeeper_async` to errors.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zk_proto::{Request, RequestHeader, Ticket, WatchId};
use zookeeper_async::{WatchedEvent, ZkState, ZooKeeper};

use self::call::Call;
use self::gate::{Gate, Local};
use self::relay::{Job, Relay};
use super::wire::{self, Wire};
use super::{Along, Answer, Answers, BoxFuture, ConnectFailure, ConnectSpec, Connected, Driver};
use crate::driver::close::CloseOutcome;
use crate::time::{BootTime, Moment};

mod call;
mod gate;
mod relay;
#[cfg(test)]
mod tests;

/// The session timeout that the client gets, whatever the server granted: its timers, by which it pings only the relay,
/// count in whole seconds. With less than 1.5 s they are zero, and it drops each connection at once.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the client may take to reach a socket of this same process.
const CLIENT_CONNECTS_WITHIN: Duration = Duration::from_secs(3);

/// The most sockets of a client, and some more: by default there would be memory for the events of a thousand.
const SOCKETS: usize = 16;

/// Makes or resumes a session.
pub(super) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    let resolver = Arc::clone(&spec.resolver);
    let (wire, events, sent) = wire::connect(spec).await?;
    let driver = assemble(wire, start_client).await.map_err(|reason| {
        let mut answers = Answers::default();
        resolver.servers().into_iter().for_each(|server| answers.failed(server, reason.clone()));
        ConnectFailure::Unavailable(answers)
    })?;
    Ok(Connected { driver: Arc::new(driver), events, sent })
}

/// A driver whose client is made by `start`, and served until either ends.
async fn assemble<F>(
    wire: Wire,
    start: impl FnOnce(mpsc::UnboundedSender<String>) -> F + Send + 'static,
) -> Result<ZookeeperAsync, String>
where
    F: Future<Output = io::Result<(ZooKeeper, Local)>> + Send + 'static,
{
    let (jobs, waiting) = mpsc::unbounded_channel();
    let driver = ZookeeperAsync { wire: Arc::new(wire), jobs, end: CancellationToken::new() };
    let (started, has_started) = oneshot::channel();
    let (carrier, end) = (Arc::clone(&driver.wire), driver.end.clone());
    let serve = async move |started: oneshot::Sender<Result<(), String>>| {
        let (failed, failures) = mpsc::unbounded_channel();
        match start(failed.clone()).await {
            Err(error) => drop(started.send(Err(error.to_string()))),
            Ok((client, local)) => {
                // The caller may have given up.
                let _ = started.send(Ok(()));
                let relay = Relay::new(Arc::new(client), Arc::clone(&carrier), failed);
                if let Err(reason) = relay.run(local, waiting, failures).await {
                    carrier.fail(format!("the client failed: {reason}"));
                }
            }
        }
    };
    let no_thread = |error| format!("cannot start a thread for the ZooKeeper client: {error}");
    let thread = thread::Builder::new().name("zookeeper-async".to_owned());
    let spawned = thread.spawn(move || {
        // For a single thread: a message of the client passes through half a dozen tasks, and this runtime hands it from
        // one to the next at half the price of the other.
        let runtime = runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .max_io_events_per_tick(SOCKETS)
            .enable_all()
            .build();
        match runtime {
            Err(error) => drop(started.send(Err(no_thread(error)))),
            Ok(runtime) => {
                runtime.block_on(end.run_until_cancelled(serve(started)));
                // Ends every task at its next pause, and so closes every socket.
                runtime.shutdown_background();
            }
        }
    });
    spawned.map_err(no_thread)?;
    let ended = || Err("the client ended while it connected".to_owned());
    has_started.await.unwrap_or_else(|_| ended())?;
    Ok(driver)
}

/// The client, connected to this process and to nothing else.
async fn start_client(failed: mpsc::UnboundedSender<String>) -> io::Result<(ZooKeeper, Local)> {
    let gate = Gate::open().await?;
    let (address, watchword) = (gate.address()?.to_string(), gate.watchword());
    // Should it ever reconnect, to a port that is closed by then, it must not spin until it is ended.
    let retry = Duration::from_millis(fastrand::u64(100..200));
    let connecting = ZooKeeper::connect_with_retry_time(&address, watchword, |_: WatchedEvent| {}, retry);
    let meeting = async { tokio::join!(connecting, gate.admit(CLIENTS_TIMEOUT)) };
    let (client, local) = timeout(CLIENT_CONNECTS_WITHIN, meeting).await.map_err(|_| {
        io::Error::other(format!(
            "the ZooKeeper client did not reach this process at {address} within {CLIENT_CONNECTS_WITHIN:?}: \
             is the loopback interface up?"
        ))
    })?;
    let client =
        client.map_err(|error| io::Error::other(format!("the ZooKeeper client did not start: {error}")))?;
    client.add_listener(move |state| {
        // Its connection and its session last as long as the client.
        if state != ZkState::Connected {
            let _ = failed.send(format!("it went to the state {state}"));
        }
    });
    Ok((client, local?))
}

/// One session, with most of its requests through `zookeeper-async`.
struct ZookeeperAsync {
    wire: Arc<Wire>,
    jobs: mpsc::UnboundedSender<Job>,
    /// Ends the thread of the client, with its runtime.
    end: CancellationToken,
}

impl Driver for ZookeeperAsync {
    fn ticket(&self) -> Ticket {
        self.wire.ticket()
    }

    fn attached(&self) -> Moment {
        self.wire.attached()
    }

    fn server(&self) -> SocketAddr {
        self.wire.server()
    }

    fn send(&self, request: &Request<'_>, along: Along) -> Answer {
        if along.heartbeat {
            return self.wire.send(request, along);
        }
        let (answer, receiver) = oneshot::channel();
        let job = match Call::new(request) {
            Some(call) => Job::Call { call, along, answer },
            None => {
                let mut frame = BytesMut::new();
                request.encode(0, &mut frame);
                let (op, body) = (request.op(), frame.freeze().slice(4 + RequestHeader::LEN..));
                Job::Beside(Box::new(move |wire| {
                    // Without its caller it never leaves.
                    if let (false, Ok(request)) = (answer.is_closed(), Request::decode(op, &body)) {
                        wire.hand_over(&request, along, answer);
                    }
                }))
            }
        };
        // Without a receiver the job is dropped, and the answer reports it.
        let _ = self.jobs.send(job);
        receiver
    }

    fn forget(&self, watch: WatchId) {
        // Without a receiver there is no watch either.
        let _ = self.jobs.send(Job::Beside(Box::new(move |wire| wire.forget(watch))));
    }

    fn servers_changed(&self) {
        self.wire.servers_changed();
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseOutcome> {
        let (closing, end) = (self.wire.close(deadline), self.end.clone());
        Box::pin(async move {
            let answer = closing.await;
            end.cancel();
            answer
        })
    }

    fn abort(&self) {
        self.wire.abort();
        self.end.cancel();
    }
}

impl Drop for ZookeeperAsync {
    fn drop(&mut self) {
        self.abort();
    }
}
