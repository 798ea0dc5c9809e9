//! The supervisor task of a session: serves the present one, ends it in time, makes the next one.
//!
//! It alone changes the state. Each of its waits has a deadline, and the clock is read before anything else is done: a
//! process that was frozen finds its session over before it acts on queued events.

use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use tracing::{debug, error, info, warn};
use zk_proto::{Purpose, Request};

use crate::backoff::Backoff;
use crate::driver::close::CloseOutcome;
use crate::driver::{self, Along, BoxFuture, DriverError, DriverEvent, answered};
use crate::error::{ConnectError, InactiveReason, NoLease};
use crate::lease::{Answered, Lease, LeaseHistory, LeaseTiming, clock_interval, lease_margin};
use crate::node::Epoch;
use crate::session::audit::{Audits, DISTRUSTED_FOR, Disagreement};
use crate::session::establish::{Made, establish};
use crate::session::incarnation::Incarnation;
use crate::session::shared::Shared;
use crate::session::state::{Event, Machine, SessionState};
use crate::time::{BootTime, Moment, sleep_until};

/// Between sessions.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
/// Between attempts while the servers refuse the credentials: from half of this on.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Sessions that lost their servers together end together: each waits for a random part of this before the next one is
/// made; at most a quarter of the session timeout.
const SPREAD: Duration = Duration::from_secs(1);
/// The minimum pause before a failed heartbeat is repeated.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// Keeps a session until it is closed. The session is closed when the returned future is dropped, polled or not.
pub(crate) fn run(shared: Arc<Shared>, first: Made) -> impl Future<Output = ()> + Send {
    let supervisor = Supervisor { shared, machine: Machine::new(), last_event: String::new(), outcome: None };
    supervisor.run(first)
}

struct Supervisor {
    shared: Arc<Shared>,
    machine: Machine,
    /// The last event, for the reason of the next state.
    last_event: String,
    /// Once it was closed in order.
    outcome: Option<CloseOutcome>,
}

/// Nothing else ends what waits on the session: not even the end of its runtime, or a panic, may leave it open.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            // A program may end without closing its session, and a panic has reported itself.
            debug!(
                "the task of the ZooKeeper session has ended with its runtime, or by a panic: the session is closed here, and ends on the servers by its timeout"
            );
            self.shared.begin_closing(BootTime::now());
            // In a statement of its own: the lock is released before anything wakes up.
            let living = self.shared.incarnation.send_replace(None);
            if let Some(living) = living {
                living.inner.shut();
            }
        }
        self.machine.handle(BootTime::now(), Event::Close);
        self.publish();
        self.shared.outcome.send_replace(Some(self.outcome.unwrap_or(CloseOutcome::Unknown)));
    }
}

impl Supervisor {
    async fn run(mut self, first: Made) {
        let mut made = first;
        let outcome = loop {
            let incarnation = made.incarnation.clone();
            if let Some(outcome) = self.serve(made).await {
                break outcome;
            }
            match self.next_session(&incarnation).await {
                Some(next) => made = next,
                // The old session was not closed, so its end is unknown.
                None => break CloseOutcome::Unknown,
            }
        };
        self.outcome = Some(outcome);
    }

    /// Serves one session to its end. `None` if it has ended without being closed.
    async fn serve(&mut self, made: Made) -> Option<CloseOutcome> {
        let Made { incarnation, mut events, alive, is_resumed } = made;
        let granted = incarnation.granted_timeout();
        let (contact, _) = incarnation.inner.last_contact();
        self.machine
            .handle(BootTime::now(), Event::Connected { epoch: incarnation.epoch(), granted, contact });
        if !self.machine.state().is_active() {
            incarnation.inner.end(InactiveReason::DeadlinePassed);
            return None;
        }
        self.shared.incarnation.send_replace(Some(incarnation.clone()));
        info!(
            session_id = %incarnation.session_id(), epoch = %incarnation.epoch(), granted = ?granted,
            "ZooKeeper session {}", if is_resumed { "resumed" } else { "made" }
        );
        if granted != self.shared.settings.session_timeout {
            info!(requested = ?self.shared.settings.session_timeout, ?granted, "the server granted another session timeout than requested");
        }
        let made = if is_resumed { "the session was resumed" } else { "a new session was made" };
        self.last_event = made.to_owned();
        self.publish();

        let leases = incarnation.leases();
        let mut heartbeats = Heartbeats::new(&incarnation, alive);
        let mut audits = Audits::new(granted, BootTime::now());
        let mut keepers = self.shared.keepers.subscribe();
        heartbeats.set_wanted(*keepers.borrow_and_update() > 0, BootTime::now());
        loop {
            let now = BootTime::now();
            self.feed(&incarnation, now, Event::Tick);
            if let Some(reason) = incarnation.inner.end_reason() {
                self.feed(&incarnation, now, Event::Ended(reason));
            }
            if self.machine.state().epoch().is_none() {
                incarnation.inner.shut();
                self.shared.settings.instruments.expiration();
                return None;
            }
            self.publish_lease(&incarnation, &mut heartbeats, leases);
            heartbeats.begin_if_due(&incarnation, now, self.machine.state().is_active());
            audits.begin_if_due(&incarnation, now, self.machine.state().is_active(), heartbeats.wanted);
            if self.shared.resolver.end_distrust(now) {
                incarnation.inner.driver.servers_changed();
            }
            let wake = audits.wake().min(heartbeats.wake());
            let wake = self.machine.deadline().map_or(wake, |deadline| deadline.min(wake));
            let event = tokio::select! {
                biased;
                deadline = self.shared.closing() => return Some(self.close(&incarnation, deadline).await),
                event = events.recv() => self.on_driver_event(&incarnation, &mut heartbeats, event),
                found = audits.found() => {
                    if let Some(found) = found {
                        self.distrust(&incarnation, &found);
                    }
                    Event::Tick
                }
                answer = heartbeats.answer() => self.on_heartbeat(&incarnation, &mut heartbeats, answer),
                _ = keepers.changed() => {
                    let wanted = *keepers.borrow_and_update() > 0;
                    if !wanted {
                        self.shared.set_lease(None);
                    }
                    heartbeats.set_wanted(wanted, BootTime::now());
                    if let (true, Err(no_lease)) = (wanted, leases) {
                        error!(session_id = %incarnation.session_id(), %no_lease, "cannot keep a lease on this session");
                    }
                    Event::Tick
                }
                () = incarnation.inner.over.cancelled() => Event::Tick,
                () = sleep_until(wake) => Event::Tick,
            };
            self.feed(&incarnation, BootTime::now(), event);
        }
    }

    /// Passes an event to the state machine and publishes the state.
    fn feed(&mut self, incarnation: &Incarnation, now: BootTime, event: Event) {
        // Answers to operations count as well.
        let (sent, answered) = incarnation.inner.last_contact();
        let mut changed = self.machine.handle(now, Event::Contact { sent, answered });
        changed |= self.machine.handle(now, event);
        if changed {
            let state = self.machine.state().clone();
            incarnation.inner.set_open(state.is_active());
            if let SessionState::Paused { .. } = state {
                incarnation.inner.pauses.fetch_add(1, Ordering::Release);
            }
            if state.is_active() {
                self.shared.settings.instruments.reconnect();
                self.last_event = "ZooKeeper answers again".to_owned();
            }
            self.publish();
        }
    }

    fn on_driver_event(
        &mut self,
        incarnation: &Incarnation,
        heartbeats: &mut Heartbeats,
        event: Option<DriverEvent>,
    ) -> Event {
        match event {
            Some(DriverEvent::Watch { watch, kind, path }) => {
                debug!(%path, ?kind, "watch fired");
                incarnation.inner.fire_watch(watch, kind, path);
                Event::Tick
            }
            Some(DriverEvent::Suspended { reason }) => {
                info!(session_id = %incarnation.session_id(), %reason, "connection to ZooKeeper lost");
                self.last_event = format!("the connection was lost: {reason}");
                Event::Suspended
            }
            Some(DriverEvent::Resumed) => {
                debug!(session_id = %incarnation.session_id(), "connection to ZooKeeper is back");
                incarnation.inner.reliance.forget_created();
                heartbeats.restart(BootTime::now());
                Event::Resumed
            }
            Some(DriverEvent::Ended(reason)) => Event::Ended(reason),
            // The driver also ends when the session is given up here.
            None => Event::Ended(incarnation.inner.end_reason().unwrap_or_else(|| {
                InactiveReason::DriverFailed { reason: "it stopped without a reason".to_owned() }
            })),
        }
    }

    fn on_heartbeat(
        &mut self,
        incarnation: &Incarnation,
        heartbeats: &mut Heartbeats,
        answer: HeartbeatAnswer,
    ) -> Event {
        let now = BootTime::now();
        let HeartbeatAnswer { sent: moment, attached, moved, quorum, result } = answer;
        let sent = moment.boot;
        let outcome = match &result {
            Ok(()) => "ok",
            Err(DriverError::Refused(_) | DriverError::Invalid(_)) => "refused",
            Err(DriverError::Ambiguous(_)) => "unknown",
            Err(DriverError::NotSent(_)) => "unavailable",
        };
        let op = if quorum { "heartbeat" } else { "probe" };
        self.shared.settings.instruments.request(op, outcome, now.duration_since(sent));
        match result {
            Ok(()) => {
                incarnation.inner.contact(sent);
                if incarnation.is_over() {
                    return Event::Tick;
                }
                heartbeats.answered(Answered { sent: moment, at: now, attached, moved }, quorum);
                Event::Contact { sent, answered: now }
            }
            Err(error) => {
                match &error {
                    // An operator must remove the znode.
                    DriverError::Invalid(_) => {
                        warn!(session_id = %incarnation.session_id(), %error, "quorum heartbeat refused");
                    }
                    _ => debug!(session_id = %incarnation.session_id(), %error, "quorum heartbeat failed"),
                }
                heartbeats.failed(now);
                self.last_event = format!("a heartbeat failed: {error}");
                Event::Silent
            }
        }
    }

    /// Leaves a server that disagrees with the quorum.
    fn distrust(&self, incarnation: &Incarnation, found: &Disagreement) {
        let Disagreement { server, path, kind } = found;
        warn!(
            session_id = %incarnation.session_id(), %server, %path,
            "this ZooKeeper server disagrees with the quorum: {kind}; the session leaves it while another server \
             answers; stop that server, delete its data directory (not its myid), and start it, so that it copies the \
             leader's data"
        );
        self.shared.settings.instruments.disagreement();
        let until = BootTime::now() + DISTRUSTED_FOR;
        self.shared.change_preference(|preference| {
            preference.distrusted.retain(|(address, _)| address != server);
            preference.distrusted.push((*server, until));
        });
    }

    /// Publishes the lease if one is kept and it has changed.
    fn publish_lease(
        &self,
        incarnation: &Incarnation,
        heartbeats: &mut Heartbeats,
        leases: Result<(), NoLease>,
    ) {
        let (Some(valid_until), Ok(())) = (heartbeats.lease(Moment::now()), leases) else { return };
        let lease = Lease { epoch: incarnation.epoch(), valid_until };
        // The hardware's clock and the system's diverge by a few microseconds all the time, which the margin covers.
        let slack = lease_margin(incarnation.granted_timeout()) / 10;
        let known =
            self.shared.lease().filter(|known| known.epoch == lease.epoch).map(|known| known.valid_until);
        if known.is_none_or(|known| !(known - slack..=known).contains(&valid_until)) {
            self.shared.set_lease(Some(lease));
        }
    }

    /// Waits until the old session is no longer pinned, then makes a new one. `None` when the session is to be closed.
    async fn next_session(&mut self, old: &Incarnation) -> Option<Made> {
        let epoch = Epoch(old.epoch().0 + 1);
        let mut pins = old.inner.pins.subscribe();
        let bound = *pins.borrow_and_update();
        if bound > 0 {
            info!(epoch = %old.epoch(), pins = bound, "waiting with a new ZooKeeper session until the work under the old one has stopped");
            tokio::select! {
                _ = pins.wait_for(|count| *count == 0) => {}
                _ = self.shared.closing() => return None,
            }
        }
        let mut backoff = BACKOFF;
        let spread = SPREAD.min(old.granted_timeout() / 4).mul_f64(fastrand::f64());
        self.shared.sleep(BootTime::now() + spread).await.ok()?;
        loop {
            let purpose = Purpose::New(self.shared.settings.session_timeout);
            let deadline = BootTime::now() + self.shared.settings.connect_timeout;
            let made = tokio::select! {
                biased;
                _ = self.shared.closing() => return None,
                // On the heap: every session has this task, which would otherwise be as large as this permanently.
                made = Box::pin(establish(&self.shared, purpose, epoch, deadline)) => made,
            };
            let pause = match made {
                Ok(made) => return Some(made),
                Err(ConnectError::AuthFailed { reason }) => {
                    if self.machine.handle(BootTime::now(), Event::Refused { reason }) {
                        self.publish();
                    }
                    REFUSED_PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0)
                }
                Err(error) => {
                    warn!(%error, "cannot make a new ZooKeeper session, retrying");
                    backoff.next()
                }
            };
            self.shared.sleep(BootTime::now() + pause).await.ok()?;
        }
    }

    async fn close(&mut self, incarnation: &Incarnation, deadline: BootTime) -> CloseOutcome {
        // Before closing: the users of the session must not learn of its end after other processes do.
        self.shared.incarnation.send_replace(None);
        self.shared.set_lease(None);
        incarnation.inner.set_open(false);
        if self.shared.is_handed_over() {
            incarnation.inner.shut();
            info!(session_id = %incarnation.session_id(), "ZooKeeper session handed over");
            return CloseOutcome::HandedOver;
        }
        // Once it is over, there is nothing to close.
        let deadline = deadline.min(incarnation.inner.deadline());
        let closing = incarnation.inner.driver.close(deadline);
        let outcome = crate::time::within(deadline, closing).await.unwrap_or(CloseOutcome::Unknown);
        incarnation.inner.shut();
        info!(session_id = %incarnation.session_id(), %outcome, "ZooKeeper session closed");
        outcome
    }

    /// Publishes the state, and logs it with its reason.
    fn publish(&self) {
        let state = self.machine.state().clone();
        let reason = self.last_event.as_str();
        match &state {
            SessionState::Active { epoch } => info!(%state, %epoch, %reason, "ZooKeeper session is active"),
            SessionState::Paused { epoch, .. } => {
                warn!(%state, %epoch, %reason, "ZooKeeper session is paused")
            }
            SessionState::Inactive { reason: InactiveReason::AuthFailed { reason } } => {
                error!(%state, %reason, "ZooKeeper refuses the credentials, retrying: correct the credentials or the servers");
            }
            SessionState::Inactive { reason } => warn!(%state, %reason, "ZooKeeper session is over"),
            SessionState::Closed => {
                info!(%state, reason = %"closed by this process", "ZooKeeper session is closed")
            }
        }
        if !matches!(state, SessionState::Active { .. } | SessionState::Paused { .. }) {
            // The session and its lease first, then the state: after the end is visible, the session is not.
            self.shared.incarnation.send_replace(None);
            self.shared.set_lease(None);
        }
        self.shared.set_state(state);
    }
}

/// The answer to a heartbeat.
struct HeartbeatAnswer {
    sent: Moment,
    /// When the connect request of its connection was sent.
    attached: Moment,
    moved: bool,
    /// Whether it was a quorum heartbeat.
    quorum: bool,
    result: Result<(), DriverError>,
}

/// Decides when to send what, one at a time. A *heartbeat* is a quorum round trip, sent while a lease is kept and while the
/// session is paused. A *probe* is a read, sent at other times: it shows whether the server answers, and the first heartbeat
/// of a lease can prove it.
struct Heartbeats {
    timing: LeaseTiming,
    wanted: bool,
    history: LeaseHistory,
    under_way: Option<BoxFuture<'static, HeartbeatAnswer>>,
    next: BootTime,
    /// When the clocks were compared last.
    compared: BootTime,
}

impl Heartbeats {
    fn new(incarnation: &Incarnation, alive: Moment) -> Self {
        let timing = incarnation.lease_timing();
        let (last_sent, _) = incarnation.inner.last_contact();
        Self {
            timing,
            wanted: false,
            history: LeaseHistory::new(timing, alive),
            under_way: None,
            next: last_sent + timing.heartbeat_interval(),
            compared: last_sent,
        }
    }

    fn set_wanted(&mut self, wanted: bool, now: BootTime) {
        if wanted && !self.wanted {
            // A probe that is under way is answered before a heartbeat would be, and can be proved by it.
            self.next = now;
        }
        self.wanted = wanted;
    }

    /// The lease if one is kept, unless it has run out.
    fn lease(&mut self, now: Moment) -> Option<BootTime> {
        if !self.wanted {
            return None;
        }
        self.compared = now.boot;
        Some(self.history.valid_until(now)).filter(|until| now.boot < *until)
    }

    /// Abandons the request under way, which may belong to a lost connection.
    fn restart(&mut self, now: BootTime) {
        self.under_way = None;
        self.next = now;
    }

    fn wake(&self) -> BootTime {
        let never = BootTime::from_duration(Duration::MAX);
        let heartbeat = if self.under_way.is_some() { never } else { self.next };
        heartbeat.min(if self.wanted {
            self.compared + clock_interval(self.timing.session_timeout)
        } else {
            never
        })
    }

    fn begin_if_due(&mut self, incarnation: &Incarnation, now: BootTime, active: bool) {
        if self.under_way.is_some() || now < self.next {
            return;
        }
        let quorum = self.wanted || !active;
        let driver = incarnation.inner.driver.clone();
        let patience = self.timing.session_timeout / 3;
        let attached = driver.attached();
        let sent = Moment::now();
        let deadline = sent.boot + patience;
        self.under_way = Some(Box::pin(async move {
            let request = async {
                if quorum {
                    return driver::barrier(&*driver, deadline).await;
                }
                let probe = Request::Exists { path: "/".into(), watch: false };
                let answer = driver.send(&probe, Along { heartbeat: true, ..Along::default() });
                answered(answer, deadline).await.map(drop)
            };
            let silent = || Err(DriverError::Ambiguous(format!("no answer within {patience:?}")));
            let result = crate::time::within(deadline, request).await.unwrap_or_else(silent);
            let moved = driver.attached() != attached;
            HeartbeatAnswer { sent, attached, moved, quorum, result }
        }));
    }

    async fn answer(&mut self) -> HeartbeatAnswer {
        match &mut self.under_way {
            Some(under_way) => {
                let answer = Pin::new(under_way).await;
                self.under_way = None;
                answer
            }
            None => pending().await,
        }
    }

    /// A heartbeat or a probe was answered.
    fn answered(&mut self, answered: Answered, quorum: bool) {
        let (sent, now) = (answered.sent.boot, answered.at);
        match quorum {
            true => self.history.heartbeat(answered),
            false => self.history.probe(answered),
        }
        self.next = match self.wanted {
            true => self.history.next_heartbeat(sent, Moment::now()).max(now),
            false => sent + self.timing.heartbeat_interval(),
        };
    }

    fn failed(&mut self, now: BootTime) {
        let pause = (self.timing.heartbeat_interval() / 5).max(MIN_PAUSE);
        self.next = now + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    }
}
