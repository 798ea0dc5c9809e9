//! The application of a job's election.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use election_core::{
    Handler, Leadership,
    handler::{Appointment, ElectionEvent, Failure, StopOrder, StopReason},
    internals::record::{Cause, Current},
};
use job_guard::{Deadline, Lease};
use parking_lot::Mutex;
use tokio::sync::watch;
use zk_session::BootTime;

use super::{after::Order, fencing::Fencing, leader_news::LeaderNews, orders::Orders, work::JobWork};
use crate::{
    config::HookName,
    logging,
    worker::{
        job::{HungDisk, JobEnv, JobError, SeenLeader},
        metrics,
        probes::PeerAnswers,
        trace::Traces,
    },
};

/// The application of a job's election.
pub(super) struct JobHandler {
    work: JobWork,
    answers: Arc<PeerAnswers>,
    session_timeout: Duration,
    /// Those of the current leadership, between two calls.
    orders: Mutex<Option<Orders>>,
    /// When the former leader last answered, from the takeover until the member leads.
    silent_since: Mutex<Option<BootTime>>,
    /// The leadership that is taken over, until the member leads.
    taken_over: Mutex<Option<JobEnv>>,
    news: Arc<LeaderNews>,
    disk: HungDisk,
    traces: Traces,
}

impl JobHandler {
    pub(super) fn new(
        news: Arc<LeaderNews>,
        fencing: Option<Fencing>,
        answers: Arc<PeerAnswers>,
        session_timeout: Duration,
        order: Option<Order>,
        disk: HungDisk,
        traces: Traces,
    ) -> Self {
        Self {
            work: JobWork { slot: Arc::clone(&news.slot), fencing, order },
            answers,
            session_timeout,
            orders: Mutex::default(),
            silent_since: Mutex::default(),
            taken_over: Mutex::default(),
            news,
            disk,
            traces,
        }
    }

    /// Leads on until the work has failed.
    async fn lead_on(&self, leadership: &Leadership) -> Result<(), Failure> {
        let orders = self.orders.lock().take();
        let orders = orders.or_else(|| self.work.order.as_ref().map(|order| Orders::follow(&order.source)));
        if let Some(mut orders) = orders {
            return orders.lead(&self.work, leadership).await;
        }
        let Some(run) = self.work.slot.running() else { return Err(Failure::new("the job is not running")) };
        let after_ready = async {
            self.work.after_ready(leadership).await;
            std::future::pending().await
        };
        tokio::select! {
            error = run.finished() => Err(error.into()),
            () = self.work.slot.is_late() => Err(self.work.not_ready()),
            never = after_ready => never,
        }
    }
}

impl Handler for JobHandler {
    fn observe(&self, event: ElectionEvent) {
        let silent_since = match event {
            ElectionEvent::Ready { .. } => self.silent_since.lock().take(),
            _ => None,
        };
        let detected =
            silent_since.and_then(|since| detected(&event, since, BootTime::now(), self.session_timeout));
        if let ElectionEvent::Ready { phases, .. } = &event
            && let Some(leadership) = self.taken_over.lock().take()
        {
            self.traces.ready(leadership, metrics::all_phases(phases, detected));
        }
        metrics::record(self.work.slot.name(), event, detected);
    }

    async fn prepare(&self, appointment: &Appointment) -> Result<(), Failure> {
        if let Some(why) = self.disk.now() {
            return Err(Failure::new(why));
        }
        self.work.slot.arrives();
        self.work.slot.rehearsals.end().await;
        metrics::begin(self.work.slot.name(), appointment.cause);
        let previous = appointment.previous.as_ref();
        *self.silent_since.lock() = previous.and_then(|leader| self.answers.silent_since(&leader.ballot));
        // The token does not exist before the leadership.
        let hook = self.work.slot.hook(HookName::Prepare, &self.work.env(appointment, 0), None).await;
        hook.map_err(JobError::into_failure)
    }

    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        // It has a term and a trace whether the job is started or not.
        logging::set_term(self.work.slot.name(), Some(leadership.term()));
        let env = self.work.env(leadership.appointment(), leadership.fencing_token());
        *self.taken_over.lock() = Some(env);
        let taken = async {
            let Some(order) = &self.work.order else { return self.work.start(leadership).await };
            let mut orders = Orders::follow(&order.source);
            orders.take_over(&self.work, leadership).await?;
            *self.orders.lock() = Some(orders);
            Ok(())
        };
        tokio::select! {
            biased;
            // It could not record what it starts.
            why = self.disk.hangs() => Err(Failure::new(why)),
            taken = taken => taken,
        }
    }

    async fn lead(&self, leadership: &Leadership) -> Result<(), Failure> {
        let lease = self.work.slot.take_adopted();
        tokio::select! {
            biased;
            never = renew(lease, leadership) => match never {},
            led = self.lead_on(leadership) => led,
        }
    }

    fn asks_before_moves(&self) -> bool {
        true
    }

    async fn before_move(&self, leadership: &Leadership, reason: &StopReason) -> Result<(), Failure> {
        self.work.before_stop(leadership, &reason.to_string()).await
    }

    async fn stop(&self, order: &StopOrder) {
        let slot = &self.work.slot;
        tracing::info!(job = slot.name(), reason = %order.reason(), "stopping the job");
        // The stop of the job follows.
        let before_stop = Deadline::before(order.deadline().into(), slot.stop_budget());
        let before_stop = Some(before_stop).filter(|_| order.is_orderly());
        let reason = order.reason().to_string();
        self.work.end(&reason, before_stop, order.urgent(), || order.by()).await;
        self.orders.lock().take();
        slot.left();
    }

    fn follows_leaders(&self) -> bool {
        !self.news.is_queue
    }

    async fn leader_changed(&self, slot: usize, leader: Option<&Current>) {
        self.news.tell(slot, leader.map(SeenLeader::from).as_ref());
    }
}

/// How long a failure was not noticed that led to this leadership, if that is known: from the last probe that the former
/// leader answered until the elector noticed that a decision was necessary.
///
/// It is not known if the leader was not lost, or reported its own failure. Nor if it has been silent for longer than its
/// session can have lasted: then it was reachable for ZooKeeper, and what ended its leadership came later.
fn detected(
    event: &ElectionEvent,
    silent_since: BootTime,
    now: BootTime,
    session_timeout: Duration,
) -> Option<Duration> {
    let ElectionEvent::Ready { cause: Cause::LeaderLost | Cause::Suspected | Cause::SiteFailed, phases } =
        event
    else {
        return None;
    };
    let detected = now.duration_since(silent_since).checked_sub(metrics::took(phases)?)?;
    (detected <= 2 * session_timeout).then_some(detected)
}

/// Passes on when a job may work that the program before this one has handed over; it has no other way to know.
async fn renew(lease: Option<Lease>, leadership: &Leadership) -> Infallible {
    if let Some(lease) = lease {
        let mut work_until: watch::Receiver<BootTime> = leadership.work_until().into();
        let mut rests: watch::Receiver<bool> = leadership.suspended().into();
        loop {
            lease.renew_until(*work_until.borrow_and_update());
            lease.suspend(*rests.borrow_and_update());
            let ended = tokio::select! {
                changed = work_until.changed() => changed.is_err(),
                changed = rests.changed() => changed.is_err(),
            };
            if ended {
                break;
            }
        }
    }
    pending().await
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::Phases;

    use super::*;

    #[test]
    fn the_time_until_a_failure_was_noticed_is_told_where_it_is_known() {
        let since = BootTime::now();
        let mut phases = Phases::default();
        (phases.decide_ms, phases.release_ms) = (Some(20), Some(0));
        (phases.acquire_ms, phases.takeover_ms) = (Some(30), Some(950));
        let detected = |cause, ready_ms| {
            let event = ElectionEvent::Ready { cause, phases };
            detected(&event, since, since + Duration::from_millis(ready_ms), Duration::from_secs(6))
        };
        for cause in [Cause::LeaderLost, Cause::Suspected, Cause::SiteFailed] {
            assert_eq!(detected(cause, 5000), Some(Duration::from_secs(4)));
            assert_eq!(detected(cause, 13_000), Some(Duration::from_secs(12)));
            // Longer than a session can last without its client.
            assert_eq!(detected(cause, 13_001), None);
            // Clocks that do not agree.
            assert_eq!(detected(cause, 999), None);
        }
        for cause in [Cause::Switchover, Cause::WorkFailed, Cause::Unhealthy, Cause::Startup] {
            assert_eq!(detected(cause, 5000), None);
        }
    }
}
