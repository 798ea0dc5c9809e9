//! The application of a job's election.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use election_core::{
    ElectionEvent, Failure, Handler, Leadership, Nomination, StopOrder,
    record::{Cause, Current},
};
use zk_session::BootTime;

use super::orders::{Orders, Source};
use crate::{
    config::HookName,
    worker::{
        job::{Deadline, JobEnv, ProcessState},
        metrics,
        probes::Answers,
        state::JobSlot,
    },
};

/// The application of a job's election.
pub(super) struct JobHandler {
    pub(super) slot: Arc<JobSlot>,
    answers: Arc<Answers>,
    session_timeout: Duration,
    /// Where operators' orders and requests about the job are; `None` if the recipe has none.
    source: Option<Source>,
    /// Those of the current leadership, between two calls.
    orders: Mutex<Option<Orders>>,
    /// When the former leader last answered, from the takeover until the member leads.
    silent_since: Mutex<Option<BootTime>>,
}

impl JobHandler {
    pub(super) fn new(
        slot: Arc<JobSlot>,
        answers: Arc<Answers>,
        session_timeout: Duration,
        source: Option<Source>,
    ) -> Self {
        let (orders, silent_since) = (Mutex::new(None), Mutex::new(None));
        Self { slot, answers, session_timeout, source, orders, silent_since }
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, Option<Orders>> {
        // No code panics while it is locked.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent_since(&self) -> std::sync::MutexGuard<'_, Option<BootTime>> {
        // No code panics while it is locked.
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn env(&self, nomination: &Nomination, fencing_token: u64) -> JobEnv {
        let previous = nomination.previous.as_ref();
        JobEnv {
            job: self.slot.name().to_owned(),
            member: self.slot.member.clone(),
            site: self.slot.site.clone(),
            slot: nomination.slot,
            term: nomination.term,
            fencing_token,
            cause: nomination.cause.as_str().to_owned(),
            previous_leader: previous.map(|p| p.member.to_string()),
            previous_site: previous.map(|p| p.site.to_string()),
        }
    }

    /// Starts the job and waits until it is ready, with the hook before.
    pub(super) async fn start_job(&self, leadership: &Leadership) -> Result<(), Failure> {
        let env = self.env(leadership.nomination(), leadership.fencing_token());
        self.slot.enter(env.clone());
        self.slot.hook(HookName::BeforeTakeover, &env, Some(leadership.work_until().into())).await?;
        let run = self.slot.start(&env, leadership.work_until().into());
        run.ready().await?;
        Ok(())
    }

    /// Ends the job, gone `by`, with the hooks before and after. The hook before is left out without a deadline, and
    /// killed when there is no time for it any more.
    pub(super) async fn end_job(
        &self,
        before_stop: Option<Deadline>,
        urgent: impl Future<Output = ()>,
        by: impl FnOnce() -> BootTime,
    ) {
        let slot = &self.slot;
        let env = slot.env();
        let serves = slot.process().state == ProcessState::Running;
        if let (Some(env), Some(until)) =
            (env.as_ref().filter(|_| serves && !slot.is_hastened()), before_stop)
        {
            tokio::select! {
                () = self.try_hook(HookName::BeforeStop, env, Some(until)) => {}
                () = urgent => {}
                () = slot.hastened() => {}
            }
        }
        slot.end(by()).await;
        slot.hooks_gone().await;
        if let Some(env) = env.filter(|_| !slot.is_hastened()) {
            tokio::select! {
                // It cleans up on this node, so it is not limited by the lease.
                () = self.try_hook(HookName::AfterStop, &env, None) => {}
                () = slot.hastened() => {}
            }
            slot.hooks_gone().await;
        }
        slot.cleaned_up();
    }

    /// Runs the hook after the job is ready; without a job it does nothing.
    pub(super) async fn after_ready(&self, leadership: &Leadership) {
        if let Some(env) = self.slot.env() {
            self.try_hook(HookName::AfterReady, &env, Some(leadership.work_until().into())).await;
        }
    }

    /// Runs a hook whose failure is only logged.
    async fn try_hook(&self, name: HookName, env: &JobEnv, by: Option<Deadline>) {
        if let Err(error) = self.slot.hook(name, env, by).await {
            tracing::warn!(job = self.slot.name(), "{error}");
        }
    }
}

impl Handler for JobHandler {
    fn observe(&self, event: ElectionEvent) {
        let silent_since = match event {
            ElectionEvent::Ready { .. } => self.silent_since().take(),
            _ => None,
        };
        let detected =
            silent_since.and_then(|since| detected(&event, since, BootTime::now(), self.session_timeout));
        metrics::record(self.slot.name(), event, detected);
    }

    async fn prepare(&self, nomination: &Nomination) -> Result<(), Failure> {
        self.slot.arrives();
        metrics::begin(self.slot.name(), nomination.cause);
        let previous = nomination.previous.as_ref();
        *self.silent_since() = previous.and_then(|leader| self.answers.silent_since(&leader.ballot));
        // The token does not exist before the leadership.
        self.slot.hook(HookName::Prepare, &self.env(nomination, 0), None).await?;
        Ok(())
    }

    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        let Some(source) = &self.source else { return self.start_job(leadership).await };
        let mut orders = Orders::follow(source);
        orders.take_over(self, leadership).await?;
        *self.orders() = Some(orders);
        Ok(())
    }

    async fn lead(&self, leadership: &Leadership) -> Result<(), Failure> {
        let orders = self.orders().take();
        if let Some(mut orders) = orders {
            return orders.lead(self, leadership).await;
        }
        let Some(run) = self.slot.running() else { return Err(Failure::new("the job is not running")) };
        let after_ready = async {
            self.after_ready(leadership).await;
            std::future::pending().await
        };
        tokio::select! {
            error = run.finished() => Err(error.into()),
            never = after_ready => never,
        }
    }

    async fn stop(&self, order: &StopOrder) {
        let slot = &self.slot;
        tracing::info!(job = slot.name(), reason = %order.reason(), "stopping the job");
        // The stop of the job follows.
        let before_stop = Deadline::before(order.deadline().into(), slot.spec.stop_budget());
        let before_stop = Some(before_stop).filter(|_| order.is_orderly());
        self.end_job(before_stop, order.urgent(), || order.by()).await;
        self.orders().take();
        slot.left();
    }

    async fn leader_changed(&self, slot: usize, leader: Option<&Current>) {
        if self.slot.spec.hooks.on_leader_changed.is_none() {
            return;
        }
        let env = JobEnv {
            job: self.slot.name().to_owned(),
            member: self.slot.member.clone(),
            site: self.slot.site.clone(),
            slot,
            term: leader.map_or(0, |l| l.term),
            ..JobEnv::default()
        };
        let text = |text: Option<String>| text.unwrap_or_default();
        let more = [
            ("DR_LEADER".to_owned(), text(leader.map(|l| l.member.to_string()))),
            ("DR_LEADER_SITE".to_owned(), text(leader.map(|l| l.site.to_string()))),
        ];
        if let Err(error) = self.slot.tell_hook(HookName::OnLeaderChanged, &env, more).await {
            tracing::warn!(job = self.slot.name(), "{error}");
        }
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
    let detected = now.duration_since(silent_since).checked_sub(metrics::took(phases))?;
    (detected <= 2 * session_timeout).then_some(detected)
}

#[cfg(test)]
mod tests {
    use election_core::record::Phases;

    use super::*;

    #[test]
    fn the_time_until_a_failure_was_noticed_is_told_where_it_is_known() {
        let since = BootTime::now();
        let mut phases = Phases::default();
        (phases.decide_ms, phases.acquire_ms, phases.takeover_ms) = (20, 30, 950);
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
