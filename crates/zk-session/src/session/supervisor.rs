//! The supervisor task of a session: serves the present one, ends it in time, makes the next one.
//!
//! It alone changes the state. Each of its waits has a deadline, and the clock is read before anything else is done: a
//! process that was frozen finds its session over before it acts on queued events.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};
use zk_proto::Purpose;

use crate::backoff::Backoff;
use crate::driver::close::CloseOutcome;
use crate::driver::{DriverError, DriverEvent};
use crate::error::{ConnectError, InactiveReason, NoLease};
use crate::instruments::{DISAGREEMENTS, EXPIRATIONS};
use crate::lease::lease_margin;
use crate::node::Epoch;
use crate::session::audit::{Audits, DISTRUSTED_FOR, Disagreement};
use crate::session::establish::{Made, establish};
use crate::session::heartbeats::{HeartbeatAnswer, Heartbeats};
use crate::session::incarnation::Incarnation;
use crate::session::shared::{Closing, Shared};
use crate::session::state::{Event, Machine};
use crate::time::{BootTime, Moment, sleep_until, within};

/// Between sessions.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
/// Between attempts while the servers refuse the credentials: from half of this on.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Sessions that lost their servers together end together: each waits for a random part of this before the next one is
/// made; at most a quarter of the session timeout.
const SPREAD: Duration = Duration::from_secs(1);

pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
}

/// Nothing else ends what waits on the session: not even the end of its runtime, or a panic, may leave it open.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.shared.live.ask(Machine::outcome).is_none() {
            // A program may end without closing its session, and a panic has reported itself.
            debug!(
                "the task of the ZooKeeper session has ended with its runtime, or by a panic: the session is closed here, and the servers end it at its timeout"
            );
            self.shared.begin_closing(Closing { by: BootTime::now(), hands_over: false });
            self.closed(CloseOutcome::Unknown);
        }
    }
}

impl Supervisor {
    /// Keeps a session until it is closed. The session is closed when the returned future is dropped, polled or not.
    pub(crate) async fn run(mut self, first: Made) {
        let mut made = first;
        loop {
            let incarnation = made.incarnation.clone();
            if let Some(outcome) = self.serve(made).await {
                return self.closed(outcome);
            }
            match self.next_session(incarnation).await {
                Some(next) => made = next,
                // The old session was not closed, so its end is unknown.
                None => return self.closed(CloseOutcome::Unknown),
            }
        }
    }

    /// The session is closed, for all who wait on it.
    fn closed(&mut self, outcome: CloseOutcome) {
        let latest = self.shared.forget_latest();
        self.shared.live.handle(None, BootTime::now(), Event::Closed(outcome));
        if let Some(latest) = latest {
            latest.inner.shut();
        }
    }

    /// Serves one session to its end. `None` if it has ended without being closed.
    async fn serve(&mut self, made: Made) -> Option<CloseOutcome> {
        let Made { incarnation, mut events, contact, alive, is_resumed } = made;
        let granted = incarnation.granted_timeout();
        info!(
            session_id = %incarnation.session_id(), epoch = %incarnation.epoch(), granted = ?granted,
            "ZooKeeper session {}", if is_resumed { "resumed" } else { "made" }
        );
        if granted != self.shared.settings.session_timeout {
            info!(requested = ?self.shared.settings.session_timeout, ?granted, "the server granted a different session timeout than requested");
        }
        if !self.shared.made(&incarnation, contact, is_resumed) {
            incarnation.inner.shut();
            return None;
        }

        let shared = &*self.shared;
        let mut known = shared.live.subscribe();
        let mut keepers = shared.keepers.subscribe();
        let mut served = Served {
            leases: incarnation.leases(),
            heartbeats: Heartbeats::new(&incarnation, alive, contact),
            audits: Audits::new(granted, BootTime::now()),
            incarnation,
            shared,
        };
        served.heartbeats.set_wanted(*keepers.borrow_and_update() > 0, BootTime::now());
        loop {
            known.mark_unchanged();
            let Some(wake) = served.begin_due() else {
                shared.settings.instruments.count(EXPIRATIONS);
                shared.forget_latest();
                return None;
            };
            let event = tokio::select! {
                biased;
                closing = shared.closing() => return Some(served.close(closing).await),
                event = events.recv() => served.on_driver_event(event),
                found = &mut served.audits.under_way => {
                    if let Some(found) = found {
                        served.distrust(&found);
                    }
                    Event::Tick
                }
                answer = &mut served.heartbeats.under_way => served.on_heartbeat(answer),
                _ = keepers.changed() => served.on_keepers(*keepers.borrow_and_update()),
                // Whoever found out that it is over.
                _ = known.changed() => Event::Tick,
                () = sleep_until(wake) => Event::Tick,
            };
            served.incarnation.inner.handle(event);
        }
    }

    /// Waits until the old session is no longer pinned, then makes a new one. `None` when the session is to be closed.
    async fn next_session(&mut self, old: Incarnation) -> Option<Made> {
        let epoch = Epoch(old.epoch().0 + 1);
        let mut pins = old.inner.pins.subscribe();
        let bound = *pins.borrow_and_update();
        if bound > 0 {
            info!(epoch = %old.epoch(), pins = bound, "delaying a new ZooKeeper session until the work under the old one has stopped");
            tokio::select! {
                biased;
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
                    self.shared.live.handle(None, BootTime::now(), Event::Refused { reason });
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
}

/// The session that is served.
struct Served<'a> {
    shared: &'a Shared,
    incarnation: Incarnation,
    heartbeats: Heartbeats,
    audits: Audits,
    /// Whether leases can be given on it.
    leases: Result<(), NoLease>,
}

impl Served<'_> {
    /// Does what is due, and returns when something will be; `None` if the session is over.
    fn begin_due(&mut self) -> Option<BootTime> {
        let (now, live) = (BootTime::now(), &self.shared.live);
        self.incarnation.inner.handle(Event::Tick);
        let deadline = live.deadline(self.incarnation.epoch())?;
        self.publish_lease();
        let is_active = live.state().is_active();
        self.heartbeats.begin_if_due(&self.incarnation, now, is_active);
        self.audits.begin_if_due(&self.incarnation, now, is_active, self.heartbeats.wanted);
        if self.shared.resolver.end_distrust(now) {
            self.incarnation.inner.driver.servers_changed();
        }
        Some(deadline.min(self.audits.wake()).min(self.heartbeats.wake()))
    }

    fn on_driver_event(&mut self, event: Option<DriverEvent>) -> Event {
        let incarnation = &self.incarnation;
        match event {
            Some(DriverEvent::Watch { watch, kind, path }) => {
                debug!(%path, ?kind, "watch fired");
                incarnation.inner.waiters.fire(watch, kind, path);
                Event::Tick
            }
            Some(DriverEvent::Lost { reason }) => {
                info!(session_id = %incarnation.session_id(), %reason, "connection to ZooKeeper lost");
                Event::Lost { reason }
            }
            Some(DriverEvent::Ready) => {
                debug!(session_id = %incarnation.session_id(), "connection to ZooKeeper is back");
                incarnation.inner.reliance.forget_created();
                self.heartbeats.restart(BootTime::now());
                Event::Ready
            }
            Some(DriverEvent::Ended(reason)) => Event::Ended(reason),
            // The driver also ends when the session is given up here, whose reason counts.
            None => {
                let reason = "it stopped without a reason".to_owned();
                Event::Ended(InactiveReason::DriverFailed { reason })
            }
        }
    }

    fn on_heartbeat(&mut self, HeartbeatAnswer { times, quorum, result }: HeartbeatAnswer) -> Event {
        let (now, sent, session_id) = (BootTime::now(), times.sent.boot, self.incarnation.session_id());
        let (op, outcome) = (if quorum { "heartbeat" } else { "probe" }, outcome(&result));
        self.shared.settings.instruments.request(op, outcome, now.duration_since(sent));
        match result {
            Ok(()) if self.incarnation.is_over() => Event::Tick,
            Ok(()) => {
                self.heartbeats.answered(times, quorum);
                Event::Contact { sent, answered: now }
            }
            Err(error) => {
                match &error {
                    // An operator must remove the znode.
                    DriverError::Invalid(_) => warn!(%session_id, %error, "quorum heartbeat refused"),
                    _ => debug!(%session_id, %error, "quorum heartbeat failed"),
                }
                self.heartbeats.failed(now);
                Event::Silent { reason: error.to_string() }
            }
        }
    }

    /// So many want a lease now.
    fn on_keepers(&mut self, count: usize) -> Event {
        let wanted = count > 0;
        self.heartbeats.set_wanted(wanted, BootTime::now());
        if let (true, Err(no_lease)) = (wanted, self.leases) {
            error!(session_id = %self.incarnation.session_id(), %no_lease, "cannot keep a lease on this session");
        }
        if wanted { Event::Tick } else { Event::Lease(None) }
    }

    /// Leaves a server that disagrees with the quorum.
    fn distrust(&self, found: &Disagreement) {
        let Disagreement { server, path, kind } = found;
        warn!(
            session_id = %self.incarnation.session_id(), %server, %path,
            "this ZooKeeper server disagrees with the quorum: {kind}; the session avoids it as long as another \
             server answers; stop this server, delete its data directory (not its myid), and start it again, so that \
             it copies the leader's data"
        );
        self.shared.settings.instruments.count(DISAGREEMENTS);
        let until = BootTime::now() + DISTRUSTED_FOR;
        self.shared.change_preference(|preference| {
            preference.distrusted.retain(|(address, _)| address != server);
            preference.distrusted.push((*server, until));
        });
    }

    /// Publishes the lease if one is kept and it has changed.
    fn publish_lease(&mut self) {
        let (Some(valid_until), Ok(())) = (self.heartbeats.lease(Moment::now()), self.leases) else { return };
        // The hardware's clock and the system's diverge by a few microseconds all the time, which the margin covers.
        let slack = lease_margin(self.incarnation.granted_timeout()) / 10;
        let known = self.shared.live.ask(Machine::lease).map(|known| known.valid_until);
        if known.is_none_or(|known| !(known - slack..=known).contains(&valid_until)) {
            self.incarnation.inner.handle(Event::Lease(Some(valid_until)));
        }
    }

    async fn close(&mut self, closing: Closing) -> CloseOutcome {
        let incarnation = &self.incarnation;
        // Before closing: the users of the session must not learn of its end after other processes do.
        incarnation.inner.handle(Event::Closing);
        if closing.hands_over {
            info!(session_id = %incarnation.session_id(), "ZooKeeper session handed over");
            return CloseOutcome::HandedOver;
        }
        // Once it is over, there is nothing to close.
        let by = self.shared.live.deadline(incarnation.epoch()).map_or(closing.by, |at| at.min(closing.by));
        let closed = incarnation.inner.driver.close(by);
        let outcome = within(by, closed).await.unwrap_or(CloseOutcome::Unknown);
        info!(session_id = %incarnation.session_id(), %outcome, "ZooKeeper session closed");
        outcome
    }
}

/// The label of metrics.
fn outcome(result: &Result<(), DriverError>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(DriverError::Refused(_) | DriverError::Invalid(_)) => "refused",
        Err(DriverError::Ambiguous(_)) => "unknown",
        Err(DriverError::NotSent(_)) => "unavailable",
    }
}
