//! One ZooKeeper session, from its creation to its end, and never another one.
//!
//! No session begins while work of the former one may run: a `SessionPin` is taken with a session and dropped when its
//! user is clear of it, and the next session waits for that. Otherwise one process could act under two sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use zk_proto::{Ticket, WatchId};

use crate::acl::Acl;
use crate::driver::Driver;
use crate::error::NoLease;
use crate::lease::LeaseTiming;
use crate::node::{Epoch, SessionId};
use crate::session::changes::Waiters;
use crate::session::live::Live;
use crate::session::reliance::{Reliance, Shown};
use crate::session::scope::Scope;
use crate::session::state::{Event, Machine};
use crate::settings::Settings;
use crate::time::{BootTime, within};

/// How many requests of operations are in progress at one time. A server answers a session's requests in order, so a
/// heartbeat waits for all that were sent before it: with tens of thousands of them, for longer than a lease lasts. The
/// session's own heartbeats and probes need no permit. A higher limit would not be faster: far fewer requests keep a
/// server busy.
pub(crate) const PLACES: usize = 512;

/// One ZooKeeper session: what is done through this value is done on that session, or not at all.
///
/// When the session ends it stays ended: every operation fails with [`OpError::SessionOver`](crate::OpError) without
/// being sent, and [`Session::active`](crate::Session::active) gives the next one. The end is also found out from the
/// local clock, so a process that was frozen past its session's timeout and wakes up sends nothing on it.
///
/// All operations are bounded by a timeout, that of the session or of [`with_timeout`](Self::with_timeout), and are
/// repeated within it, with checks that find out the outcome where that is possible.
#[derive(Clone, Debug)]
pub struct Incarnation {
    pub(crate) inner: Arc<Inner>,
    pub(crate) bound: Bound,
    pub(crate) scope: Arc<Scope>,
}

/// By when the operations of a handle must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// The operation timeout of the session.
    Default,
    /// Each operation within this time.
    Within(Duration),
    /// At this moment: of an operation that has begun.
    By(BootTime),
}

impl Bound {
    pub(crate) fn deadline(self, started: BootTime, settings: &Settings) -> BootTime {
        match self {
            Self::Default => started + settings.operation_timeout(),
            Self::Within(timeout) => started + timeout,
            Self::By(deadline) => deadline,
        }
    }

    /// The bound for the steps of an operation that has several and was begun at that time.
    pub(crate) fn of_steps(self, started: BootTime) -> Self {
        match self {
            Self::Within(timeout) => Self::By(started + timeout),
            other => other,
        }
    }
}

pub(crate) struct Inner {
    pub(crate) epoch: Epoch,
    session_id: SessionId,
    timing: LeaseTiming,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) settings: Arc<Settings>,
    /// Whether it lives, and whether requests may be sent.
    pub(crate) live: Arc<Live>,
    pub(crate) pins: watch::Sender<usize>,
    /// For the requests of operations: as many as may be under way at one time.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) waiters: Waiters,
    next_watch: AtomicU64,
    /// What is relied on as the server has shown it.
    pub(crate) reliance: Reliance,
}

impl Incarnation {
    pub(crate) fn new(
        epoch: Epoch,
        live: Arc<Live>,
        driver: Arc<dyn Driver>,
        settings: Arc<Settings>,
        scope: Arc<Scope>,
    ) -> Self {
        let ticket = driver.ticket();
        let inner = Inner {
            epoch,
            session_id: ticket.session_id,
            timing: LeaseTiming { session_timeout: ticket.timeout, tick_time: settings.tick_time },
            driver,
            settings,
            live,
            pins: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(PLACES)),
            waiters: Waiters::default(),
            next_watch: AtomicU64::new(1),
            reliance: Reliance::default(),
        };
        Self { inner: Arc::new(inner), bound: Bound::Default, scope }
    }

    /// The same session, with another timeout for each operation that is called on the returned handle. By default it is
    /// the operation timeout of the session
    /// ([`SessionBuilder::operation_timeout`](crate::SessionBuilder::operation_timeout)).
    ///
    /// The timeout covers the whole operation: waiting for the connection, repetitions, and the reads that find out the
    /// outcome of a write; of [`delete_recursive`](Self::delete_recursive) the whole tree. When it has passed, a write that
    /// was sent and whose outcome is not known fails with [`OpError::Unknown`](crate::OpError::Unknown); any other
    /// operation fails with [`OpError::Unavailable`](crate::OpError::Unavailable), without effect.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { bound: Bound::Within(timeout), ..self.clone() }
    }

    /// The same session, with another access list for everything that is created on the returned handle: see
    /// [`Session::with_acl`](crate::Session::with_acl).
    #[must_use]
    pub fn with_acl(&self, acl: &Acl) -> Self {
        Self { scope: Arc::new(self.scope.with_acl(acl)), ..self.clone() }
    }

    /// Its number among the sessions of this process.
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch
    }

    /// The ticket by which another process resumes this session, as of this moment: see
    /// [`SessionBuilder::resume`](crate::SessionBuilder::resume). It allows any process to act as this session: keep it
    /// secret.
    pub fn ticket(&self) -> Ticket {
        self.inner.driver.ticket()
    }

    /// Its id in ZooKeeper: the owner of the ephemerals created on it.
    pub fn session_id(&self) -> SessionId {
        self.inner.session_id
    }

    /// Whether leases can be given on it: not on servers that end a session with its connection, as ClickHouse Keeper does.
    ///
    /// # Errors
    /// [`NoLease`]: a [`LeaseKeeper`](crate::LeaseKeeper) gets none while this is the session.
    pub fn leases(&self) -> Result<(), NoLease> {
        if self.ticket().outlives_its_connection() { Ok(()) } else { Err(NoLease) }
    }

    /// How often it has been paused so far. It is counted before the [state](crate::SessionState) shows it, for those who
    /// follow the states and may miss a short pause.
    pub fn pauses(&self) -> u64 {
        self.inner.live.ask(|known| known.pauses_of(self.inner.epoch))
    }

    /// The session timeout that the server granted, which may be longer or shorter than the one asked for.
    pub fn granted_timeout(&self) -> Duration {
        self.inner.timing.session_timeout
    }

    /// How often it sends heartbeats, and how long its leases last: by what was granted, and by
    /// [`SessionBuilder::tick_time`](crate::SessionBuilder::tick_time).
    pub fn lease_timing(&self) -> LeaseTiming {
        self.inner.timing
    }

    /// Has the session check regularly that a quorum has this znode in this version, as the server has shown it, while the
    /// returned value exists: for callers that wait until it changes, and do not have a [`DataWatch`](crate::DataWatch), which does so by
    /// itself. Only ephemerals of other sessions are checked.
    #[must_use]
    pub fn rely_on(&self, path: &str, owner: SessionId, version: i32) -> Option<ReliedOn> {
        let id = self.inner.next_watch();
        let inner = Arc::clone(&self.inner);
        self.inner
            .rely(id, || self.scope.absolute(path).into(), owner, version)
            .then_some(ReliedOn { id, inner })
    }

    /// Whether it has ended, by the server's answer or by the local clock. Once true it stays true.
    pub fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    /// Returns when it has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn over(&self) {
        self.inner.over().await;
    }
}

impl PartialEq for Incarnation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Incarnation {}

impl Inner {
    /// Whether it has ended, by what has happened so far.
    pub(crate) fn has_ended(&self) -> bool {
        self.live.has_ended(self.epoch)
    }

    /// The same, and by the clock.
    pub(crate) fn is_over(&self) -> bool {
        let Some(deadline) = self.live.deadline(self.epoch) else { return true };
        let is_over = BootTime::now() >= deadline;
        if is_over {
            self.handle(Event::Tick);
        }
        is_over
    }

    /// Whether requests may be sent now.
    pub(crate) fn is_open(&self) -> bool {
        self.live.ask(|known| known.open(BootTime::now()) == Some(self.epoch))
    }

    /// Returns when requests may be sent.
    pub(crate) async fn opens(&self) {
        let is_open = |known: &Machine| (known.open(BootTime::now()) == Some(self.epoch)).then_some(());
        self.live.wait_for(is_open).await;
    }

    /// Returns when it has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn over(&self) {
        while !self.is_over() {
            let Some(deadline) = self.live.deadline(self.epoch) else { return };
            let ended = |known: &Machine| (known.state().epoch() != Some(self.epoch)).then_some(());
            within(deadline, self.live.wait_for(ended)).await;
        }
    }

    /// Something has happened to it. If it is over by that, everything that waits on it wakes up.
    pub(crate) fn handle(&self, event: Event) {
        if self.live.handle(Some(self.epoch), BootTime::now(), event) && self.has_ended() {
            self.shut();
        }
    }

    /// It has ended here: nothing more is sent, and everything that waits on it wakes up.
    pub(crate) fn shut(&self) {
        self.driver.abort();
        self.waiters.end();
    }

    pub(crate) fn next_watch(&self) -> WatchId {
        WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed))
    }

    /// Something waits until this znode changes, under this number. Returns whether it is another session's ephemeral.
    pub(crate) fn rely(
        &self,
        id: WatchId,
        absolute: impl FnOnce() -> Arc<str>,
        owner: SessionId,
        version: i32,
    ) -> bool {
        let is_foreign = owner.0 != 0 && owner != self.session_id;
        if is_foreign {
            self.reliance.begin(id, Shown { path: absolute(), version });
        }
        is_foreign
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("epoch", &self.epoch)
            .field("session_id", &format_args!("{}", self.session_id))
            .field("over", &self.has_ended())
            .finish_non_exhaustive()
    }
}

/// While it exists the session checks a znode that something waits on. From [`Incarnation::rely_on`].
#[derive(Debug)]
pub struct ReliedOn {
    id: WatchId,
    inner: Arc<Inner>,
}

impl Drop for ReliedOn {
    fn drop(&mut self) {
        self.inner.reliance.end(self.id);
    }
}

/// While a pin of a session exists, no new session is made after that one ends. From
/// [`Session::pin`](crate::Session::pin).
///
/// Without it a process could act under two sessions: for example do work under an ended one and be a candidate under a new
/// one. Hold the pin until the work under the session has certainly stopped, then drop it.
#[derive(Clone, Debug)]
pub struct SessionPin {
    incarnation: Incarnation,
    _holder: Holder,
}

impl SessionPin {
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        let _holder = Holder::new(&incarnation.inner.pins);
        Self { incarnation, _holder }
    }

    /// The epoch of the pinned session.
    pub fn epoch(&self) -> Epoch {
        self.incarnation.epoch()
    }

    /// The pinned session.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation.clone()
    }
}

/// One of those who hold something of a session, which are counted; and so is each clone.
#[derive(Debug)]
pub(crate) struct Holder(watch::Sender<usize>);

impl Holder {
    pub(crate) fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Clone for Holder {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
