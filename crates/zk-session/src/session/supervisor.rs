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
use crate::lease::{Answered, lease_margin};
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

/// Keeps a session until it is closed. The session is closed when the returned future is dropped, polled or not.
pub(crate) fn run(shared: Arc<Shared>, first: Made) -> impl Future<Output = ()> + Send {
    Supervisor { shared }.run(first)
}

struct Supervisor {
    shared: Arc<Shared>,
}

/// Nothing else ends what waits on the session: not even the end of its runtime, or a panic, may leave it open.
impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.shared.live.ask(Machine::outcome).is_none() {
            // A program may end without closing its session, and a panic has reported itself.
            debug!(
                "the task of the ZooKeeper session has ended with its runtime, or by a panic: the session is closed here, and ends on the servers by its timeout"
            );
            self.shared.begin_closing(Closing { by: BootTime::now(), hands_over: false });
            self.closed(CloseOutcome::Unknown);
        }
    }
}

impl Supervisor {
    async fn run(mut self, first: Made) {
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
        self.shared.live.handle(BootTime::now(), Event::Closed(outcome));
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
            info!(requested = ?self.shared.settings.session_timeout, ?granted, "the server granted another session timeout than requested");
        }
        if !self.shared.made(&incarnation, contact, is_resumed) {
            incarnation.inner.shut();
            return None;
        }

        let leases = incarnation.leases();
        let mut known = self.shared.live.subscribe();
        let mut heartbeats = Heartbeats::new(&incarnation, alive, contact);
        let mut audits = Audits::new(granted, BootTime::now());
        let mut keepers = self.shared.keepers.subscribe();
        heartbeats.set_wanted(*keepers.borrow_and_update() > 0, BootTime::now());
        loop {
            let now = BootTime::now();
            known.mark_unchanged();
            incarnation.inner.handle(Event::Tick);
            let Some(deadline) = self.shared.live.deadline(incarnation.epoch()) else {
                self.shared.settings.instruments.expiration();
                self.shared.forget_latest();
                return None;
            };
            self.publish_lease(&incarnation, &mut heartbeats, leases);
            let is_active = self.shared.live.state().is_active();
            heartbeats.begin_if_due(&incarnation, now, is_active);
            audits.begin_if_due(&incarnation, now, is_active, heartbeats.wanted);
            if self.shared.resolver.end_distrust(now) {
                incarnation.inner.driver.servers_changed();
            }
            let wake = audits.wake().min(heartbeats.wake()).min(deadline);
            let event = tokio::select! {
                biased;
                closing = self.shared.closing() => return Some(self.close(&incarnation, closing).await),
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
                    heartbeats.set_wanted(wanted, BootTime::now());
                    if let (true, Err(no_lease)) = (wanted, leases) {
                        error!(session_id = %incarnation.session_id(), %no_lease, "cannot keep a lease on this session");
                    }
                    if wanted { Event::Tick } else { Event::Lease(None) }
                }
                // Whoever found out that it is over.
                _ = known.changed() => Event::Tick,
                () = sleep_until(wake) => Event::Tick,
            };
            incarnation.inner.handle(event);
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
            Some(DriverEvent::Lost { reason }) => {
                info!(session_id = %incarnation.session_id(), %reason, "connection to ZooKeeper lost");
                Event::Lost { reason }
            }
            Some(DriverEvent::Ready) => {
                debug!(session_id = %incarnation.session_id(), "connection to ZooKeeper is back");
                incarnation.inner.reliance.forget_created();
                heartbeats.restart(BootTime::now());
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
                Event::Silent { reason: error.to_string() }
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
        // The hardware's clock and the system's diverge by a few microseconds all the time, which the margin covers.
        let slack = lease_margin(incarnation.granted_timeout()) / 10;
        let known = self.shared.live.ask(Machine::lease).map(|known| known.valid_until);
        if known.is_none_or(|known| !(known - slack..=known).contains(&valid_until)) {
            incarnation.inner.handle(Event::Lease(Some(valid_until)));
        }
    }

    /// Waits until the old session is no longer pinned, then makes a new one. `None` when the session is to be closed.
    async fn next_session(&mut self, old: Incarnation) -> Option<Made> {
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
                    self.shared.live.handle(BootTime::now(), Event::Refused { reason });
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

    async fn close(&mut self, incarnation: &Incarnation, closing: Closing) -> CloseOutcome {
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
