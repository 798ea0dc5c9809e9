//! State that the handles of a session, its supervisor and its held znodes share.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use crate::driver::close::CloseOutcome;
use crate::error::{Closed, ConnectError, InactiveReason, OpError};
use crate::lease::Lease;
use crate::lock::lock;
use crate::servers::hosts::parse_preferred;
use crate::servers::preference::Preference;
use crate::servers::resolve::Resolver;
use crate::session::incarnation::{Bound, Incarnation};
use crate::session::state::SessionState;
use crate::settings::Settings;
use crate::time::{BootTime, sleep_until, within};

/// The time for closing the session when its last handle is dropped.
pub(crate) const CLOSE_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Shared {
    /// Validated.
    pub(crate) settings: Arc<Settings>,
    /// Of the connect string.
    pub(crate) chroot: String,
    /// Of the session's logs.
    pub(crate) span: Span,
    pub(crate) resolver: Arc<Resolver>,
    state: watch::Sender<SessionState>,
    pub(crate) incarnation: watch::Sender<Option<Incarnation>>,
    lease: watch::Sender<Option<Lease>>,
    pub(crate) keepers: watch::Sender<usize>,
    /// By when the session is to be closed, once closing has begun.
    pub(crate) closing: watch::Sender<Option<BootTime>>,
    pub(crate) outcome: watch::Sender<Option<CloseOutcome>>,
    pub(crate) tasks: TaskTracker,
    /// The runtime of the session, wherever its handles are used.
    runtime: Handle,
    /// Tasks are begun under this lock, and only while it is false, so that closing waits for all of them.
    closed_to_tasks: Mutex<bool>,
    handed_over: AtomicBool,
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
            settings: Arc::new(settings),
            chroot: connect.chroot,
            state: watch::Sender::new(SessionState::Inactive { reason: InactiveReason::NotYetConnected }),
            incarnation: watch::Sender::new(None),
            lease: watch::Sender::new(None),
            keepers: watch::Sender::new(0),
            closing: watch::Sender::new(None),
            outcome: watch::Sender::new(None),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            closed_to_tasks: Mutex::new(false),
            handed_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn state(&self) -> watch::Ref<'_, SessionState> {
        self.state.borrow()
    }

    pub(crate) fn subscribe_state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    pub(crate) fn set_state(&self, state: SessionState) {
        self.state.send_replace(state);
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        *self.lease.borrow()
    }

    pub(crate) fn subscribe_lease(&self) -> watch::Receiver<Option<Lease>> {
        self.lease.subscribe()
    }

    pub(crate) fn set_lease(&self, lease: Option<Lease>) {
        self.lease.send_replace(lease);
    }

    pub(crate) fn living(&self) -> Option<Incarnation> {
        self.incarnation.borrow().clone().filter(|living| !living.is_over())
    }

    /// Changes which servers are preferred. The session looks for a better one if that is another preference than before.
    pub(crate) fn change_preference(&self, change: impl FnOnce(&mut Preference)) {
        if self.resolver.change_preference(change)
            && let Some(living) = self.living()
        {
            living.inner.driver.servers_changed();
        }
    }

    /// The session if operations can be sent at once.
    fn ready(&self) -> Option<Incarnation> {
        let is_active = self.state.borrow().is_active();
        self.living().filter(|living| is_active && living.inner.is_open())
    }

    pub(crate) async fn active(&self) -> Result<Incarnation, Closed> {
        let mut state = self.state.subscribe();
        loop {
            let wanted = match &*state.borrow_and_update() {
                SessionState::Active { epoch } => Some(*epoch),
                SessionState::Closed => return Err(Closed),
                _ => None,
            };
            if let Some(living) = self.living().filter(|living| Some(living.epoch()) == wanted) {
                return Ok(living);
            }
            state.changed().await.map_err(|_| Closed)?;
        }
    }

    /// The session for an operation. If there is none, that is the operation's outcome, and counted as such.
    pub(crate) async fn current(
        &self,
        op: &'static str,
        path: &str,
        bound: Bound,
    ) -> Result<Incarnation, OpError> {
        // Usually there is one, and no wait is needed.
        if let Some(inner) = self.ready().map(|ready| ready.inner) {
            return Ok(Incarnation { inner, bound });
        }
        let started = BootTime::now();
        let found = self.find(path, bound.deadline(started, &self.settings)).await;
        if let Err(error) = &found {
            self.settings.instruments.request(op, error.outcome(), BootTime::now().duration_since(started));
        }
        // A timeout of the caller's covers this wait, too.
        let bound = match bound {
            Bound::Within(timeout) => Bound::By(started + timeout),
            other => other,
        };
        found.map(|found| Incarnation { inner: found.inner, bound })
    }

    async fn find(&self, path: &str, deadline: BootTime) -> Result<Incarnation, OpError> {
        let started = BootTime::now();
        let waiting = within(deadline, self.active());
        let found = tokio::select! {
            biased;
            found = waiting => found,
            reason = self.refused() => return Err(OpError::AuthFailed { path: path.to_owned(), reason }),
        };
        match found {
            Some(Ok(incarnation)) => Ok(incarnation),
            Some(Err(Closed)) => Err(OpError::SessionOver),
            None => Err(OpError::Unavailable {
                path: path.to_owned(),
                within: BootTime::now().duration_since(started),
                reason: match &*self.state.borrow() {
                    SessionState::Inactive { reason } => format!("there is no ZooKeeper session: {reason}"),
                    state => format!("the ZooKeeper session is {state}"),
                },
            }),
        }
    }

    /// Returns when the servers refuse the credentials, with their reason.
    async fn refused(&self) -> String {
        let mut state = self.state.subscribe();
        loop {
            if let SessionState::Inactive { reason: InactiveReason::AuthFailed { reason } } =
                &*state.borrow_and_update()
            {
                return reason.clone();
            }
            if state.changed().await.is_err() {
                // The sender is in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Starts a task that ends by itself when the session is closed. After that, none is started. Needs no runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closed = lock(&self.closed_to_tasks);
        if !*closed {
            self.tasks.spawn_on(task.instrument(self.span.clone()), &self.runtime);
        }
    }

    /// Begins closing that does not end the session on the servers.
    pub(crate) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Release);
        self.begin_closing(BootTime::now() + CLOSE_WITHIN);
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Acquire)
    }

    pub(crate) fn begin_closing(&self, deadline: BootTime) {
        *lock(&self.closed_to_tasks) = true;
        self.closing.send_if_modified(|closing| {
            let first = closing.is_none();
            closing.get_or_insert(deadline);
            first
        });
        self.tasks.close();
    }

    /// Returns when closing has begun, with its deadline.
    pub(crate) async fn closing(&self) -> BootTime {
        let mut closing = self.closing.subscribe();
        // The sender is in `self`.
        let deadline = closing.wait_for(Option::is_some).await.ok().and_then(|deadline| *deadline);
        deadline.unwrap_or_else(BootTime::now)
    }

    /// Sleeps; `Err` with the deadline of closing if that begins first.
    pub(crate) async fn sleep(&self, until: BootTime) -> Result<(), BootTime> {
        tokio::select! {
            biased;
            deadline = self.closing() => Err(deadline),
            () = sleep_until(until) => Ok(()),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

/// Dropped with the last handle: the session is closed in the background.
pub(crate) struct LastHandle(pub(crate) Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.begin_closing(BootTime::now() + CLOSE_WITHIN);
    }
}
