//! Starts and ends the job of a leadership, with the hooks around it.

use std::{
    convert::Infallible,
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use election_core::{
    Leadership,
    handler::{Appointment, Failure},
    strategy::in_words,
};
use job_guard::{Deadline, ProcessState};
use tokio::time::sleep;
use zk_session::BootTime;

use super::{after::Order, fencing::Fencing};
use crate::{
    config::HookName,
    worker::{
        job::{JobEnv, JobError, work_time},
        state::{Halt, JobSlot},
    },
    znodes::HaltedProgram,
};

/// The job on this member.
pub(super) struct JobWork {
    pub(super) slot: Arc<JobSlot>,
    /// `None` if former leaders are not fenced.
    pub(super) fencing: Option<Fencing>,
    /// Its place among other jobs, and where its orders are; `None` if the recipe has neither.
    pub(super) order: Option<Order>,
}

/// Why the job of a leadership that goes on is stopped.
pub(super) const RESTARTED: &str = "it is to start again";

/// How long the report that the job has ended may take when the worker is to end at once.
const HURRIED: Duration = Duration::from_secs(1);

/// The delay before what the program does is recorded again after an error.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

impl JobWork {
    pub(super) fn env(&self, appointment: &Appointment, fencing_token: u64) -> JobEnv {
        let previous = appointment.previous.as_ref();
        JobEnv {
            slot: appointment.slot,
            term: appointment.term,
            fencing_token,
            cause: appointment.cause.as_str().to_owned(),
            previous_leader: previous.map(|p| p.member.to_string()),
            previous_site: previous.map(|p| p.site.to_string()),
            reason: appointment.sentence.clone().into_owned(),
            ..self.slot.env_of_member()
        }
    }

    /// Starts the job and waits until it is ready, with the hook before. Former leaders are fenced before that.
    pub(super) async fn start(&self, leadership: &Leadership) -> Result<(), Failure> {
        let env = self.env(leadership.appointment(), leadership.fencing_token());
        self.slot.enter(env.clone());
        if let Some(order) = &self.order {
            order.starts(&self.slot);
        }
        // From here on none begins.
        self.slot.rehearsals.end().await;
        if let Some(fencing) = &self.fencing {
            fencing.clear(&self.slot, leadership, &env).await?;
        }
        let by = Some(Deadline::at(leadership.work_until()));
        let hook = self.slot.hook(HookName::BeforeTakeover, &env, by).await;
        hook.map_err(JobError::into_failure)?;
        let armed = self.slot.arm(leadership.work_until().into()).await;
        armed.map_err(|why| Failure::new(format!("watchdog: {why}")))?;
        let by = Deadline::at(leadership.work_until());
        let run = self.slot.start_or_promote(&env, work_time(leadership), by).await;
        let run = run.map_err(JobError::into_failure)?;
        run.ready().await.map_err(JobError::from)?;
        Ok(())
    }

    /// The failure of a job that was started again.
    pub(super) fn not_ready(&self) -> Failure {
        let within = in_words(self.slot.takeover_timeout());
        Failure::new(format!("the job was not ready within takeover_timeout ({within})"))
    }

    /// Why the job may not start now: one that it comes after does not serve. Otherwise it is recorded that it starts.
    pub(super) async fn may_not_start(&self, leadership: &Leadership) -> Option<String> {
        match &self.order {
            Some(order) => order.may_not_start(leadership.term()).await,
            None => None,
        }
    }

    /// Records what the program does, for jobs that come after it.
    pub(super) async fn record(&self, leadership: &Leadership, program: HaltedProgram) -> bool {
        match &self.order {
            Some(order) => order.record(leadership.term(), program).await,
            None => true,
        }
    }

    /// Records what the program does now until the record says so: it may not have been written when that changed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn keep_recorded(&self, leadership: &Leadership) -> Infallible {
        let is_halted = self.slot.is_halted();
        let program = if is_halted { HaltedProgram::Stopped } else { HaltedProgram::Runs };
        while !self.record(leadership, program).await {
            sleep(RECORD_AGAIN).await;
        }
        pending().await
    }

    /// Runs the hook before a stop that may still be called off. The stop that follows does not run it again.
    ///
    /// # Errors
    /// Why the job is not to be stopped: the hook has failed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hook is killed.
    pub(super) async fn before_stop(&self, leadership: &Leadership, reason: &str) -> Result<(), Failure> {
        let slot = &self.slot;
        let serves = slot.process().state == ProcessState::Running && !slot.is_hastened();
        let Some(env) = slot.env().filter(|_| serves) else { return Ok(()) };
        let env = JobEnv { reason: reason.to_owned(), ..env };
        let until = Deadline::before(leadership.work_until().into(), slot.stop_budget());
        let done = tokio::select! {
            done = slot.hook(HookName::BeforeStop, &env, Some(until)) => done,
            () = slot.hastened() => return Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(job = slot.name(), "{error}; the job runs on");
            return Err(error.calling_off());
        }
        slot.set_before_stop_done();
        Ok(())
    }

    /// Waits until the jobs after it have stopped, within the time of a planned stop.
    pub(super) async fn let_others_stop(&self, leadership: &Leadership) {
        let Some(order) = &self.order else { return };
        tokio::select! {
            _ = order.let_others_stop(leadership.term(), self.slot.spec().planned_stop_timeout()) => {}
            () = self.slot.hastened() => {}
        }
    }

    /// Stops the job as at the end of a leadership, which goes on.
    pub(super) async fn halt(&self, leadership: &Leadership, why: Halt) {
        let reason = match &why {
            Halt::Starting => RESTARTED.to_owned(),
            Halt::Stopped(order) => format!("the job is {order}"),
            Halt::Waiting(why) => why.clone(),
        };
        self.slot.set_halt(Some(why));
        let (budget, work_until) = (self.slot.stop_budget(), leadership.work_until());
        let before_stop = Deadline::before(work_until.clone().into(), budget);
        let by = || (BootTime::now() + budget).min(work_until.now());
        self.end(&reason, Some(before_stop), pending(), by).await;
        self.record(leadership, HaltedProgram::Stopped).await;
    }

    /// Ends the job, with the hooks before and after. The hook before is left out without a deadline, and killed when there is
    /// no time for it any more, unless it is asynchronous. A ready job has the time of a planned stop after it. From `urgent`
    /// on, and without a deadline from the beginning, the job is stopped within its stop timeout, and gone `by`.
    pub(super) async fn end(
        &self,
        reason: &str,
        before_stop: Option<Deadline>,
        urgent: impl Future<Output = ()>,
        by: impl Fn() -> BootTime,
    ) {
        let slot = &self.slot;
        let env = slot.env().map(|env| JobEnv { reason: reason.to_owned(), ..env });
        let token = env.as_ref().map(|env| env.fencing_token);
        let serves = slot.process().state == ProcessState::Running;
        // A planned stop may be under way.
        let has_time = (serves || slot.planned_stop().is_some()) && !slot.is_hastened();
        let was_asked = slot.take_before_stop_done();
        if let Some(until) = before_stop.filter(|_| has_time) {
            let hook = env.as_ref().filter(|_| serves);
            tokio::select! {
                () = self.stop_in_time(hook, was_asked, until) => {}
                () = urgent => {}
            }
        }
        slot.end(by).await;
        slot.hooks.gone().await;
        if let Some(env) = env.filter(|_| !slot.is_hastened()) {
            tokio::select! {
                // It cleans up on this node, so it is not limited by the lease.
                () = self.try_hook(HookName::AfterStop, &env, None) => {}
                () = slot.hastened() => {}
            }
            slot.hooks.gone().await;
        }
        if let (Some(fencing), Some(token)) = (&self.fencing, token) {
            let hurried = async {
                slot.hastened().await;
                sleep(HURRIED).await;
            };
            tokio::select! {
                () = fencing.left(slot.name(), token) => {}
                () = hurried => {}
            }
        }
        slot.cleaned_up();
    }

    /// Stops the job within the time of a planned stop, after those that come after it, with the hook before unless that has run
    /// when it was asked.
    async fn stop_in_time(&self, hook: Option<&JobEnv>, was_asked: bool, until: Deadline) {
        let mut spent = Duration::ZERO;
        if let (Some(env), Some(order)) = (hook, &self.order) {
            let within = self.slot.spec().planned_stop_timeout();
            tokio::select! {
                took = order.let_others_stop(env.term, within) => spent = took,
                () = self.slot.hastened() => return,
            }
        }
        if let Some(env) = hook {
            let demoted = async {
                if !was_asked {
                    self.try_hook(HookName::BeforeStop, env, Some(until.clone())).await;
                }
                self.slot.demote(env, until).await
            };
            tokio::select! {
                demoted = demoted => if demoted { return },
                () = self.slot.hastened() => return,
            }
        }
        self.slot.stop_in_time(spent).await;
    }

    /// Runs the hook after the job is ready; without a job it does nothing.
    pub(super) async fn after_ready(&self, leadership: &Leadership) {
        if self.slot.take_past_ready() {
            return;
        }
        if let Some(env) = self.slot.env() {
            self.try_hook(HookName::AfterReady, &env, Some(Deadline::at(leadership.work_until()))).await;
        }
    }

    /// Runs a hook whose failure is only logged.
    async fn try_hook(&self, name: HookName, env: &JobEnv, by: Option<Deadline>) {
        if let Err(error) = self.slot.hook(name, env, by).await {
            tracing::warn!(job = self.slot.name(), "{error}");
        }
    }
}
