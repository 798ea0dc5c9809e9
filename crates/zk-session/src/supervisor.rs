//! The task that keeps a session: serves the living one, ends it in time, makes the next one.
//!
//! It alone changes the state. Each of its waits ends by a deadline, and the clock is looked at before anything else is
//! done: a process that was frozen and wakes up finds its session over before it acts on what queued up.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};
use zk_proto::{Purpose, Request};

use crate::backoff::Backoff;
use crate::driver::{self, Along, BoxFuture, CloseAnswer, DriverError, DriverEvent, answered};
use crate::error::ConnectError;
use crate::establish::{Made, establish};
use crate::incarnation::Incarnation;
use crate::instruments;
use crate::lease::{Lease, LeaseHistory, beat_interval};
use crate::node::Epoch;
use crate::session::CloseOutcome;
use crate::shared::Shared;
use crate::state::{Event, InactiveReason, Machine, SessionState};
use crate::time::{BootTime, sleep_until};

/// Between sessions.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
/// Between attempts while the servers refuse the credentials, which does not pass by itself: from half of this on.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// Sessions that lost their servers together end together: each waits for a part of this, by chance, before it is made
/// anew; for a quarter of the session timeout at the most.
const SPREAD: Duration = Duration::from_secs(1);
/// A failed heartbeat is repeated no earlier than this.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// The first session, or the error that tells why there is none.
pub(crate) async fn first_session(
    shared: &Shared,
    purpose: Purpose,
    deadline: BootTime,
) -> Result<Made, ConnectError> {
    establish(shared, purpose, Epoch(1), deadline).await
}

/// Keeps a session until it is closed.
pub(crate) async fn run(shared: Arc<Shared>, first: Made) {
    let mut supervisor = Supervisor { shared, machine: Machine::new(), heard: String::new() };
    let mut made = first;
    let outcome = loop {
        let epoch = made.incarnation.epoch();
        let ended = supervisor.serve(made).await;
        let next = match ended {
            Ended::Closed(outcome) => break outcome,
            Ended::Over(incarnation) => supervisor.next_session(&incarnation, Epoch(epoch.0 + 1)).await,
        };
        match next {
            Some(next) => made = next,
            // The old session was given up without a word, so nothing is known of it.
            None => break CloseOutcome::Unknown,
        }
    };
    supervisor.machine.handle(BootTime::now(), Event::Close);
    supervisor.publish();
    supervisor.shared.outcome.send_replace(Some(outcome));
}

struct Supervisor {
    shared: Arc<Shared>,
    machine: Machine,
    /// What was heard last that may be the reason for another state.
    heard: String,
}

enum Ended {
    Over(Incarnation),
    Closed(CloseOutcome),
}

impl Supervisor {
    /// Serves one session to its end.
    async fn serve(&mut self, made: Made) -> Ended {
        let Made { incarnation, mut events, contact } = made;
        let granted = incarnation.granted_timeout();
        self.machine
            .handle(BootTime::now(), Event::Connected { epoch: incarnation.epoch(), granted, contact });
        if !self.machine.state().is_active() {
            incarnation.inner.end(InactiveReason::DeadlinePassed);
            return Ended::Over(incarnation);
        }
        self.shared.incarnation.send_replace(Some(incarnation.clone()));
        info!(
            session = %incarnation.session_id(), epoch = %incarnation.epoch(), granted = ?granted,
            "ZooKeeper session made"
        );
        if granted != self.shared.config.session_timeout {
            info!(asked = ?self.shared.config.session_timeout, ?granted, "the server granted another session timeout");
        }
        self.heard = "a new session was made".to_owned();
        self.publish();

        let mut heart = Heart::new(&incarnation, self.shared.config.tick_time);
        let mut keepers = self.shared.keepers.subscribe();
        heart.set_wanted(*keepers.borrow_and_update() > 0, BootTime::now());
        loop {
            let now = BootTime::now();
            self.tell(&incarnation, now, Event::Tick);
            let (SessionState::Active { .. } | SessionState::Paused { .. }) = self.machine.state() else {
                return self.over(incarnation);
            };
            if let Some(reason) = incarnation.inner.end_reason() {
                self.tell(&incarnation, now, as_event(reason));
                return self.over(incarnation);
            }
            heart.begin_if_due(&incarnation, now, self.machine.state().is_active());
            let wake = self.machine.deadline().map_or(heart.wake(), |deadline| deadline.min(heart.wake()));
            let event = tokio::select! {
                biased;
                deadline = self.shared.closing() => return Ended::Closed(self.close(&incarnation, deadline).await),
                event = events.recv() => self.on_driver_event(&incarnation, &mut heart, event),
                answer = heart.answer() => self.on_heartbeat(&incarnation, &mut heart, answer),
                _ = keepers.changed() => {
                    let wanted = *keepers.borrow_and_update() > 0;
                    if !wanted {
                        self.shared.lease.send_replace(None);
                    }
                    heart.set_wanted(wanted, BootTime::now());
                    Event::Tick
                }
                () = incarnation.inner.over_token().cancelled() => Event::Tick,
                () = sleep_until(wake) => Event::Tick,
            };
            self.tell(&incarnation, BootTime::now(), event);
        }
    }

    /// Feeds the machine and makes its state known.
    fn tell(&mut self, incarnation: &Incarnation, now: BootTime, event: Event) {
        // What the operations heard of the session counts as well.
        let (sent, answered) = incarnation.inner.last_contact();
        let mut changed = self.machine.handle(now, Event::Contact { sent, answered });
        changed |= self.machine.handle(now, event);
        if changed {
            let state = self.machine.state().clone();
            incarnation.inner.set_open(state.is_active());
            if state.is_active() {
                instruments::reconnect();
                self.heard = "ZooKeeper answers again".to_owned();
            }
            self.publish();
        }
    }

    fn on_driver_event(
        &mut self,
        incarnation: &Incarnation,
        heart: &mut Heart,
        event: Option<DriverEvent>,
    ) -> Event {
        match event {
            Some(DriverEvent::Watch { watch, kind, path }) => {
                debug!(%path, ?kind, "watch fired");
                incarnation.inner.fire_watch(watch, kind, path);
                Event::Tick
            }
            Some(DriverEvent::Suspended { reason }) => {
                info!(session = %incarnation.session_id(), %reason, "connection to ZooKeeper lost");
                self.heard = format!("the connection was lost: {reason}");
                Event::Suspended
            }
            Some(DriverEvent::Resumed) => {
                debug!(session = %incarnation.session_id(), "connection to ZooKeeper is back");
                heart.restart(BootTime::now());
                Event::Resumed
            }
            Some(DriverEvent::Expired) => Event::Expired,
            Some(DriverEvent::AuthFailed { reason }) => Event::AuthFailed { reason },
            Some(DriverEvent::Dead { reason }) => Event::Dead { reason },
            // It also ends when this side gives it up.
            None => incarnation
                .inner
                .end_reason()
                .map_or_else(|| Event::Dead { reason: "it stopped without a word".to_owned() }, as_event),
        }
    }

    fn on_heartbeat(&mut self, incarnation: &Incarnation, heart: &mut Heart, answer: Answer) -> Event {
        let now = BootTime::now();
        let Answer { sent, quorum, result } = answer;
        let outcome = match &result {
            Ok(()) => "ok",
            Err(DriverError::Refused(_) | DriverError::Invalid(_)) => "refused",
            Err(DriverError::Ambiguous(_)) => "unknown",
            Err(DriverError::NotSent(_)) => "unavailable",
        };
        instruments::request(if quorum { "beat" } else { "probe" }, outcome, now.duration_since(sent));
        match result {
            Ok(()) => {
                incarnation.inner.contact(sent);
                if incarnation.is_over() {
                    return Event::Tick;
                }
                if let Some(valid_until) = heart.answered(sent, now, quorum) {
                    self.publish_lease(Lease { epoch: incarnation.epoch(), valid_until });
                }
                Event::Contact { sent, answered: now }
            }
            Err(error) => {
                match &error {
                    // It needs an operator.
                    DriverError::Invalid(_) => {
                        warn!(session = %incarnation.session_id(), %error, "heartbeat refused");
                    }
                    _ => debug!(session = %incarnation.session_id(), %error, "heartbeat failed"),
                }
                heart.failed(now);
                self.heard = format!("a heartbeat failed: {error}");
                Event::Silent
            }
        }
    }

    fn publish_lease(&self, lease: Lease) {
        self.shared.lease.send_if_modified(|current| {
            let news = *current != Some(lease);
            *current = Some(lease);
            news
        });
    }

    /// A session has ended otherwise than by being closed.
    fn over(&mut self, incarnation: Incarnation) -> Ended {
        incarnation.inner.shut();
        instruments::expiration();
        Ended::Over(incarnation)
    }

    /// Waits until nobody acts on the old session any more, then makes a new one. `None` when the session is to be
    /// closed.
    async fn next_session(&mut self, old: &Incarnation, epoch: Epoch) -> Option<Made> {
        let mut tethers = old.inner.tethers();
        let bound = *tethers.borrow_and_update();
        if bound > 0 {
            info!(epoch = %old.epoch(), tethers = bound, "no new ZooKeeper session before the work of the old one has stopped");
            tokio::select! {
                _ = tethers.wait_for(|count| *count == 0) => {}
                _ = self.shared.closing() => return None,
            }
        }
        let mut backoff = BACKOFF;
        let spread = SPREAD.min(old.granted_timeout() / 4).mul_f64(fastrand::f64());
        self.shared.sleep(BootTime::now() + spread).await.ok()?;
        loop {
            let deadline = BootTime::now() + self.shared.config.connect_timeout;
            let made = tokio::select! {
                biased;
                _ = self.shared.closing() => return None,
                // On the heap: every session has this task, which would otherwise be as large as this for good.
                made = Box::pin(establish(&self.shared, self.shared.new_session(), epoch, deadline)) => made,
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
                    warn!(%error, "no new ZooKeeper session yet, trying again");
                    backoff.next()
                }
            };
            self.shared.sleep(BootTime::now() + pause).await.ok()?;
        }
    }

    async fn close(&mut self, incarnation: &Incarnation, deadline: BootTime) -> CloseOutcome {
        // Told before the goodbye: whoever acts in the session's name must not learn of its end after others do.
        self.shared.incarnation.send_replace(None);
        self.shared.lease.send_replace(None);
        incarnation.inner.set_open(false);
        if self.shared.is_handed_over() {
            incarnation.inner.shut();
            info!(session = %incarnation.session_id(), "ZooKeeper session handed over");
            return CloseOutcome::HandedOver;
        }
        let driver = incarnation.inner.driver().clone();
        let answer =
            crate::time::within(deadline, driver.close(deadline)).await.unwrap_or(CloseAnswer::Unknown);
        incarnation.inner.shut();
        let outcome = match answer {
            CloseAnswer::Acknowledged => CloseOutcome::Acknowledged,
            CloseAnswer::Sent => CloseOutcome::Sent,
            CloseAnswer::Unknown => CloseOutcome::Unknown,
        };
        info!(session = %incarnation.session_id(), ?outcome, "goodbye to ZooKeeper");
        outcome
    }

    /// Makes the state known, each with its reason in the log.
    fn publish(&self) {
        let state = self.machine.state().clone();
        let reason = self.heard.as_str();
        match &state {
            SessionState::Active { epoch } => info!(%state, %epoch, %reason, "ZooKeeper session is active"),
            SessionState::Paused { epoch, .. } => {
                warn!(%state, %epoch, %reason, "ZooKeeper session is paused")
            }
            SessionState::Inactive { reason: InactiveReason::AuthFailed { reason } } => {
                error!(%state, %reason, "ZooKeeper refuses the credentials: no session until that is put right");
            }
            SessionState::Inactive { reason } => warn!(%state, %reason, "ZooKeeper session is over"),
            SessionState::Closed => {
                info!(%state, reason = %"closed by this process", "ZooKeeper session is closed")
            }
        }
        if !matches!(state, SessionState::Active { .. } | SessionState::Paused { .. }) {
            // First the session and what it proved, then the state: nobody sees the end and still finds the session.
            self.shared.incarnation.send_replace(None);
            self.shared.lease.send_replace(None);
        }
        self.shared.state.send_replace(state);
    }
}

fn as_event(reason: InactiveReason) -> Event {
    match reason {
        InactiveReason::Expired => Event::Expired,
        InactiveReason::AuthFailed { reason } => Event::AuthFailed { reason },
        InactiveReason::DriverFailed { reason } => Event::Dead { reason },
        // Told by the deadline itself.
        InactiveReason::DeadlinePassed | InactiveReason::NotYetConnected => Event::Tick,
    }
}

/// The answer to a heartbeat.
struct Answer {
    sent: BootTime,
    /// Whether it went through the ensemble's log.
    quorum: bool,
    result: Result<(), DriverError>,
}

/// Decides when to send what, one at a time. A *beat* is a quorum round trip, sent while somebody keeps a lease and
/// while the session is paused. A *probe* is a read, sent in idle times only to find out whether anybody is there.
struct Heart {
    granted: Duration,
    tick: Duration,
    wanted: bool,
    history: LeaseHistory,
    under_way: Option<BoxFuture<'static, Answer>>,
    last_sent: BootTime,
    next: BootTime,
}

impl Heart {
    fn new(incarnation: &Incarnation, tick: Duration) -> Self {
        let granted = incarnation.granted_timeout();
        let (last_sent, _) = incarnation.inner.last_contact();
        Self {
            granted,
            tick,
            wanted: false,
            history: LeaseHistory::new(granted, tick),
            under_way: None,
            last_sent,
            next: last_sent + beat_interval(granted),
        }
    }

    fn set_wanted(&mut self, wanted: bool, now: BootTime) {
        if wanted && !self.wanted {
            self.history = LeaseHistory::new(self.granted, self.tick);
            self.restart(now);
        }
        self.wanted = wanted;
    }

    /// What was under way may belong to a connection that is gone.
    fn restart(&mut self, now: BootTime) {
        self.under_way = None;
        self.next = now;
    }

    fn wake(&self) -> BootTime {
        if self.under_way.is_some() { BootTime::from_duration(Duration::MAX) } else { self.next }
    }

    fn begin_if_due(&mut self, incarnation: &Incarnation, now: BootTime, active: bool) {
        if self.under_way.is_some() {
            return;
        }
        let quorum = self.wanted || !active;
        if !quorum {
            // An operation that was answered makes a probe superfluous.
            let (heard, _) = incarnation.inner.last_contact();
            self.next = self.next.max(heard + beat_interval(self.granted));
        }
        if now < self.next {
            return;
        }
        let driver = incarnation.inner.driver().clone();
        let patience = self.granted / 3;
        let sent = BootTime::now();
        self.last_sent = sent;
        let deadline = sent + patience;
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
            Answer { sent, quorum, result }
        }));
    }

    async fn answer(&mut self) -> Answer {
        match &mut self.under_way {
            Some(under_way) => {
                let answer = Pin::new(under_way).await;
                self.under_way = None;
                answer
            }
            None => pending().await,
        }
    }

    /// A heartbeat was answered. Answers until when the session is known to be alive, if somebody wants to know.
    fn answered(&mut self, sent: BootTime, now: BootTime, quorum: bool) -> Option<BootTime> {
        if !self.wanted {
            self.next = sent + beat_interval(self.granted);
            return None;
        }
        let valid_until = if quorum { self.history.acknowledged(sent, now) } else { None };
        self.next = self.history.next_beat(sent).max(now);
        valid_until
    }

    fn failed(&mut self, now: BootTime) {
        let pause = (beat_interval(self.granted) / 5).max(MIN_PAUSE);
        self.next = now + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    }
}
