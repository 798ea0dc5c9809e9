//! The driver over the crate `zookeeper-client`.
//!
//! That client keeps one session per value, replays credentials, restores one-shot watches after a reconnect and never
//! goes on in another session, so there is little to compensate:
//! - Its task is taken from it as it is spawned, so that it can be ended at once, and so that its death is noticed.
//! - It queues requests while it is disconnected, and would send them after their caller has given up: they are refused
//!   here instead.
//! - It reports a dead link late by default; a shorter silence is asked for, so that a session survives a dead link and
//!   two dead hosts in a row.
//! - A malformed reply can panic in it: caught, and the session given up.
//! - Of a certificate that one side refuses it says only that there is no connection: `tls` finds out before.
//! - It does not tell when a server grants another session timeout at a reconnect. The servers of one ensemble must
//!   have the same bounds; the crate's documentation says so.

mod convert;
#[cfg(feature = "tls")]
mod tls;

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{
    Client, Error, EventType, MultiWriteError, OneshotWatcher, SessionState, StateWatcher,
};

use self::convert::{access_list, classify, client_mode, convert, convert_result};
#[cfg(feature = "tls")]
use super::Host;
use super::{
    BARRIER_PATH, BoxFuture, CloseAnswer, Code, ConnectFailure, ConnectSpec, Connected, Driver, DriverError,
    DriverEvent, DriverResult, MultiAnswer, WatchKind, WatchToken,
};
use crate::acl::Acl;
use crate::config::DriverKind;
use crate::incarnation::lock;
use crate::multi::MultiOp;
use crate::node::{CreateMode, SessionId, Stat};
use crate::time::{BootTime, sleep_until, within};

/// Makes a session.
pub(super) async fn connect(spec: ConnectSpec) -> Result<Connected, ConnectFailure> {
    let hosts = addresses(&spec);
    let hosts = vec![hosts.join(","); ROUND.div_ceil(hosts.len().max(1))];
    let mut connector = Client::connector()
        .with_session_timeout(spec.session_timeout)
        .with_connection_timeout(silence(spec.session_timeout));
    for auth in &spec.auth {
        connector = connector.with_auth(&auth.scheme, auth.secret.expose());
    }
    #[cfg(feature = "tls")]
    if let Some(options) = &spec.secure.tls {
        connector = connector.with_tls(tls::prepare(&spec, options).await?);
    }
    #[cfg(feature = "sasl")]
    if let Some(sasl) = &spec.secure.sasl {
        let password = String::from_utf8_lossy(sasl.password.expose()).into_owned();
        let sasl = zookeeper_client::SaslOptions::digest_md5(sasl.user.clone(), password);
        connector = connector.with_sasl(sasl);
    }
    let capture = Capture::default();
    let hosts = hosts.join(",");
    let connecting = AssertUnwindSafe(capture.during(connector.connect(&hosts))).catch_unwind();
    let client = match within(spec.deadline, connecting).await {
        None => return Err(ConnectFailure::Unavailable("no handshake in time".to_owned())),
        Some(Err(_)) => {
            return Err(ConnectFailure::Unavailable("the handshake could not be understood".to_owned()));
        }
        Some(Ok(Err(Error::AuthFailed))) => {
            return Err(ConnectFailure::AuthFailed(
                "the server closed the session for its credentials".to_owned(),
            ));
        }
        Some(Ok(Err(error))) => return Err(ConnectFailure::Unavailable(error.to_string())),
        Some(Ok(Ok(client))) => client,
    };
    let Some(task) = capture.take() else {
        return Err(ConnectFailure::Unavailable("the client library did not hand over its task".to_owned()));
    };
    let (events, receiver) = mpsc::unbounded_channel();
    let state = client.state_watcher();
    let stopped = CancellationToken::new();
    let ended = CancellationToken::new();
    let task = tokio::spawn({
        let ended = ended.clone().drop_guard();
        async move {
            task.await;
            drop(ended);
        }
    });
    let core = Arc::new(Core {
        session_id: SessionId(client.session_id().0),
        granted: client.session_timeout(),
        acl: spec.acl,
        state: Mutex::new(state.clone()),
        events: events.clone(),
        closing: CancellationToken::new(),
        stopped: stopped.clone(),
        ended: ended.clone(),
        task: task.abort_handle(),
        watches: Mutex::default(),
    });
    let silence = silence(spec.session_timeout);
    tokio::spawn(report_state(state, events, stopped, ended, silence));
    let driver = Arc::new(ClientDriver { client: Mutex::new(Some(client)), core });
    Ok(Connected { driver, events: receiver })
}

/// The servers as the client is to reach them.
fn addresses(spec: &ConnectSpec) -> Vec<String> {
    #[cfg(feature = "tls")]
    if spec.secure.tls.is_some() {
        // By name, for that is what a certificate is for; the client resolves it, on threads of its own.
        let mut named = Vec::new();
        for Host { name, address } in &spec.hosts {
            let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
            let named_host = format!("tcp+tls://{name}:{}", address.port());
            if !named.contains(&named_host) {
                named.push(named_host);
            }
        }
        return named;
    }
    spec.hosts.iter().map(|host| host.address.to_string()).collect()
}

/// The client's pause between attempts to connect doubles with each round over its hosts and has no bound: with three
/// hosts, an outage of 3 s was noticed to be over after 5.4 s. With each host listed several times, the rounds are
/// longer, and for the first seven seconds no pause exceeds one.
const ROUND: usize = 16;

/// How long a connection may be silent before another one is sought: three of these fit into a session.
fn silence(session_timeout: Duration) -> Duration {
    session_timeout * 3 / 10
}

/// Takes the task that the client spawns, so that it is owned here.
#[derive(Default)]
struct Capture(Mutex<Option<spawns_core::Task>>);

impl Capture {
    async fn during<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        poll_fn(|context| {
            let _scope = spawns_core::enter(self);
            future.as_mut().poll(context)
        })
        .await
    }

    fn take(&self) -> Option<BoxFuture<'static, ()>> {
        lock(&self.0).take().map(|task| Box::into_pin(task.future))
    }
}

impl spawns_core::Spawn for Capture {
    fn spawn(&self, task: spawns_core::Task) {
        *lock(&self.0) = Some(task);
    }
}

struct ClientDriver {
    /// `None` once the session is being closed: the client closes it when its last handle is gone.
    client: Mutex<Option<Client>>,
    core: Arc<Core>,
}

struct Core {
    session_id: SessionId,
    granted: Duration,
    acl: Acl,
    state: Mutex<StateWatcher>,
    events: mpsc::UnboundedSender<DriverEvent>,
    /// Operations give up.
    closing: CancellationToken,
    /// Everything ends.
    stopped: CancellationToken,
    /// The client's task has ended.
    ended: CancellationToken,
    task: AbortHandle,
    watches: Mutex<HashMap<WatchToken, AbortHandle>>,
}

impl Core {
    fn state(&self) -> SessionState {
        lock(&self.state).peek_state()
    }

    fn abort(&self) {
        self.closing.cancel();
        // Before the task goes: the client's watchers panic when it goes first.
        self.stopped.cancel();
        self.task.abort();
    }

    /// Waits for the event of a watch in a task of its own. Answers how to give it up.
    fn await_watch(self: &Arc<Self>, token: WatchToken, watcher: OneshotWatcher) {
        let core = Arc::clone(self);
        let task = async move {
            let event = tokio::select! {
                biased;
                () = core.stopped.cancelled() => return,
                event = AssertUnwindSafe(watcher.changed()).catch_unwind() => event,
            };
            lock(&core.watches).remove(&token);
            // A panic is the loss of the client's task, which is told otherwise.
            let Ok(event) = event else { return };
            let kind = match event.event_type {
                EventType::NodeCreated => WatchKind::Created,
                EventType::NodeDeleted => WatchKind::Deleted,
                EventType::NodeDataChanged => WatchKind::DataChanged,
                EventType::NodeChildrenChanged => WatchKind::ChildrenChanged,
                // The end of the session, which is told otherwise.
                EventType::Session => return,
            };
            let _ = core.events.send(DriverEvent::Watch { token, kind, path: event.path });
        };
        // The lock is held until the handle is in the table, so that the task can't remove it before.
        let mut watches = lock(&self.watches);
        watches.insert(token, tokio::spawn(task).abort_handle());
    }
}

impl ClientDriver {
    /// Runs one operation of the client: refused while disconnected, bounded, its panics caught.
    fn call<T, F>(
        &self,
        deadline: BootTime,
        operation: impl FnOnce(Client) -> F + Send + 'static,
    ) -> BoxFuture<'static, DriverResult<T>>
    where
        F: Future<Output = Result<T, Error>> + Send,
        T: Send,
    {
        let client = lock(&self.client).clone();
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let Some(client) = client.filter(|_| !core.closing.is_cancelled()) else {
                return Err(DriverError::NotSent("the session is being closed".to_owned()));
            };
            let state = core.state();
            if state != SessionState::SyncConnected {
                return Err(DriverError::NotSent(format!("the connection is {}", in_words(state))));
            }
            // Created here and not before: the client sends at creation.
            let operation = AssertUnwindSafe(async move { operation(client).await }).catch_unwind();
            let answer = tokio::select! {
                biased;
                answer = operation => answer,
                () = core.closing.cancelled() => {
                    return Err(DriverError::Ambiguous("the session was closed meanwhile".to_owned()));
                }
                () = sleep_until(deadline) => {
                    return Err(DriverError::Ambiguous("no answer in time".to_owned()));
                }
            };
            match answer {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(error)) => Err(classify(error)),
                Err(_) => {
                    let reason = "a reply of the server could not be understood".to_owned();
                    let _ = core.events.send(DriverEvent::Dead { reason: reason.clone() });
                    core.abort();
                    Err(DriverError::Ambiguous(reason))
                }
            }
        })
    }
}

impl Driver for ClientDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::ZookeeperClient
    }

    fn session_id(&self) -> SessionId {
        self.core.session_id
    }

    fn granted_timeout(&self) -> Duration {
        self.core.granted
    }

    fn get(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<u8>, Stat)>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client| async move {
            match watch {
                None => client.get_data(&path).await.map(|(data, stat)| (data, convert(stat))),
                Some(token) => {
                    let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                    core.await_watch(token, watcher);
                    Ok((data, convert(stat)))
                }
            }
        })
    }

    fn exists(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Option<Stat>>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client| async move {
            match watch {
                None => client.check_stat(&path).await.map(|stat| stat.map(convert)),
                Some(token) => {
                    let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                    core.await_watch(token, watcher);
                    Ok(stat.map(convert))
                }
            }
        })
    }

    fn children(
        &self,
        path: &str,
        watch: Option<WatchToken>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<(Vec<String>, Stat)>> {
        let (path, core) = (path.to_owned(), Arc::clone(&self.core));
        self.call(deadline, move |client| async move {
            match watch {
                None => client.get_children(&path).await.map(|(names, stat)| (names, convert(stat))),
                Some(token) => {
                    let (names, stat, watcher) = client.get_and_watch_children(&path).await?;
                    core.await_watch(token, watcher);
                    Ok((names, convert(stat)))
                }
            }
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
        let (path, data) = (path.to_owned(), data.to_vec());
        let mode = client_mode(mode, sequential);
        let acls = access_list(self.core.acl);
        self.call(deadline, move |client| async move {
            let options = mode.with_acls(acls);
            let (stat, sequence) = client.create(&path, &data, &options).await?;
            let created = if sequential { format!("{path}{sequence}") } else { path };
            Ok((created, convert(stat)))
        })
    }

    fn set(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<Stat>> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.call(
            deadline,
            move |client| async move { client.set_data(&path, &data, version).await.map(convert) },
        )
    }

    fn delete(
        &self,
        path: &str,
        version: Option<i32>,
        deadline: BootTime,
    ) -> BoxFuture<'static, DriverResult<()>> {
        let path = path.to_owned();
        self.call(deadline, move |client| async move { client.delete(&path, version).await })
    }

    fn has_multi(&self) -> bool {
        true
    }

    fn multi(&self, ops: &[MultiOp], deadline: BootTime) -> BoxFuture<'static, DriverResult<MultiAnswer>> {
        let (ops, acls) = (ops.to_vec(), access_list(self.core.acl));
        self.call(deadline, move |client| async move {
            let mut writer = client.new_multi_writer();
            for (at, op) in ops.iter().enumerate() {
                let added = match op {
                    // As the server has it: -1 is any version.
                    MultiOp::Check { path, version } => writer.add_check_version(path, version.unwrap_or(-1)),
                    MultiOp::Create { path, data, mode } => {
                        writer.add_create(path, data, &client_mode(*mode, false).with_acls(acls))
                    }
                    MultiOp::Set { path, data, version } => writer.add_set_data(path, data, *version),
                    MultiOp::Delete { path, version } => writer.add_delete(path, *version),
                };
                if let Err(error) = added {
                    return Ok(MultiAnswer::Refused { at, code: Code::Invalid(error.to_string()) });
                }
            }
            match writer.commit().await {
                Ok(results) if results.len() == ops.len() => {
                    Ok(MultiAnswer::Done(results.into_iter().map(convert_result).collect()))
                }
                Ok(_) => Err(Error::UnexpectedError("results for another number of operations".to_owned())),
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
                // The server has answered, and what it answers is that nothing was done.
                Err(MultiWriteError::OperationFailed { index, source }) => {
                    let code = match classify(source) {
                        DriverError::Definite(code) => code,
                        DriverError::Ambiguous(said) | DriverError::NotSent(said) => Code::Other(said),
                    };
                    Ok(MultiAnswer::Refused { at: index, code })
                }
            }
        })
    }

    fn barrier(&self, deadline: BootTime) -> BoxFuture<'static, DriverResult<()>> {
        self.call(deadline, move |client| async move {
            match client.delete(BARRIER_PATH, None).await {
                // Refused by the ensemble, which is what a barrier wants.
                Ok(()) | Err(Error::NoNode | Error::NoAuth) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn forget(&self, token: WatchToken) {
        if let Some(task) = lock(&self.core.watches).remove(&token) {
            task.abort();
        }
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseAnswer> {
        let core = Arc::clone(&self.core);
        let connected = core.state() == SessionState::SyncConnected;
        // The client says goodbye when nobody holds it any more: operations under way let go of it.
        core.closing.cancel();
        drop(lock(&self.client).take());
        Box::pin(async move {
            let ended = within(deadline, core.ended.cancelled()).await;
            let answer = match (ended, core.state()) {
                // The answer to the goodbye has come, or the server no longer knows the session.
                (Some(()), SessionState::Closed | SessionState::Expired) => CloseAnswer::Acknowledged,
                _ if connected => CloseAnswer::Sent,
                _ => CloseAnswer::Unknown,
            };
            core.abort();
            core.ended.cancelled().await;
            answer
        })
    }

    fn abort(&self) {
        self.core.abort();
        drop(lock(&self.client).take());
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        self.core.abort();
    }
}

/// Turns the client's states into events until the last one.
async fn report_state(
    mut state: StateWatcher,
    events: mpsc::UnboundedSender<DriverEvent>,
    stopped: CancellationToken,
    ended: CancellationToken,
    silence: Duration,
) {
    let mut connected = true;
    loop {
        let now = tokio::select! {
            biased;
            () = stopped.cancelled() => return,
            now = state.changed() => now,
            // A task that ends in good order has told its last state; after a panic there is none.
            () = ended.cancelled() => state.state(),
        };
        let ended = ended.is_cancelled();
        let last = match now {
            SessionState::Expired => DriverEvent::Expired,
            SessionState::AuthFailed => DriverEvent::AuthFailed {
                reason: "the server closed the session for its credentials".to_owned(),
            },
            SessionState::Closed => DriverEvent::Dead { reason: "the client closed the session".to_owned() },
            _ if ended => DriverEvent::Dead { reason: "the client's task has failed".to_owned() },
            SessionState::SyncConnected => {
                if connected {
                    // Only the latest state is kept: a short loss of the connection may not have been seen.
                    let _ = events
                        .send(DriverEvent::Suspended { reason: "the connection was replaced".to_owned() });
                }
                connected = true;
                let _ = events.send(DriverEvent::Resumed);
                continue;
            }
            SessionState::Disconnected | SessionState::ConnectedReadOnly => {
                if connected {
                    // The client does not say which.
                    let reason = match now {
                        SessionState::Disconnected => {
                            format!("it broke, or the server was silent for {silence:?}")
                        }
                        now => format!("it is {}", in_words(now)),
                    };
                    let _ = events.send(DriverEvent::Suspended { reason });
                }
                connected = false;
                continue;
            }
        };
        let _ = events.send(last);
        return;
    }
}

fn in_words(state: SessionState) -> &'static str {
    match state {
        SessionState::Disconnected => "lost",
        SessionState::SyncConnected => "up",
        SessionState::AuthFailed => "refused for its credentials",
        SessionState::ConnectedReadOnly => "read-only",
        SessionState::Expired => "of an expired session",
        SessionState::Closed => "closed",
    }
}
