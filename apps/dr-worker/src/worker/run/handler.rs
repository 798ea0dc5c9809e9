//! The application of a job's election.

use std::sync::Arc;

use election_core::{ElectionEvent, Failure, Handler, Leadership, Nomination, StopOrder, record::Current};

use crate::{
    config::HookName,
    worker::{
        job::{Deadline, JobEnv, ProcessState},
        metrics,
        state::JobSlot,
    },
};

/// The application of a job's election.
pub(super) struct JobHandler {
    slot: Arc<JobSlot>,
}

impl JobHandler {
    pub(super) fn new(slot: Arc<JobSlot>) -> Self {
        Self { slot }
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

    /// Runs a hook whose failure is only logged.
    async fn try_hook(&self, name: HookName, env: &JobEnv, by: Option<Deadline>) {
        if let Err(error) = self.slot.hook(name, env, by).await {
            tracing::warn!(job = self.slot.name(), "{error}");
        }
    }
}

impl Handler for JobHandler {
    fn observe(&self, event: ElectionEvent) {
        metrics::record(self.slot.name(), event);
    }

    async fn prepare(&self, nomination: &Nomination) -> Result<(), Failure> {
        // The token does not exist before the leadership.
        self.slot.hook(HookName::Prepare, &self.env(nomination, 0), None).await?;
        Ok(())
    }

    async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
        let env = self.env(leadership.nomination(), leadership.fencing_token());
        self.slot.enter(env.clone());
        self.slot.hook(HookName::BeforeTakeover, &env, Some(leadership.work_until().into())).await?;
        let run = self.slot.start(&env, leadership.work_until().into());
        run.ready().await?;
        Ok(())
    }

    async fn lead(&self, leadership: &Leadership) -> Result<(), Failure> {
        let (Some(run), Some(env)) = (self.slot.running(), self.slot.env()) else {
            return Err(Failure::new("the job is not running"));
        };
        let after_ready = async {
            self.try_hook(HookName::AfterReady, &env, Some(leadership.work_until().into())).await;
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
        let env = slot.env();
        let serves = slot.process().state == ProcessState::Running;
        if let Some(env) = env.as_ref().filter(|_| serves && order.is_orderly() && !slot.is_hastened()) {
            // The stop of the job follows.
            let by = Deadline::before(order.deadline().into(), slot.spec.stop_budget());
            tokio::select! {
                () = self.try_hook(HookName::BeforeStop, env, Some(by)) => {}
                () = order.urgent() => {}
                () = slot.hastened() => {}
            }
        }
        slot.end(order.by()).await;
        slot.hooks_gone().await;
        if let Some(env) = env.filter(|_| !slot.is_hastened()) {
            tokio::select! {
                // It cleans up on this node, so it is not limited by the lease.
                () = self.try_hook(HookName::AfterStop, &env, None) => {}
                () = slot.hastened() => {}
            }
            slot.hooks_gone().await;
        }
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
