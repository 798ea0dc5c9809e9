//! The place of a job on this node: its program, while this member leads, and what is known of both.

mod handover;

use std::{collections::BTreeMap, fmt, future::pending, sync::Arc, time::Duration};

use election_core::{
    internals::record::{AppliedOverlay, StoppedJob},
    strategy::in_words,
};
use job_guard::{Deadline, Guards, Job, JobRun, Lease, ProcessState, ProcessStatus, WorkTime};
use strategies::other_jobs::OtherJobs;

use parking_lot::Mutex;
use tokio::sync::watch;
use zk_session::BootTime;

use crate::{
    config::{HookMode, HookName, JobConfig, JobSpec, NodeConfig},
    logging,
    view::PlannedStop,
    wall,
    worker::{
        job::{
            AsyncHooks, HookRuns, JobEnv, JobError, Rehearsals, Standby, follow_runs, guards_in, rehearse,
        },
        watchdog::Watchdog,
    },
};

pub(in crate::worker) use handover::HandedSlot;

/// Where a job runs on this node while this node leads.
pub(in crate::worker) struct JobSlot {
    name: String,
    pub(in crate::worker) member: String,
    pub(in crate::worker) site: String,
    /// How the guards of this job's programs are started.
    pub(in crate::worker) guards: Guards,
    watchdog: Option<Watchdog>,
    /// How much of the end of each lease is left to the watchdog device.
    pub(in crate::worker) lease_reserve: Duration,
    state: Mutex<SlotState>,
    /// The running hooks and fence commands of leaderships.
    pub(in crate::worker) hooks: HookRuns,
    async_hooks: AsyncHooks,
    hastened: watch::Sender<bool>,
    /// Counts the starts and ends of runs.
    turns: watch::Sender<u64>,
    /// One that begins after its leadership has been entered sees that.
    pub(in crate::worker) rehearsals: Rehearsals,
    standby: Option<Arc<Standby>>,
}

/// What changes.
struct SlotState {
    /// The present configuration, which the running job follows as far as it can.
    spec: Arc<JobSpec>,
    run: Option<Arc<JobRun>>,
    /// The environment of the current leadership, until its cleanup has ended.
    env: Option<JobEnv>,
    /// Restarts of all earlier runs.
    restarts: u64,
    /// The terms of the jobs that it comes after when its program was started.
    started_in: BTreeMap<String, u64>,
    /// The status of the last run after its end.
    last: Option<ProcessStatus>,
    presence: Presence,
    halt: Option<Halt>,
    planned_stop: Option<PlannedStop>,
    /// How long a stop may take: the longest of the configurations that the running job may have been started with.
    stop_budget: Duration,
    /// How long the job may take to be ready.
    takeover_timeout: Duration,
    overlay: Option<AppliedOverlay>,
    /// Where the other jobs are led that the policy goes by.
    other_jobs: OtherJobs,
    /// Renews the lease of a run that the program before this one has handed over.
    adopted: Option<Lease>,
    /// The hook before the stop that follows has run.
    is_before_stop_done: bool,
    /// The leadership was handed over, so its hook after readiness has run.
    is_past_ready: bool,
}

/// Why a leader does not serve, by an operator's request or by that of another job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Halt {
    /// It is restarted or started, and not ready yet.
    Starting,
    /// An operator has stopped the job.
    Stopped(StoppedJob),
    /// A job that it comes after does not serve: why.
    Waiting(String),
}

/// Whether this member leads the job, or is on its way there or back.
#[derive(Clone, Copy, Default)]
enum Presence {
    #[default]
    Never,
    Here,
    Left(BootTime),
}

/// How long the metrics of a job are served after it has left: the last values must be read once more.
const SHOWN_AFTER: Duration = Duration::from_secs(5 * 60);

impl JobSlot {
    pub(in crate::worker) fn new(
        node: &NodeConfig,
        job: &JobConfig,
        guards: Guards,
        watchdog: Option<Watchdog>,
        lease_reserve: Duration,
    ) -> Self {
        let state = SlotState {
            spec: Arc::clone(&job.spec),
            run: None,
            env: None,
            restarts: 0,
            started_in: BTreeMap::new(),
            last: None,
            presence: Presence::default(),
            halt: None,
            planned_stop: None,
            stop_budget: job.spec.stop_budget(),
            takeover_timeout: job.policy.election.takeover_timeout,
            overlay: None,
            other_jobs: OtherJobs::new(),
            adopted: None,
            is_before_stop_done: false,
            is_past_ready: false,
        };
        let mut slot = Self {
            name: job.name().to_owned(),
            member: node.id.to_string(),
            site: node.site.to_string(),
            guards,
            watchdog,
            lease_reserve,
            state: Mutex::new(state),
            hooks: HookRuns::default(),
            async_hooks: AsyncHooks::default(),
            hastened: watch::channel(false).0,
            turns: watch::channel(0).0,
            rehearsals: Rehearsals::default(),
            standby: None,
        };
        let file = node.state_dir.join(format!("{}.{}.leadership.json", node.id, job.name()));
        let (env, guards) = (slot.env_of_member(), slot.guards.clone());
        slot.standby = Standby::of(&job.spec, env, node.address.clone(), guards, file).map(Arc::new);
        slot
    }

    /// The job's name.
    pub(in crate::worker) fn name(&self) -> &str {
        &self.name
    }

    /// The job's configuration.
    pub(in crate::worker) fn spec(&self) -> Arc<JobSpec> {
        Arc::clone(&self.state.lock().spec)
    }

    /// Changes the job's configuration.
    pub(in crate::worker) fn set_config(&self, job: &JobConfig) {
        let mut state = self.state.lock();
        let (budget, is_running) = (job.spec.stop_budget(), state.run.is_some());
        state.stop_budget = if is_running { state.stop_budget.max(budget) } else { budget };
        state.takeover_timeout = job.policy.election.takeover_timeout;
        state.spec = Arc::clone(&job.spec);
        if let Some(standby) = &self.standby {
            standby.set_spec(&job.spec);
        }
        if let (Some(run), Some(env)) = (&state.run, &state.env) {
            run.change(self.described(&job.spec, env));
        }
    }

    /// The standby of the job on this member, if the job has one.
    pub(in crate::worker) fn standby(&self) -> Option<&Arc<Standby>> {
        self.standby.as_ref()
    }

    /// Whether a member without a ready standby is not elected.
    pub(in crate::worker) fn requires_standby(&self) -> bool {
        self.spec().standby.as_ref().is_some_and(|standby| standby.required)
    }

    /// The leader's program, for its guard.
    fn described(&self, spec: &JobSpec, env: &JobEnv) -> Job {
        let mut job = spec.job(env);
        if let Some(standby) = &self.standby {
            job.env = standby.leader_env(env, job.env);
        }
        job
    }

    /// Which overlay of its configuration this member applies, if there is one.
    pub(in crate::worker) fn overlay(&self) -> Option<AppliedOverlay> {
        self.state.lock().overlay.clone()
    }

    /// Sets which overlay this member applies. Returns whether that is new.
    pub(in crate::worker) fn set_overlay(&self, overlay: Option<AppliedOverlay>) -> bool {
        let mut state = self.state.lock();
        let is_new = state.overlay != overlay;
        state.overlay = overlay;
        is_new
    }

    /// Where the other jobs are led that the policy goes by.
    pub(in crate::worker) fn other_jobs(&self) -> OtherJobs {
        self.state.lock().other_jobs.clone()
    }

    /// Sets it. Returns whether that is new.
    pub(in crate::worker) fn set_other_jobs(&self, jobs: OtherJobs) -> bool {
        let mut state = self.state.lock();
        let is_new = state.other_jobs != jobs;
        state.other_jobs = jobs;
        is_new
    }

    /// How long a stop may take, whichever configuration the job was started with.
    pub(in crate::worker) fn stop_budget(&self) -> Duration {
        self.state.lock().stop_budget
    }

    /// How long the job may take to be ready.
    pub(in crate::worker) fn takeover_timeout(&self) -> Duration {
        self.state.lock().takeover_timeout
    }

    /// The status of the job's process.
    pub(in crate::worker) fn process(&self) -> ProcessStatus {
        let state = self.state.lock();
        let running = state.run.as_ref().map(|run| run.status().borrow().clone());
        running.or_else(|| state.last.clone()).unwrap_or(ProcessStatus::in_state(ProcessState::Stopped))
    }

    /// How often the job was restarted since the worker was started.
    pub(in crate::worker) fn restarts(&self) -> u64 {
        let state = self.state.lock();
        let now = state.run.as_ref().map_or(0, |run| run.status().borrow().restarts);
        state.restarts + u64::from(now)
    }

    /// From now on a stop kills the job at once, and hooks are skipped.
    pub(in crate::worker) fn hasten(&self) {
        self.hastened.send_replace(true);
    }

    pub(in crate::worker) async fn hastened(&self) {
        let mut hastened = self.hastened.subscribe();
        if hastened.wait_for(|hastened| *hastened).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(in crate::worker) fn is_hastened(&self) -> bool {
        *self.hastened.borrow()
    }

    /// A takeover by this member begins.
    pub(in crate::worker) fn arrives(&self) {
        self.state.lock().presence = Presence::Here;
    }

    /// Whether this member leads the job, takes it over or stops it, or did so a moment ago.
    pub(in crate::worker) fn is_or_was_here(&self) -> bool {
        match self.state.lock().presence {
            Presence::Never => false,
            Presence::Here => true,
            Presence::Left(at) => BootTime::now() < at + SHOWN_AFTER,
        }
    }

    /// Sets why this leader does not serve although it leads; `None` if there is no such reason.
    pub(in crate::worker) fn set_halt(&self, halt: Option<Halt>) {
        self.state.lock().halt = halt;
    }

    /// Whether this leader does not serve by an operator's request, or by that of another job.
    pub(in crate::worker) fn is_halted(&self) -> bool {
        self.state.lock().halt.is_some()
    }

    /// The order by which this leader does not run the job.
    pub(in crate::worker) fn stopped(&self) -> Option<StoppedJob> {
        match &self.state.lock().halt {
            Some(Halt::Stopped(order)) => Some(order.clone()),
            Some(Halt::Starting | Halt::Waiting(_)) | None => None,
        }
    }

    /// Why this leader does not run the job until another job serves.
    pub(in crate::worker) fn waits(&self) -> Option<String> {
        match &self.state.lock().halt {
            Some(Halt::Waiting(why)) => Some(why.clone()),
            Some(Halt::Starting | Halt::Stopped(_)) | None => None,
        }
    }

    /// Sets the environment of the leadership that is being taken over.
    pub(in crate::worker) fn enter(&self, env: JobEnv) {
        logging::set_term(self.name(), Some(env.term));
        self.state.lock().env = Some(env);
    }

    /// Arms the watchdog device, before the job is started.
    ///
    /// # Errors
    /// Why this node can't lead without it, as a sentence.
    pub(in crate::worker) async fn arm(&self, work_until: watch::Receiver<BootTime>) -> Result<(), String> {
        match &self.watchdog {
            Some(watchdog) => watchdog.arm(self.name(), work_until).await,
            None => Ok(()),
        }
    }

    /// Starts the job for the current leadership.
    pub(in crate::worker) fn start(&self, env: &JobEnv, time: WorkTime) -> Arc<JobRun> {
        let mut state = self.state.lock();
        state.stop_budget = state.spec.stop_budget();
        let job = self.described(&state.spec, env);
        let run = Arc::new(JobRun::start(job, time, guards_in(&self.guards, env)));
        state.run = Some(Arc::clone(&run));
        drop(state);
        self.turns.send_modify(|turns| *turns += 1);
        run
    }

    /// Makes the leader's program of the standby, if there is one, or starts it.
    ///
    /// # Errors
    /// Why the standby was not promoted. [`end`](Self::end) ends what is left of it.
    ///
    /// # Cancel safety
    /// If the future is dropped, [`end`](Self::end) ends what is left.
    pub(in crate::worker) async fn start_or_promote(
        &self,
        env: &JobEnv,
        time: WorkTime,
        by: Deadline,
    ) -> Result<Arc<JobRun>, JobError> {
        let Some(standby) = &self.standby else { return Ok(self.start(env, time)) };
        let Some(run) = standby.take() else {
            standby.announce(env).await?;
            return Ok(self.start(env, time));
        };
        // From now on a stop ends it.
        {
            let mut state = self.state.lock();
            state.stop_budget = state.spec.stop_budget();
            state.run = Some(Arc::clone(&run));
        }
        self.turns.send_modify(|turns| *turns += 1);
        let job = self.described(&self.spec(), env);
        if standby.promote(&run, env, job, time.clone(), by).await? {
            return Ok(run);
        }
        Ok(self.start(env, time))
    }

    /// Makes a standby of the leader's program, if demote is a command. Returns whether it is one, and keeps running.
    ///
    /// # Cancel safety
    /// If the future is dropped, [`end`](Self::end) ends the program.
    pub(in crate::worker) async fn demote(&self, env: &JobEnv, by: Deadline) -> bool {
        // An operator who stops or restarts the job means the leader's program.
        if self.is_halted() {
            return false;
        }
        let (Some(standby), Some(run)) = (&self.standby, self.running()) else { return false };
        self.plan_stop(self.spec().demote_timeout());
        match standby.demote(&run, env, by).await {
            Ok(true) => {
                let restarts = run.status().borrow().restarts;
                let last = ProcessStatus::in_state(ProcessState::Stopped);
                self.forget(ProcessStatus { restarts, ..last });
                true
            }
            refused => {
                if let Err(error) = refused {
                    tracing::warn!(job = self.name(), "{error}; the job is stopped");
                }
                self.state.lock().planned_stop = None;
                false
            }
        }
    }

    /// The work may take so long to end, and it is shown since when.
    fn plan_stop(&self, given: Duration) {
        if given.is_zero() {
            return;
        }
        let since_ms = wall::unix_ms();
        let until_ms = since_ms.saturating_add(wall::ms(given));
        let began = || PlannedStop { member: self.member.clone(), since_ms, until_ms };
        self.state.lock().planned_stop.get_or_insert_with(began);
    }

    /// The run is not this leadership's any more.
    fn forget(&self, last: ProcessStatus) {
        let mut state = self.state.lock();
        state.restarts += u64::from(last.restarts);
        state.last = Some(ProcessStatus { restarts: 0, ..last });
        (state.run, state.planned_stop) = (None, None);
        drop(state);
        self.turns.send_modify(|turns| *turns += 1);
    }

    pub(in crate::worker) fn set_before_stop_done(&self) {
        self.state.lock().is_before_stop_done = true;
    }

    /// Whether the hook before the stop that follows has run; once.
    pub(in crate::worker) fn take_before_stop_done(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_before_stop_done)
    }

    pub(in crate::worker) fn running(&self) -> Option<Arc<JobRun>> {
        self.state.lock().run.clone()
    }

    /// The environment of the current leadership.
    pub(in crate::worker) fn env(&self) -> Option<JobEnv> {
        self.state.lock().env.clone()
    }

    /// Stops the job within the time of a planned stop, if it runs. Returns when no process of it is left, or a stop is to
    /// take no longer than it must; [`end`](Self::end) follows. `spent` of the time was needed before, by the jobs after this one.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the stop.
    pub(in crate::worker) async fn stop_in_time(&self, spent: Duration) {
        let (Some(run), spec) = (self.running(), self.spec()) else { return };
        let given = spec.planned_stop_timeout().saturating_sub(spent).max(spec.stop_timeout);
        if given > spec.stop_timeout {
            let limit = in_words(given);
            tracing::info!(job = self.name(), "the job has {limit} to end while the lease is renewed");
            self.plan_stop(given);
        }
        tokio::select! {
            _ = run.stop_within(given) => {}
            () = self.hastened() => {}
        }
    }

    /// The planned stop that is under way, if it may take longer than another one.
    pub(in crate::worker) fn planned_stop(&self) -> Option<PlannedStop> {
        self.state.lock().planned_stop.clone()
    }

    /// Stops the job, gone `by`, if it runs, and waits until no process of it is left.
    pub(in crate::worker) async fn end(&self, by: impl FnOnce() -> BootTime) {
        if let Some(run) = self.running() {
            let by = if self.is_hastened() { BootTime::now() } else { by() };
            let stopped = tokio::select! {
                stopped = run.stop(by) => stopped,
                () = self.hastened() => run.stop(BootTime::now()).await,
            };
            let exit = stopped.exit.map_or_else(|| "unknown".to_owned(), |exit| exit.to_string());
            tracing::info!(job = self.name(), %exit, took_ms = wall::ms(stopped.took), "the job has stopped");
            let last = run.status().borrow().clone();
            self.forget(last);
        }
        if let Some(standby) = &self.standby {
            standby.gone().await;
        }
        // It may have been armed for a job that was not started.
        if let Some(watchdog) = &self.watchdog {
            watchdog.release(self.name()).await;
        }
    }

    /// Waits until a program that was started again in a leadership has not been ready for as long as a takeover may take.
    pub(in crate::worker) async fn is_late(&self) {
        let mut turns = self.turns.subscribe();
        loop {
            turns.borrow_and_update();
            let late = async {
                match self.running() {
                    Some(run) => starts_for(&run, || self.takeover_timeout()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = late => return,
                // The sender is in `self`.
                _ = turns.changed() => {}
            }
        }
    }

    /// Calls `seen` after each change of the job's process.
    pub(in crate::worker) async fn follow_process(&self, seen: impl Fn()) {
        follow_runs(&self.turns, || self.running(), seen).await;
    }

    /// Rehearses the job: starts it without a leadership, waits until it is ready, and stops it. `ready` is called in
    /// between. No process of it is left `until`, nor when this returns. It ends early when `cancelled` completes, or this
    /// member takes over.
    ///
    /// # Errors
    /// Why it did not become ready, as a sentence.
    pub(in crate::worker) async fn rehearse(
        &self,
        until: BootTime,
        cancelled: impl Future<Output = ()>,
        ready: impl FnOnce(),
    ) -> Result<(), String> {
        let (turn, interrupted) = self.rehearsals.begin().await;
        // After that: who enters a leadership later interrupts this one.
        let leads = {
            let state = self.state.lock();
            state.env.is_some() || state.run.is_some()
        };
        if leads {
            return Err("this member leads, or takes over".to_owned());
        }
        let env = JobEnv { is_rehearsal: true, ..self.env_of_member() };
        let stop = async {
            tokio::select! {
                () = interrupted => "this member takes over".to_owned(),
                () = cancelled => "the drill has ended".to_owned(),
            }
        };
        let rehearsed = rehearse(&self.spec(), &env, until, self.guards.clone(), stop, ready).await;
        drop(turn);
        rehearsed
    }

    /// Clears the environment: nothing of the job is left to be cleaned up.
    pub(in crate::worker) fn cleaned_up(&self) {
        self.state.lock().env = None;
    }

    /// The leadership has ended.
    pub(in crate::worker) fn left(&self) {
        logging::set_term(self.name(), None);
        let mut state = self.state.lock();
        state.halt = None;
        (state.adopted, state.is_past_ready, state.is_before_stop_done) = (None, false, false);
        state.presence = Presence::Left(BootTime::now());
        drop(state);
        if let Some(standby) = &self.standby {
            standby.give_back();
        }
    }

    /// The environment without a leadership.
    pub(in crate::worker) fn env_of_member(&self) -> JobEnv {
        JobEnv {
            job: self.name().to_owned(),
            member: self.member.clone(),
            site: self.site.clone(),
            ..JobEnv::default()
        }
    }

    /// Runs a hook of a leadership, gone by the deadline. If the hook is asynchronous and has a choice, it only begins.
    ///
    /// # Cancel safety
    /// If the future is dropped, the hook is killed; [`HookRuns::gone`] waits for its end.
    pub(in crate::worker) async fn hook(
        &self,
        name: HookName,
        env: &JobEnv,
        by: Option<Deadline>,
    ) -> Result<(), JobError> {
        // `after_ready` acts for the leadership, and must end with it.
        let spec = self.spec();
        let is_detached = spec.hooks.get(name).is_some_and(|hook| hook.mode == HookMode::Async);
        if is_detached && name != HookName::AfterReady {
            self.async_hooks.start(spec, name, env.clone(), self.guards.clone());
            return Ok(());
        }
        self.hooks.run(spec, name, env.clone(), self.guards.clone(), by).await
    }

    /// Begins a hook outside of a leadership, to report the current leader.
    pub(in crate::worker) fn tell_hook(
        &self,
        name: HookName,
        env: JobEnv,
        more: impl IntoIterator<Item = (String, String)>,
    ) {
        let mut spec = JobSpec::clone(&self.spec());
        spec.env.extend(more);
        self.async_hooks.start(Arc::new(spec), name, env, self.guards.clone());
    }
}

/// Waits until the run has been starting for so long.
async fn starts_for(run: &JobRun, within: impl Fn() -> Duration) {
    let mut status = run.status();
    loop {
        let is_starting = |now: &ProcessStatus| now.state == ProcessState::Starting;
        if status.wait_for(is_starting).await.is_err() {
            return pending().await;
        }
        let ends = async { status.wait_for(|now| !is_starting(now)).await.is_ok() };
        match tokio::time::timeout(within(), ends).await {
            Ok(true) => {}
            Ok(false) => return pending().await,
            Err(_) => return,
        }
    }
}

impl fmt::Debug for JobSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSlot").field("job", &self.name).finish_non_exhaustive()
    }
}
