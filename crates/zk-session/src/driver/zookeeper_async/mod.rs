//! The driver over the crate `zookeeper-async`.
//!
//! That client encodes requests and decodes replies well, at any rate that matters. Its care of a connection and of a
//! session can't be built upon: tests/README.md lists what it does by itself. None of this can be put right by watching it
//! from outside: by the time it says something, it has already acted. So it is never asked to do any of that. The session is carried by [`Wire`] as with the other driver, and the client is
//! connected to this process and to nothing else:
//!
//! ```text
//!   callers --> Clerk --> zookeeper-async ==loopback==> Relay --> Wire ==TCP==> server, another server, ...
//!      |       (at most 48,   (requests,    (one connection)       ^
//!      |        in order)      replies)                            |
//!      +--- what the client can't do, and heartbeats --------------+
//! ```
//!
//! - **What goes through it**: reading data and stats, and creating, changing and deleting znodes. What it can't do
//!   (groups, children with their stat, lasting watches, access lists, `sync` and the rest) goes to `Wire` beside it, in
//!   the order in which the callers asked; so do heartbeats, on which leases depend, out of that order.
//! - **What it never sees**: reconnects, watches, credentials, other sessions, TLS. Anything that it does on its own
//!   account (dropping its connection, changing its state) ends the driver, and the socket that it would reconnect to is
//!   closed.
//! - **Outcomes** are told by `Wire`, beside the client's own errors, which can't be told apart.
//! - **Hangs.** A client that sits on requests for five seconds, that panics or drops its connection is dead, and its
//!   session with it.
//! - **Ends.** The client and what feeds it live on a runtime of their own, of a single thread, which is shut down
//!   without waiting for anything.
//!
//! # What it costs
//! One more hop over loopback for each message, and one to another thread; a listening socket on 127.0.0.1 for the
//! milliseconds that the client takes to connect (a stranger who gets there first is told from the client by a number of
//! 31 bits that only the client knows), two more sockets and one thread per session. The loopback interface has to be up,
//! which it is not in a network namespace fresh from `ip netns add`.
//!
//! # Logs
//! The client prints the whole handshake, password included, at INFO as `zookeeper_async::io`. The handshake that it
//! gets is the relay's: the id and the password in that line are made up, and good for nothing. Its other lines say
//! nothing that this crate does not say better; an application may well filter the target `zookeeper_async` down to
//! errors.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use zk_proto::{Request, Ticket, WatchId};
use zookeeper_async::{WatchedEvent, ZkState, ZooKeeper};

use self::call::Call;
use self::gate::{Gate, Local};
use self::home::Home;
use self::relay::{Job, Relay, Work};
use super::wire::{self, Wire};
use super::{Along, Answer, BoxFuture, ConnectFailure, ConnectSpec, Connected, Driver};
use crate::session::CloseOutcome;
use crate::time::{BootTime, Moment};

mod call;
mod gate;
mod home;
mod relay;
#[cfg(test)]
mod tests;

/// What the client is told as its session timeout, whatever the server granted: its timers, by which it pings the relay
/// and nobody else, count in whole seconds, and with less than 1.5 s they come to nothing, so that it drops each
/// connection as soon as it has it.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the client may take to reach a socket of this same process.
const CLIENT_CONNECTS_WITHIN: Duration = Duration::from_secs(3);

/// Makes or resumes a session.
pub(super) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    let resolver = Arc::clone(&spec.resolver);
    let (wire, events, sent) = wire::connect(spec).await?;
    let driver = assemble(wire, start_client).await.map_err(|reason| {
        let servers = resolver.servers().into_iter();
        ConnectFailure::Unavailable(servers.map(|server| (server, reason.clone())).collect())
    })?;
    Ok(Connected { driver: Arc::new(driver), events, sent })
}

/// A driver whose client is had from `start`, and served until either ends.
async fn assemble<F>(
    wire: Wire,
    start: impl FnOnce(mpsc::UnboundedSender<String>) -> F + Send + 'static,
) -> Result<ZookeeperAsync, String>
where
    F: Future<Output = io::Result<(ZooKeeper, Local)>> + Send + 'static,
{
    let home =
        Home::build().map_err(|error| format!("can't start a thread for the ZooKeeper client: {error}"))?;
    let (jobs, waiting) = mpsc::unbounded_channel();
    let driver = ZookeeperAsync { wire: Arc::new(wire), jobs, home: Arc::new(home) };
    let (started, has_started) = oneshot::channel();
    let (carrier, thread) = (Arc::clone(&driver.wire), Arc::clone(&driver.home));
    driver.home.spawn(async move {
        let (failed, failures) = mpsc::unbounded_channel();
        match start(failed.clone()).await {
            Err(error) => drop(started.send(Err(error.to_string()))),
            Ok((client, local)) => {
                // Whoever connects may have given up.
                let _ = started.send(Ok(()));
                let relay = Relay::new(Arc::new(client), Arc::clone(&carrier), failed);
                if let Err(reason) = relay.run(local, waiting, failures).await {
                    carrier.fail(format!("the client failed: {reason}"));
                }
                thread.end();
            }
        }
    });
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
        // Its connection and its session are meant to last as long as it does.
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
    home: Arc<Home>,
}

impl Driver for ZookeeperAsync {
    fn ticket(&self) -> Ticket {
        self.wire.ticket()
    }

    fn attached(&self) -> Moment {
        self.wire.attached()
    }

    fn send(&self, request: &Request<'_>, along: Along) -> Answer {
        if along.heartbeat {
            return self.wire.send(request, along);
        }
        let (answer, receiver) = oneshot::channel();
        let work = Call::new(request).map_or_else(|| Work::beside(request), Work::Call);
        // With nobody to take it the job is dropped, and the answer says so.
        let _ = self.jobs.send(Job::Request { work, along, answer });
        receiver
    }

    fn forget(&self, watch: WatchId) {
        // With nobody to take it there is no watch either.
        let _ = self.jobs.send(Job::Forget(watch));
    }

    fn servers_changed(&self) {
        self.wire.servers_changed();
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseOutcome> {
        let (closing, home) = (self.wire.close(deadline), Arc::clone(&self.home));
        Box::pin(async move {
            let answer = closing.await;
            home.end();
            answer
        })
    }

    fn abort(&self) {
        self.wire.abort();
        self.home.end();
    }
}

impl Drop for ZookeeperAsync {
    fn drop(&mut self) {
        self.abort();
    }
}
