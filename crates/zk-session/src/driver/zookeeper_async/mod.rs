//! The driver over the crate `zookeeper-async`.
//!
//! That client encodes requests and decodes replies well, at any rate that matters. Its care of a connection and of a
//! session can't be built upon: after an expiry it goes on in a new session without a word, it forgets watches and
//! credentials when it reconnects, hears of a dead link after the server has expired the session, can hang in a write
//! or while reconnecting, asks for one address per name and blocks its runtime over it, tells neither session id nor
//! granted timeout, and a malformed reply makes it panic or allocate without bound. None of this can be put right by
//! watching it from outside: by the time it says something, it has already acted.
//!
//! So it is never asked to do any of that. Between it and the server stands a link of the driver's own:
//!
//! ```text
//!   callers --> Queue --> dispatch --> zookeeper-async ==loopback==> Link ==TCP==> server, another server, ...
//!               (order)   (at most      (requests,      (Gate, one    (handshake, credentials, pings,
//!                          48 + 1)       replies)        connection)   watches, validation, reconnects)
//! ```
//!
//! - **One session.** The link makes the handshake itself, so it knows the id, the password and the granted timeout, on
//!   the session's own connection and without a second session or a helper znode. The client never learns of a
//!   reconnect. Anything that it does on its own account - dropping its connection, changing its state - ends the
//!   driver, and the socket that it would reconnect to is closed: it can't end up in another session.
//! - **Connections.** A ping goes out after a tenth of the session timeout; after three tenths of it in silence the
//!   connection is given up, and `seek` finds another server: names looked up again, each attempt bounded, rounds
//!   spaced at random up to a second. It ends at one and a half timeouts of silence.
//! - **Short sessions.** The client is told a session timeout of 30 s, whatever the server granted: only the link goes by
//!   that, so the client's own bound of 1.5 s does not matter.
//! - **Replies** are matched by their ids, and checked for what the client would choke on, before it gets them. What
//!   does not fit costs the connection, never the process: a reply takes no more than 16 MiB, and no more memory than
//!   bytes have really arrived.
//! - **Watches** are kept by the link, in the order of the wire, and set again with ZooKeeper's own `SetWatches`, by
//!   which the server itself finds what was missed: nothing is compared and made up here. The client only carries the
//!   wish for a watch to the link, with the token in the path; it never gets an event, so no closure of anybody can
//!   stop it.
//! - **Outcomes.** What was in flight when a connection broke is ambiguous; what the client hands over while there is
//!   no connection is answered as not sent. A request goes through two hands, so whether one in the client's own
//!   channel has left can't be told: that, too, is ambiguous.
//! - **Hangs.** 48 requests at one time, and one place for the barrier; a request keeps its place until it is answered,
//!   however long ago its caller gave up. A client that sits on requests for five seconds, that panics or drops its
//!   connection is dead, and its session with it. Exchange ids are the link's own and never run out.
//! - **Ends.** The client, the link and all tasks live on a runtime of their own, of a single thread, which is shut down
//!   without waiting for anything.
//!
//! # What it costs
//! One more hop over loopback for each message, and one to another thread: some 50 to 80 microseconds for a request and its
//! reply, by `cargo xtask bench session`. What comes with one read is passed on with one write; a request that is alone is
//! not acknowledged apart from its reply. One listening socket on 127.0.0.1 for the
//! milliseconds that the client takes to connect (a stranger who gets there first is told from the client by a number
//! of 31 bits that only the client knows), two more sockets and one thread per session. The loopback interface has to
//! be up, which it is not in a network namespace fresh from `ip netns add`.
//!
//! # Logs
//! The client prints the whole handshake, password included, at INFO as `zookeeper_async::io`. The handshake that it
//! gets is the link's: the id and the password in that line are made up, and good for nothing. Its other lines say
//! nothing that this crate does not say better; an application may well filter the target `zookeeper_async` down to
//! errors.

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use zookeeper_async::{Acl as ClientAcl, Permission, WatchedEvent, ZkError, ZkState, ZooKeeper};

use self::client::{Queue, dispatch, stat_from_wire, stat_of};
use self::exchange::{marked_stat, path_with_token};
use self::gate::{Gate, Local};
use self::home::{Home, Resident, Unfinished, lock};
use self::link::{Command, Link, LinkState, Servers};
use self::upstream::{Purpose, Upstream};
use self::wire::Grant;
use super::seek::{self, Refusal, Seeker};
use super::{
    Auth, BARRIER_PATH, BoxFuture, CloseAnswer, Code, ConnectFailure, ConnectSpec, Connected, Driver,
    DriverError, DriverEvent, DriverResult, Host, WatchToken, acknowledged,
};
use crate::acl::Acl;
use crate::config::DriverKind;
use crate::node::{CreateMode, SessionId, Stat};
use crate::time::{BootTime, within};

mod armed;
mod client;
mod exchange;
mod gate;
mod home;
mod link;
mod outbox;
mod upstream;
mod wire;

#[cfg(test)]
mod tests;

/// What the client is told as its session timeout, whatever the server granted: its timers, by which it pings the link and
/// nobody else, count in whole seconds, and with less than 1.5 s they come to nothing, so that it drops each connection
/// as soon as it has it.
const CLIENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// Path and data of a request, at the most. A server drops the connection of who sends it a message of 1 MiB, with
/// everything that was in flight on it.
const MAX_PAYLOAD: usize = (1 << 20) - 1024;

/// How long the client may take to reach a socket of this same process.
const CLIENT_CONNECTS_WITHIN: Duration = Duration::from_secs(3);

/// Makes a session.
pub(super) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    let deadline = spec.deadline;
    let home = Arc::new(Home::build().map_err(|error| {
        ConnectFailure::Unavailable(format!("can't start a thread for the ZooKeeper client: {error}"))
    })?);
    let mut unfinished = Unfinished(Some(home.clone()));
    let tried = Arc::new(Tried::default());
    let (events_in, events) = mpsc::unbounded_channel();
    let (done, made) = oneshot::channel();
    let establishing = establish(spec, Resident(home.clone()), events_in, tried.clone());
    home.spawn(async move { drop(done.send(establishing.await)) });
    match within(deadline, made).await {
        Some(Ok(driver)) => {
            let driver = Arc::new(driver?);
            unfinished.0 = None;
            Ok(Connected { driver, events })
        }
        Some(Err(_)) => Err(ConnectFailure::Unavailable(tried.report("the client ended while it connected"))),
        None => Err(ConnectFailure::Unavailable(tried.report("the deadline has passed"))),
    }
}

/// From the first attempt to a session that is served. Runs where the client is to live.
async fn establish(
    spec: ConnectSpec,
    resident: Resident,
    events: mpsc::UnboundedSender<DriverEvent>,
    tried: Arc<Tried>,
) -> Result<ZookeeperAsync, ConnectFailure> {
    let (purpose, auth): (_, Arc<[Auth]>) = (Purpose::New(spec.session_timeout), spec.auth.as_slice().into());
    let attach = |host: Host, patience| {
        let (purpose, auth) = (purpose.clone(), Arc::clone(&auth));
        async move { Upstream::attach(&host, &purpose, &auth, patience).await }
    };
    let (at, upstream) = match seek::first(&spec, |host, said| tried.note(host, said), attach).await {
        Ok(Some(found)) => found,
        Err(Refusal::AuthFailed(reason)) => return Err(ConnectFailure::AuthFailed(reason)),
        Ok(None) | Err(_) => return Err(ConnectFailure::Unavailable(tried.report("no host was given"))),
    };
    let grant = upstream.grant.clone();
    let (commands, obeyed) = mpsc::unbounded_channel();
    let (client, local) = match start_client(commands.clone()).await {
        Ok(started) => started,
        Err(error) => {
            upstream.discard().await;
            return Err(ConnectFailure::Unavailable(error.to_string()));
        }
    };

    let state = Arc::new(LinkState::of_connected());
    let (requests, jobs) = Queue::new();
    let (barriers, beats) = Queue::new();
    let driver = ZookeeperAsync {
        session_id: SessionId(grant.session_id),
        granted: grant.timeout,
        acl: spec.acl,
        requests,
        barriers,
        commands: commands.clone(),
        state: state.clone(),
        home: resident,
    };
    let home = driver.home.0.clone();
    home.spawn(dispatch(client, jobs, beats, state.clone(), commands));

    let servers = Servers { seeker: Seeker::new(&spec), auth };
    let link = Link::new(servers, at, grant, local, obeyed, events.clone(), state);
    home.clone().spawn(async move {
        let last_word = AssertUnwindSafe(link.run(upstream)).catch_unwind().await.unwrap_or_else(|_| {
            Some(DriverEvent::Dead {
                reason: "the driver itself panicked; this is a defect of it".to_owned(),
            })
        });
        if let Some(event) = last_word {
            let _ = events.send(event);
        }
        home.end();
    });
    Ok(driver)
}

/// The client, connected to this driver and to nothing else.
async fn start_client(commands: mpsc::UnboundedSender<Command>) -> io::Result<(Arc<ZooKeeper>, Local)> {
    let gate = Gate::open().await?;
    let (address, watchword) = (gate.address().to_string(), gate.watchword());
    // Should it ever reconnect, to a port that is closed by then, it must not spin until it is ended.
    let retry = Duration::from_millis(fastrand::u64(100..200));
    let connecting = ZooKeeper::connect_with_retry_time(&address, watchword, |_: WatchedEvent| {}, retry);
    let meeting = async { tokio::join!(connecting, gate.admit()) };
    let (client, local) = timeout(CLIENT_CONNECTS_WITHIN, meeting).await.map_err(|_| {
        io::Error::other(format!(
            "the ZooKeeper client did not reach this process at {address} within {CLIENT_CONNECTS_WITHIN:?}: \
             is the loopback interface up?"
        ))
    })?;
    let client =
        client.map_err(|error| io::Error::other(format!("the ZooKeeper client did not start: {error}")))?;
    let mut local = local?;
    client.add_listener(move |state| {
        // Its connection and its session are meant to last as long as it does.
        if state != ZkState::Connected {
            let _ = commands.send(Command::ClientFailed(format!("it went to the state {state}")));
        }
    });
    // It logs what it is granted. Id and password are never used.
    let grant = Grant { timeout: CLIENTS_TIMEOUT, session_id: 1, password: vec![0; 16] };
    local.writer.write_all(grant.to_frame().as_bytes()).await?;
    Ok((Arc::new(client), local))
}

/// One session, carried by `zookeeper-async`.
struct ZookeeperAsync {
    session_id: SessionId,
    granted: Duration,
    acl: Acl,
    requests: Queue,
    barriers: Queue,
    commands: mpsc::UnboundedSender<Command>,
    state: Arc<LinkState>,
    home: Resident,
}

impl ZookeeperAsync {
    fn call<T, F>(
        &self,
        deadline: BootTime,
        path: &str,
        payload: usize,
        request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static,
    ) -> BoxFuture<'static, DriverResult<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ZkError>> + Send + 'static,
    {
        if path.contains('\0') {
            let code = Code::Invalid("ZooKeeper accepts no NUL in a path".to_owned());
            return Box::pin(ready(Err(DriverError::Definite(code))));
        }
        if path.len() + payload > MAX_PAYLOAD {
            let code = Code::Invalid(format!(
                "path and data are {} bytes long; ZooKeeper takes no more than {MAX_PAYLOAD}",
                path.len() + payload
            ));
            return Box::pin(ready(Err(DriverError::Definite(code))));
        }
        let queue = self.requests.clone();
        Box::pin(async move { queue.call(deadline, request).await })
    }

    /// A read that may arm a watch: forgotten again if its caller gets no answer.
    fn look<T, F>(
        &self,
        deadline: BootTime,
        path: &str,
        watch: Option<WatchToken>,
        request: impl FnOnce(Arc<ZooKeeper>, String) -> F + Send + 'static,
    ) -> BoxFuture<'static, DriverResult<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ZkError>> + Send + 'static,
    {
        let Some(token) = watch else {
            let path_owned = path.to_owned();
            return self.call(deadline, path, 0, move |client| request(client, path_owned));
        };
        let marked = path_with_token(path, token);
        let read = self.call(deadline, path, 0, move |client| request(client, marked));
        let mut unanswered = Unanswered { token: Some(token), commands: self.commands.clone() };
        Box::pin(async move {
            let answer = read.await;
            if matches!(answer, Ok(_) | Err(DriverError::Definite(_))) {
                unanswered.settle();
            }
            answer
        })
    }
}

/// Takes a watch back whose caller does not know that it was armed.
struct Unanswered {
    token: Option<WatchToken>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Unanswered {
    /// The caller has its answer, and the token with it.
    fn settle(&mut self) {
        self.token = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            let _ = self.commands.send(Command::Forget(token));
        }
    }
}

impl Driver for ZookeeperAsync {
    fn kind(&self) -> DriverKind {
        DriverKind::ZookeeperAsync
    }

    fn session_id(&self) -> SessionId {
        self.session_id
    }

    fn granted_timeout(&self) -> Duration {
        self.granted
    }

    fn get(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<u8>, Stat)>> {
        self.look(deadline, path, watch, |client, path| async move {
            let (data, stat) = client.get_data(&path, false).await?;
            Ok((data, stat_of(&stat)))
        })
    }

    fn exists(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Option<Stat>>> {
        self.look(deadline, path, watch, |client, path| async move {
            Ok(client.exists(&path, false).await?.as_ref().map(stat_of))
        })
    }

    fn children(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<String>, Stat)>> {
        self.look(deadline, path, watch, |client, path| async move {
            let mut names = client.get_children(&path, false).await?;
            // The client has no request that brings the stat along; the link asks for it and adds it to the list.
            let stat = names.pop().and_then(|last| stat_from_wire(&marked_stat(&last)?));
            Ok((names, stat.ok_or(ZkError::MarshallingError)?))
        })
    }

    fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        sequential: bool,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(String, Stat)>> {
        let mode = match (mode, sequential) {
            (CreateMode::Persistent, false) => zookeeper_async::CreateMode::Persistent,
            (CreateMode::Persistent, true) => zookeeper_async::CreateMode::PersistentSequential,
            (CreateMode::Ephemeral, false) => zookeeper_async::CreateMode::Ephemeral,
            (CreateMode::Ephemeral, true) => zookeeper_async::CreateMode::EphemeralSequential,
        };
        let (owned, bytes, acl) = (path.to_owned(), data.to_vec(), access_list(self.acl));
        self.call(deadline, path, data.len(), move |client| async move {
            let (path, stat) = client.create2(&owned, bytes, acl, mode).await?;
            Ok((path, stat_of(&stat)))
        })
    }

    fn set(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Stat>> {
        let (owned, bytes) = (path.to_owned(), data.to_vec());
        self.call(deadline, path, data.len(), move |client| async move {
            client.set_data(&owned, bytes, version).await.map(|stat| stat_of(&stat))
        })
    }

    fn delete(
        &self,
        path: &str,
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<()>> {
        let owned = path.to_owned();
        self.call(deadline, path, 0, move |client| async move { client.delete(&owned, version).await })
    }

    fn barrier(&self, deadline: BootTime) -> BoxFuture<'static, DriverResult<()>> {
        let queue = self.barriers.clone();
        Box::pin(async move {
            let request = |client: Arc<ZooKeeper>| async move { client.delete(BARRIER_PATH, None).await };
            acknowledged(queue.call(deadline, request).await)
        })
    }

    fn forget(&self, token: WatchToken) {
        // With the link gone there are no watches either.
        let _ = self.commands.send(Command::Forget(token));
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseAnswer> {
        let (answer, answered) = oneshot::channel();
        let asked = self.commands.send(Command::Close(answer)).is_ok();
        let (state, home) = (self.state.clone(), self.home.0.clone());
        Box::pin(async move {
            let answer = match within(deadline, answered).await {
                Some(Ok(answer)) => answer,
                _ if asked && state.is_close_sent() => CloseAnswer::Sent,
                _ => CloseAnswer::Unknown,
            };
            home.end();
            answer
        })
    }

    fn abort(&self) {
        self.home.0.end();
    }
}

fn access_list(acl: Acl) -> Vec<ClientAcl> {
    let creator_all = || ClientAcl::new(Permission::ALL, "auth", "");
    let world = |permission| ClientAcl::new(permission, "world", "anyone");
    match acl {
        Acl::Open => vec![world(Permission::ALL)],
        Acl::CreatorAll => vec![creator_all()],
        Acl::CreatorAllWorldRead => vec![creator_all(), world(Permission::READ)],
    }
}

/// What each host has said last.
#[derive(Default)]
struct Tried(Mutex<BTreeMap<SocketAddr, String>>);

impl Tried {
    fn note(&self, host: SocketAddr, said: &str) {
        lock(&self.0).insert(host, said.to_owned());
    }

    fn report(&self, otherwise: &str) -> String {
        let tried = lock(&self.0);
        if tried.is_empty() {
            return otherwise.to_owned();
        }
        let hosts: Vec<String> = tried.iter().map(|(host, said)| format!("{host}: {said}")).collect();
        hosts.join("; ")
    }
}
