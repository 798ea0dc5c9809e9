//! State that the handles of a session, its supervisor and its held znodes share.

use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use crate::error::{Closed, ConnectError, InactiveReason, OpError};
use crate::lock::lock;
use crate::node::Epoch;
use crate::servers::hosts::parse_preferred;
use crate::servers::preference::Preference;
use crate::servers::resolve::Resolver;
use crate::session::incarnation::{Bound, Incarnation};
use crate::session::live::Live;
use crate::session::scope::Scope;
use crate::session::state::{Event, Machine, SessionState};
use crate::settings::Settings;
use crate::time::{BootTime, sleep_until, within};

/// The time for closing the session when its last handle is dropped.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    /// Validated.
    pub(crate) settings: Arc<Settings>,
    /// By the connect string and the settings.
    pub(crate) scope: Arc<Scope>,
    /// Of the session's logs.
    pub(crate) span: Span,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) live: Arc<Live>,
    /// The session that was made last.
    latest: Mutex<Option<Incarnation>>,
    pub(crate) keepers: watch::Sender<usize>,
    /// The paths of the held ephemerals, as the servers know them: each has one holder.
    pub(crate) held: watch::Sender<BTreeSet<String>>,
    /// Once the session is to be closed. Tasks are begun under this lock, and only before that, so that closing waits for
    /// all of them.
    closing: watch::Sender<Option<Closing>>,
    pub(crate) tasks: TaskTracker,
    /// The runtime of the session, wherever its handles are used.
    runtime: Handle,
}

/// How the session is to be closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    pub(crate) by: BootTime,
    /// It is not ended on the servers: another process continues it.
    pub(crate) hands_over: bool,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Result<Self, ConnectError> {
        // A builder's clones may name other files.
        #[cfg(feature = "tls")]
        let settings = Settings { tls_in_use: Arc::default(), ..settings };
        #[cfg(feature = "sasl")]
        let settings = Settings { sasl_in_use: Arc::default(), ..settings };
        let connect = settings.check()?;
        let preference =
            Preference { preferred: parse_preferred(&settings.prefer)?, ..Preference::default() };
        settings.instruments.register();
        Ok(Self {
            span: settings.instruments.span(),
            resolver: Arc::new(Resolver::new(&connect.servers, preference)),
            scope: Arc::new(Scope::new(connect.chroot, &settings.acl)),
            live: Arc::new(Live::new(settings.instruments.clone())),
            settings: Arc::new(settings),
            latest: Mutex::default(),
            keepers: watch::Sender::new(0),
            held: watch::Sender::default(),
            closing: watch::Sender::new(None),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
        })
    }

    /// A session has been made. Returns whether it lives.
    pub(crate) fn made(&self, incarnation: &Incarnation, contact: BootTime, is_resumed: bool) -> bool {
        *lock(&self.latest) = Some(incarnation.clone());
        let (epoch, granted) = (incarnation.epoch(), incarnation.granted_timeout());
        self.live.handle(None, BootTime::now(), Event::Connected { epoch, granted, contact, is_resumed });
        !incarnation.inner.has_ended()
    }

    /// The session that was made last is over, or to be closed: it holds its driver no longer than its users do.
    pub(crate) fn forget_latest(&self) -> Option<Incarnation> {
        lock(&self.latest).take()
    }

    /// The session that was made last, if it is that one.
    fn latest(&self, epoch: Epoch) -> Option<Incarnation> {
        lock(&self.latest).clone().filter(|latest| latest.epoch() == epoch)
    }

    /// The session on which something may begin.
    pub(crate) fn living(&self) -> Option<Incarnation> {
        self.latest(self.live.ask(|known| known.usable(BootTime::now()))?)
    }

    /// Changes which servers are preferred. The session looks for a better one if that is another preference than before.
    pub(crate) fn change_preference(&self, change: impl FnOnce(&mut Preference)) {
        if self.resolver.change_preference(change) {
            self.servers_changed();
        }
    }

    /// The session looks at its connection, and for a better server.
    pub(crate) fn servers_changed(&self) {
        if let Some(living) = self.living() {
            living.inner.driver.servers_changed();
        }
    }

    /// The session on which requests may be sent; `None` while there is none.
    fn open(&self, known: &Machine) -> Option<Result<Incarnation, Closed>> {
        match (known.open(BootTime::now()), known.state()) {
            (Some(epoch), _) => self.latest(epoch).map(Ok),
            (None, SessionState::Closed) => Some(Err(Closed)),
            (None, _) => None,
        }
    }

    /// Waits until there is a session on which requests may be sent.
    pub(crate) async fn active(&self) -> Result<Incarnation, Closed> {
        self.live.wait_for(|known| self.open(known)).await
    }

    /// The session for an operation. If there is none, that is the operation's outcome, and counted as such.
    pub(crate) async fn current(
        &self,
        op: &'static str,
        path: &str,
        bound: Bound,
    ) -> Result<Incarnation, OpError> {
        // Usually there is one, and no wait is needed.
        if let Some(ready) = self.living().filter(|living| living.inner.is_open()) {
            return Ok(Incarnation { bound, ..ready });
        }
        let started = BootTime::now();
        let found = self.find(path, bound.deadline(started, &self.settings)).await;
        if let Err(error) = &found {
            self.settings.instruments.request(op, error.outcome(), BootTime::now().duration_since(started));
        }
        // A timeout of the caller's covers this wait, too.
        found.map(|found| Incarnation { bound: bound.of_steps(started), ..found })
    }

    async fn find(&self, path: &str, deadline: BootTime) -> Result<Incarnation, OpError> {
        let started = BootTime::now();
        let answer = |known: &Machine| match known.state() {
            SessionState::Inactive { reason: InactiveReason::AuthFailed { reason } } => {
                Some(Err(OpError::AuthFailed { path: path.to_owned(), reason: reason.clone() }))
            }
            _ => self.open(known).map(|open| open.map_err(|Closed| OpError::SessionOver)),
        };
        let found = within(deadline, self.live.wait_for(answer)).await;
        found.unwrap_or_else(|| {
            let reason = match self.live.state() {
                SessionState::Inactive { reason } => format!("there is no ZooKeeper session: {reason}"),
                state => format!("the ZooKeeper session is {state}"),
            };
            let within = BootTime::now().duration_since(started);
            Err(OpError::Unavailable { path: path.to_owned(), within, reason })
        })
    }

    /// Starts a task that ends by itself when the session is closed. After that, none is started. Needs no runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.borrow();
        if closing.is_none() {
            self.tasks.spawn_on(task.instrument(self.span.clone()), &self.runtime);
        }
    }

    pub(crate) fn begin_closing(&self, closing: Closing) {
        self.closing.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(closing);
            is_first
        });
        self.tasks.close();
    }

    /// Returns when closing has begun.
    pub(crate) async fn closing(&self) -> Closing {
        let mut closing = self.closing.subscribe();
        match closing.wait_for(Option::is_some).await.ok().and_then(|closing| *closing) {
            Some(closing) => closing,
            // The sender is in `self`.
            None => pending().await,
        }
    }

    /// Sleeps; an error if closing begins first.
    pub(crate) async fn sleep(&self, until: BootTime) -> Result<(), Closed> {
        tokio::select! {
            biased;
            _ = self.closing() => Err(Closed),
            () = sleep_until(until) => Ok(()),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.live.state()).finish_non_exhaustive()
    }
}

/// A session in a [`Scope`]: what the handles, watches and held znodes of a session have in common.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
}

impl View {
    pub(crate) fn scoped(&self, incarnation: Incarnation) -> Incarnation {
        Incarnation { scope: Arc::clone(&self.scope), ..incarnation }
    }

    /// See [`Shared::living`].
    pub(crate) fn living(&self) -> Option<Incarnation> {
        Some(self.scoped(self.shared.living()?))
    }

    /// See [`Shared::active`].
    pub(crate) async fn active(&self) -> Result<Incarnation, Closed> {
        Ok(self.scoped(self.shared.active().await?))
    }
}

/// Dropped with the last handle: the session is closed in the background.
#[derive(Debug)]
pub(crate) struct LastHandle(pub(crate) Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.begin_closing(Closing { by: BootTime::now() + CLOSE_WITHIN, hands_over: false });
    }
}
