//! One value of the client, on one server: made, proved, ended. The client would look for another server by itself; it is
//! not left the time to.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Client, Connector, Error, SessionInfo, SessionState, StateWatcher};

use super::convert::classify;
use super::in_words;
use crate::driver::seek::{self, Patience, Refusal};
use crate::driver::{BARRIER_PATH, BoxFuture, ConnectFailure, ConnectSpec, DriverEvent, Host, acknowledged};
use crate::establish::{LONGEST, SHORTEST};
use crate::incarnation::lock;
use crate::time::{BootTime, within};

/// How a session is made, and carried on at another server.
#[derive(Clone)]
pub(super) struct Recipe {
    /// With credentials.
    connector: Connector,
    tls: bool,
    session_timeout: Duration,
}

impl Recipe {
    pub(super) async fn prepare(spec: &ConnectSpec) -> Result<Self, ConnectFailure> {
        let mut connector = Client::connector().with_fail_eagerly();
        for auth in &spec.auth {
            connector = connector.with_auth(&auth.scheme, auth.secret.expose());
        }
        #[cfg(feature = "tls")]
        if let Some(options) = &spec.secure.tls {
            connector = connector.with_tls(super::tls::prepare(spec, options).await?);
        }
        #[cfg(feature = "sasl")]
        if let Some(sasl) = &spec.secure.sasl {
            let password = String::from_utf8_lossy(sasl.password.expose()).into_owned();
            let sasl = zookeeper_client::SaslOptions::digest_md5(sasl.user.clone(), password);
            connector = connector.with_sasl(sasl);
        }
        #[cfg(feature = "tls")]
        let tls = spec.secure.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let tls = false;
        Ok(Self { connector, tls, session_timeout: spec.session_timeout })
    }

    /// A session of its own at that server.
    ///
    /// The client sets its timers by the timeout that is asked for. Where another one is granted, the session is taken
    /// over once more, by that.
    pub(super) async fn begin(&self, host: Host, patience: Patience) -> Result<Attached, Refusal> {
        let by = BootTime::now() + patience.total();
        let attached = self.attach(&host, self.session_timeout, None, by).await?;
        // What makes no sense is refused by who asked for the session.
        if attached.granted == self.session_timeout || !(SHORTEST..=LONGEST).contains(&attached.granted) {
            return Ok(attached);
        }
        self.carry_on(&host, &attached.end().await, by).await
    }

    /// That session at that server, once it has answered over a quorum: so nothing that is read there can be older than
    /// what was read before, although the client does not tell the server how far it has seen.
    ///
    /// # Cancel safety
    /// Cancel safe: the session is not closed by it.
    pub(super) async fn carry_on(&self, host: &Host, left: &Left, by: BootTime) -> Result<Attached, Refusal> {
        let attached = self.attach(host, left.granted, Some(left.session.clone()), by).await?;
        if attached.session.id() != left.session.id() {
            // A session that was not asked for must never be used.
            return Err(Refusal::Unavailable("the server answered with another session".to_owned()));
        }
        let client = lock(&attached.client).clone();
        let barrier = async {
            match client {
                Some(client) => client.delete(BARRIER_PATH, None).await,
                None => Err(Error::ClientClosed),
            }
        };
        match within(by, AssertUnwindSafe(barrier).catch_unwind()).await {
            Some(Ok(Err(Error::SessionExpired))) => Err(Refusal::Expired),
            Some(Ok(answer)) => match acknowledged(answer.map_err(classify)) {
                Ok(()) => Ok(attached),
                Err(error) => Err(Refusal::Unavailable(error.to_string())),
            },
            Some(Err(_)) => Err(Refusal::Unavailable("a reply could not be understood".to_owned())),
            None => {
                Err(Refusal::Unavailable("it took the session, but no quorum answered in time".to_owned()))
            }
        }
    }

    async fn attach(
        &self,
        host: &Host,
        timeout: Duration,
        session: Option<SessionInfo>,
        by: BootTime,
    ) -> Result<Attached, Refusal> {
        let connector = self.connector.clone();
        let mut connector =
            connector.with_session_timeout(timeout).with_connection_timeout(seek::silence(timeout));
        if let Some(session) = session {
            connector = connector.with_session(session);
        }
        let capture = Capture::default();
        let address = self.address(host);
        let connecting = AssertUnwindSafe(capture.during(connector.connect(&address))).catch_unwind();
        let client = match within(by, connecting).await {
            None => return Err(Refusal::Unavailable("no handshake in time".to_owned())),
            Some(Err(_)) => {
                return Err(Refusal::Unavailable("the handshake could not be understood".to_owned()));
            }
            Some(Ok(Err(Error::AuthFailed))) => {
                return Err(Refusal::AuthFailed(
                    "the server closed the session for its credentials".to_owned(),
                ));
            }
            Some(Ok(Err(Error::SessionExpired))) => return Err(Refusal::Expired),
            Some(Ok(Err(Error::NoHosts))) => {
                return Err(Refusal::Unavailable("no connection, or it was closed".to_owned()));
            }
            Some(Ok(Err(error))) => return Err(Refusal::Unavailable(error.to_string())),
            Some(Ok(Ok(client))) => client,
        };
        let Some(task) = capture.take() else {
            return Err(Refusal::Unavailable("the client library did not hand over its task".to_owned()));
        };
        Ok(Attached::new(client, task))
    }

    fn address(&self, host: &Host) -> String {
        if !self.tls {
            return host.address.to_string();
        }
        // By name, for that is what a certificate is for; the client resolves it, on threads of its own.
        let name = if host.name.contains(':') { format!("[{}]", host.name) } else { host.name.clone() };
        format!("tcp+tls://{name}:{}", host.address.port())
    }
}

/// What is left of a session when its client has ended: enough to carry it on.
#[derive(Clone)]
pub(super) struct Left {
    pub(super) session: SessionInfo,
    pub(super) granted: Duration,
}

/// The client at work on one server. Dropped, it ends without a word to the server.
pub(super) struct Attached {
    pub(super) session: SessionInfo,
    pub(super) granted: Duration,
    /// `None` once the session is being closed. The client closes its session when its last handle is gone, so its own
    /// task holds this one to its end: it closes nothing while it is merely ended.
    client: Arc<Mutex<Option<Client>>>,
    state: StateWatcher,
    /// What was under way here has failed, and its watches are lost.
    pub(super) gone: CancellationToken,
    task: AbortHandle,
    /// The client's task has ended.
    pub(super) ended: CancellationToken,
    /// It was ended because this process stood still.
    stalled: Arc<AtomicBool>,
}

impl Attached {
    fn new(client: Client, mut task: BoxFuture<'static, ()>) -> Self {
        let ended = CancellationToken::new();
        let (session, granted) = (client.session().clone(), client.session_timeout());
        let state = client.state_watcher();
        let client = Arc::new(Mutex::new(Some(client)));
        let held = (Arc::clone(&client), ended.clone().drop_guard());
        let stalled = Arc::new(AtomicBool::new(false));
        let (stands_still, mut polled) = (Arc::clone(&stalled), BootTime::now());
        let task = tokio::spawn(async move {
            // Its timers wake it every few hundredths of the session timeout. A process that was frozen for so long that
            // the session may be over must not write what was queued before.
            let work = poll_fn(|context| {
                let now = BootTime::now();
                if now.duration_since(polled) >= granted / 2 {
                    stands_still.store(true, Ordering::Release);
                    return Poll::Ready(());
                }
                polled = now;
                task.as_mut().poll(context)
            });
            work.await;
            drop((task, held));
        });
        let gone = CancellationToken::new();
        Self { session, granted, client, state, gone, task: task.abort_handle(), ended, stalled }
    }

    /// The client, while the connection is up.
    pub(super) fn client(&self) -> Result<Client, String> {
        let state = self.state();
        if self.gone.is_cancelled() || state != SessionState::SyncConnected {
            return Err(format!("the connection is {}", in_words(state)));
        }
        lock(&self.client).clone().ok_or_else(|| "the session is being closed".to_owned())
    }

    pub(super) fn state(&self) -> SessionState {
        self.state.peek_state()
    }

    /// Has the client say goodbye, once nobody uses it any more.
    pub(super) fn say_goodbye(&self) {
        drop(lock(&self.client).take());
    }

    pub(super) fn abort(&self) {
        // Before the task goes: the client's watchers panic when it goes first.
        self.gone.cancel();
        self.task.abort();
    }

    /// Ends the client, and returns once its connection is closed.
    pub(super) async fn end(&self) -> Left {
        self.abort();
        self.ended.cancelled().await;
        Left { session: self.session.clone(), granted: self.granted }
    }

    /// Returns when the connection is lost, with why, or, as an error, with the last word on the session.
    pub(super) async fn lost(&self) -> Result<String, DriverEvent> {
        let mut state = self.state.clone();
        let now = tokio::select! {
            biased;
            now = state.changed() => now,
            // A task that ends in good order has told its last state; after a panic there is none.
            () = self.ended.cancelled() => state.state(),
        };
        match now {
            SessionState::Expired => Err(DriverEvent::Expired),
            SessionState::AuthFailed => Err(DriverEvent::AuthFailed {
                reason: "the server closed the session for its credentials".to_owned(),
            }),
            SessionState::Closed => {
                Err(DriverEvent::Dead { reason: "the client closed the session".to_owned() })
            }
            _ if self.stalled.load(Ordering::Acquire) => {
                Ok("this process stood still for too long".to_owned())
            }
            _ if self.ended.is_cancelled() => {
                Err(DriverEvent::Dead { reason: "the client's task has failed".to_owned() })
            }
            // Only the latest state is kept: the loss of the connection may not have been seen.
            SessionState::SyncConnected => Ok("the connection was replaced".to_owned()),
            // The client does not say which.
            SessionState::Disconnected => {
                Ok(format!("it broke, or the server was silent for {:?}", seek::silence(self.granted)))
            }
            SessionState::ConnectedReadOnly => Ok(format!("it is {}", in_words(now))),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What each host has said last.
#[derive(Default)]
pub(super) struct Said(Mutex<Vec<(SocketAddr, String)>>);

impl Said {
    pub(super) fn note(&self, host: SocketAddr, said: &str) {
        let mut all = lock(&self.0);
        all.retain(|(other, _)| *other != host);
        all.push((host, said.to_owned()));
    }

    pub(super) fn report(&self) -> String {
        let all = lock(&self.0);
        let hosts: Vec<String> = all.iter().map(|(host, said)| format!("{host}: {said}")).collect();
        hosts.join("; ")
    }
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
