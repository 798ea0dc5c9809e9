//! The standby of a job: the program that runs on every member that does not lead.
//!
//! ```text
//!              keep: starts it, restarts it, also for an operator, tells it who leads
//!                │
//!                ▼            take                      arm ─▶ promote ─▶ ready
//!   Standby { run, no deadline } ──▶ JobSlot { run } ──▶ the same process, with the leader's deadline
//!                ▲                                        │
//!                └── give_back ◀── disarm ◀── demote ◀────┤  planned
//!                └── give_back, and a new start ◀── gone ◀┘  the lease has ended, or the stop has
//! ```
//!
//! A process belongs to one of the two at any time: to [`Standby`], which starts nothing from `take` to `give_back`, or to the
//! slot, whose stop ends whatever it has. So two of the job's programs never run at once on a node. The guard has confirmed the
//! deadline of the leadership before promote begins, and loses it only after demote has ended.

mod change;
mod handover;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use election_core::internals::record::StoppedJob;
use job_guard::{ExitCodes, Guards, Job, JobRun, KILL_RESERVE, ProcessState, ProcessStatus, WorkTime};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use zk_session::BootTime;

use super::{
    described::guards_in,
    env::JobEnv,
    error::JobError,
    follow_runs::follow_runs,
    hook::HookRuns,
    role::{LeadershipFile, RoleFacts, SeenLeader},
};
use crate::config::{JobSpec, RoleChange, StandbySpec};
pub(crate) use handover::HandedStandby;

/// The name of the standby of a job among all programs: of its last output and its cgroup.
pub(crate) fn standby_name(job: &str) -> String {
    format!("{job} (standby)")
}

/// The standby of a job on this member.
#[derive(Debug)]
pub(crate) struct Standby {
    /// The environment of the member, without a leadership.
    env: JobEnv,
    /// The address of this member's work.
    address: String,
    guards: Guards,
    file: LeadershipFile,
    state: Mutex<StandbyState>,
    /// Counts the changes of the state.
    turns: watch::Sender<u64>,
    /// Its promotions and the like, which end before another one begins.
    commands: HookRuns,
}

#[derive(Debug)]
struct StandbyState {
    spec: Arc<JobSpec>,
    /// Who leads, by the newest term that is known.
    leader: RoleFacts,
    /// What the run was told last.
    told: RoleFacts,
    /// The term of the last leadership here.
    led: u64,
    run: Option<Arc<JobRun>>,
    /// A leadership has the job's program.
    is_taken: bool,
    /// Nothing keeps it running yet, or this worker ends.
    is_over: bool,
    /// An operator has it restarted.
    is_restarted: bool,
    /// An operator's order that it is stopped.
    stopped: Option<StoppedJob>,
    /// Restarts of all earlier runs.
    restarts: u64,
}

impl StandbyState {
    /// Whether the one that runs is attended to here, or another one is started.
    fn is_kept(&self) -> bool {
        !self.is_taken && !self.is_over && (self.stopped.is_none() || self.run.is_some())
    }

    /// The run and its process, if that is ready.
    fn running(&self) -> Option<(&Arc<JobRun>, ProcessStatus)> {
        let run = self.run.as_ref()?;
        let process = run.status().borrow().clone();
        (process.state == ProcessState::Running).then_some((run, process))
    }
}

impl Standby {
    /// `None` if the job has none.
    pub(crate) fn of(
        spec: &Arc<JobSpec>,
        env: JobEnv,
        address: String,
        guards: Guards,
        file: PathBuf,
    ) -> Option<Self> {
        spec.standby.as_ref()?;
        let state = StandbyState {
            spec: Arc::clone(spec),
            leader: RoleFacts::of_standby(None),
            told: RoleFacts::of_standby(None),
            led: 0,
            run: None,
            is_taken: false,
            is_over: true,
            is_restarted: false,
            stopped: None,
            restarts: 0,
        };
        Some(Self {
            file: LeadershipFile::new(&env.job, file),
            env,
            address,
            guards,
            state: Mutex::new(state),
            turns: watch::Sender::new(0),
            commands: HookRuns::default(),
        })
    }

    fn turn(&self) {
        self.turns.send_modify(|turns| *turns += 1);
    }

    fn keys(&self) -> (Arc<JobSpec>, StandbySpec) {
        let spec = Arc::clone(&self.state.lock().spec);
        let standby = spec.standby.clone().unwrap_or_default();
        (spec, standby)
    }

    /// The standby's program. It has another name than the leader's, so that neither its cgroup nor its last output is taken for
    /// those of the job.
    fn job(&self, facts: &RoleFacts) -> Job {
        self.job_by(&self.keys().0, facts)
    }

    fn job_by(&self, spec: &JobSpec, facts: &RoleFacts) -> Job {
        let standby = spec.standby.clone().unwrap_or_default();
        let job = spec.job(&self.env);
        Job {
            name: standby_name(&spec.name),
            command: standby.command,
            env: facts.over(job.env.clone(), &self.file.name()),
            ready: standby.ready,
            stop_timeout: standby.stop_timeout,
            restart: standby.restart,
            exit_codes: ExitCodes::default(),
            liveness: standby.liveness,
            outlives: standby.outlives,
            freezes: false,
            ..job
        }
    }

    /// The environment of the leader's program and of promote.
    pub(crate) fn leader_env(&self, env: &JobEnv, all: BTreeMap<String, String>) -> BTreeMap<String, String> {
        self.leads(env).over(all, &self.file.name())
    }

    fn leads(&self, env: &JobEnv) -> RoleFacts {
        RoleFacts::of_leader(env, &self.address)
    }

    /// Changes the job's configuration: the next start has it.
    pub(crate) fn set_spec(&self, spec: &Arc<JobSpec>) {
        let mut state = self.state.lock();
        state.spec = Arc::clone(spec);
        if let Some(run) = &state.run {
            run.change(self.job_by(spec, &state.told));
        }
    }

    /// Another leader is READY. One of an older term is no news.
    pub(crate) fn leader_changed(&self, leader: &SeenLeader) {
        let facts = RoleFacts::of_standby(Some(leader));
        let mut state = self.state.lock();
        if facts.term > state.leader.term {
            state.leader = facts;
            drop(state);
            self.turn();
        }
    }

    /// Keeps the standby running while no leadership has the job's program, until it is dropped.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut turns = self.turns.subscribe();
        self.state.lock().is_over = false;
        loop {
            turns.borrow_and_update();
            let Some((run, facts)) = self.begin().await else {
                if turns.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let end = tokio::select! {
                biased;
                // It ends as well when a new leader has the standby restarted.
                () = self.attend(&run, facts) => continue,
                end = run.finished() => end,
            };
            if !self.forget(&run) || self.state.lock().is_over {
                continue;
            }
            let pause = self.keys().1.restart.backoff_max;
            tracing::error!(job = self.env.job, "the standby is started again in {pause:?}: {end}");
            self.turn();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.until(|state| state.is_restarted || state.stopped.is_some()) => {}
            }
        }
    }

    /// Waits until the state is like this.
    async fn until(&self, is_so: impl Fn(&StandbyState) -> bool) {
        let mut turns = self.turns.subscribe();
        while !is_so(&self.state.lock()) {
            if turns.changed().await.is_err() {
                return;
            }
        }
    }

    /// The standby that runs, which is started if no leadership has the job's program, with what it was told.
    async fn begin(&self) -> Option<(Arc<JobRun>, RoleFacts)> {
        let facts = {
            let state = self.state.lock();
            state.is_kept().then(|| state.leader.clone())?
        };
        if let Err(error) = self.file.write(&facts).await {
            tracing::error!("{error}");
        }
        let job = self.job(&facts);
        let mut state = self.state.lock();
        if !state.is_kept() {
            return None;
        }
        state.is_restarted &= state.run.is_some();
        let run = match &state.run {
            // It was demoted or continued.
            Some(run) => Arc::clone(run),
            None => {
                let guards = guards_in(&self.guards, &self.env);
                let run = Arc::new(JobRun::start(job, WorkTime::unlimited(), guards));
                (state.run, state.told) = (Some(Arc::clone(&run)), facts);
                run
            }
        };
        let told = state.told.clone();
        drop(state);
        self.turn();
        Some((run, told))
    }

    /// No process of this run is left. Returns whether it was the standby's.
    fn forget(&self, run: &Arc<JobRun>) -> bool {
        let mut state = self.state.lock();
        let is_own = state.run.as_ref().is_some_and(|own| Arc::ptr_eq(own, run));
        if is_own {
            state.restarts += u64::from(run.status().borrow().restarts);
            state.run = None;
        }
        is_own
    }

    /// Tells the running standby who leads. Returns when it is not the standby any more.
    async fn attend(&self, run: &Arc<JobRun>, mut told: RoleFacts) {
        let mut turns = self.turns.subscribe();
        let mut pause: Option<Duration> = None;
        loop {
            turns.borrow_and_update();
            let (is_own, must_stop, leader) = {
                let state = self.state.lock();
                let is_own = state.run.as_ref().is_some_and(|own| Arc::ptr_eq(own, run));
                (is_own, state.is_restarted || state.stopped.is_some(), state.leader.clone())
            };
            if !is_own {
                return;
            }
            if must_stop {
                let is_stopped = tokio::select! {
                    () = self.stop_run(run) => true,
                    () = self.until(|state| state.is_taken) => false,
                };
                if is_stopped {
                    return;
                }
                continue;
            }
            if leader.term > told.term {
                let followed = tokio::select! {
                    followed = self.follow(run, &leader) => followed,
                    () = self.until(|state| {
                        state.is_taken || state.is_restarted || state.stopped.is_some()
                            || state.leader.term > leader.term
                    }) => continue,
                };
                match followed {
                    Ok(()) => {
                        self.has_told(run, &leader);
                        (told, pause) = (leader, None);
                    }
                    // It may not answer yet. What has changed meanwhile counts at once.
                    Err(why) => {
                        let restart = self.keys().1.restart;
                        let next = pause.map_or(restart.backoff, |last| (2 * last).min(restart.backoff_max));
                        tracing::warn!(
                            job = self.env.job,
                            "the standby does not follow the new leader; trying again in {next:?}: {why}"
                        );
                        pause = Some(next);
                        let _: Result<_, _> = tokio::time::timeout(next, turns.changed()).await;
                    }
                }
                continue;
            }
            if turns.changed().await.is_err() {
                return;
            }
        }
    }

    /// From now on a restart of the run is told the same. What was configured meanwhile is as it is now.
    fn has_told(&self, run: &Arc<JobRun>, leader: &RoleFacts) {
        let mut state = self.state.lock();
        state.told = leader.clone();
        if state.run.as_ref().is_some_and(|own| Arc::ptr_eq(own, run)) {
            run.change(self.job_by(&state.spec, leader));
        }
    }

    async fn follow(&self, run: &Arc<JobRun>, leader: &RoleFacts) -> Result<(), JobError> {
        self.commands.gone().await;
        let (spec, standby) = self.keys();
        if standby.follow == RoleChange::Restart {
            // The next start writes the file: until then it has what the program was started with.
            self.stop_run(run).await;
            return Ok(());
        }
        self.file.write(leader).await?;
        run.change(self.job(leader));
        match &standby.follow {
            RoleChange::None | RoleChange::Restart => Ok(()),
            RoleChange::Signal(signal) => {
                run.signal(*signal).await;
                Ok(())
            }
            RoleChange::Exec { command, timeout } => {
                let env = leader.over(self.env.over(&spec.env), &self.file.name());
                self.change(spec, "follow", (command.clone(), *timeout), env, None).await
            }
        }
    }

    /// Stops the standby, which is started again then.
    async fn stop_run(&self, run: &Arc<JobRun>) {
        run.stop(BootTime::now() + self.keys().1.stop_timeout + KILL_RESERVE).await;
        self.forget(run);
        self.turn();
    }

    /// Restarts the standby for an operator. Returns when the new one is ready.
    ///
    /// # Errors
    /// Why it is not restarted here, as text.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may be restarted or not.
    pub(crate) async fn restart(&self) -> Result<(), &'static str> {
        let before = {
            let mut state = self.state.lock();
            state.is_restarted = true;
            state.run.clone()
        };
        self.turn();
        let is_new = |run: &Arc<JobRun>| before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, run));
        let outcome = self.ends_like(|state| state.running().is_some_and(|(run, _)| is_new(run))).await;
        self.state.lock().is_restarted = false;
        outcome
    }

    /// Has the standby stopped, or not any more, as an operator has ordered.
    pub(crate) fn obey(&self, stopped: Option<StoppedJob>) {
        let mut state = self.state.lock();
        if state.stopped == stopped {
            return;
        }
        match (&state.stopped, &stopped) {
            (_, Some(order)) => tracing::warn!(job = self.env.job, "the standby is {order}"),
            (_, None) => tracing::info!(job = self.env.job, "the standby is not stopped any more"),
        }
        state.stopped = stopped;
        drop(state);
        self.turn();
    }

    /// Waits until the standby that an order has stopped has ended, or is no standby any more.
    pub(crate) async fn ended(&self) {
        self.until(|state| state.run.is_none() || state.is_taken || state.is_over).await;
    }

    /// Waits until the standby that is not stopped any more is ready. That of a leader begins later.
    ///
    /// # Errors
    /// Why there is no standby here any more, as text.
    pub(crate) async fn ready(&self) -> Result<(), &'static str> {
        if self.state.lock().is_taken {
            return Ok(());
        }
        self.ends_like(|state| state.running().is_some()).await
    }

    /// Waits until the standby is ready with another process than this one, which was killed.
    ///
    /// # Errors
    /// Why there is no standby here any more, as text.
    pub(crate) async fn ready_after(&self, killed: u32) -> Result<(), &'static str> {
        let is_other = |process: ProcessStatus| process.pid.is_some_and(|pid| pid != killed);
        self.ends_like(|state| state.running().is_some_and(|(_, process)| is_other(process))).await
    }

    /// Waits until the standby is like this, or a leadership or the end of the worker ends it.
    async fn ends_like(&self, is_so: impl Fn(&StandbyState) -> bool) -> Result<(), &'static str> {
        let outcome = || {
            let state = self.state.lock();
            match &*state {
                StandbyState { is_taken: true, .. } => Some(Err("this member leads, or takes over")),
                StandbyState { is_over: true, .. } => Some(Err("the worker ends, or is upgraded")),
                StandbyState { stopped: Some(_), .. } => {
                    Some(Err("the standby is stopped by an operator's order"))
                }
                state => is_so(state).then_some(Ok(())),
            }
        };
        let changed = Notify::new();
        let ends = async {
            loop {
                if let Some(outcome) = outcome() {
                    return outcome;
                }
                changed.notified().await;
            }
        };
        tokio::select! {
            outcome = ends => outcome,
            () = self.watch(|| changed.notify_one()) => Err("the worker ends"),
        }
    }

    /// A leadership takes the job's program. From now on nothing is started here until [`give_back`](Self::give_back).
    pub(crate) fn take(&self) -> Option<Arc<JobRun>> {
        let mut state = self.state.lock();
        (state.is_taken, state.is_restarted) = (true, false);
        let run = state.run.take();
        state.restarts += run.as_ref().map_or(0, |run| u64::from(run.status().borrow().restarts));
        drop(state);
        self.turn();
        run
    }

    /// The leader's program begins, with this in the file.
    ///
    /// # Errors
    /// Why that can't be written.
    pub(crate) async fn announce(&self, env: &JobEnv) -> Result<(), JobError> {
        self.commands.gone().await;
        self.state.lock().led = env.term;
        self.file.write(&self.leads(env)).await
    }

    /// What a standby is told after the leadership here.
    fn after_leading(&self) -> RoleFacts {
        let mut state = self.state.lock();
        if state.leader.term <= state.led {
            state.leader = RoleFacts::after(state.led);
        }
        state.leader.clone()
    }

    /// The leadership has ended, and runs nothing any more.
    pub(crate) fn give_back(&self) {
        self.after_leading();
        self.state.lock().is_taken = false;
        self.turn();
    }

    /// Waits until no command of the standby is left.
    pub(crate) async fn gone(&self) {
        self.commands.gone().await;
    }

    /// Stops the standby for good: this worker ends. Returns when no process of it is left.
    pub(crate) async fn end(&self, hastened: impl Future<Output = ()>) {
        let run = {
            let mut state = self.state.lock();
            state.is_over = true;
            state.run.clone()
        };
        self.turn();
        if let Some(run) = run {
            let by = BootTime::now() + self.keys().1.stop_timeout + KILL_RESERVE;
            tokio::select! {
                _ = run.stop(by) => {}
                () = hastened => drop(run.stop(BootTime::now()).await),
            }
        }
        self.commands.gone().await;
    }

    /// Whether it can be handed over with its process, or has none: a leadership has it, or it is stopped by an order.
    pub(crate) fn is_ready(&self) -> bool {
        let is_stopped = {
            let state = self.state.lock();
            state.stopped.is_some() && state.run.is_none()
        };
        is_stopped || self.process().is_none_or(|process| process.state == ProcessState::Running)
    }

    /// The process of the standby; `None` while a leadership has the job's program.
    pub(crate) fn process(&self) -> Option<ProcessStatus> {
        let state = self.state.lock();
        let run = state.run.as_ref().filter(|_| !state.is_taken);
        let stopped = ProcessStatus { state: ProcessState::Stopped, ..ProcessStatus::starting() };
        (!state.is_taken).then(|| run.map_or(stopped, |run| run.status().borrow().clone()))
    }

    /// How often the standby was restarted since the worker was started.
    pub(crate) fn restarts(&self) -> u64 {
        let state = self.state.lock();
        let now = state.run.as_ref().map_or(0, |run| run.status().borrow().restarts);
        state.restarts + u64::from(now)
    }

    /// Why this member is not fit to lead for its standby; `None` if it is.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_required = self.keys().1.required;
        {
            let state = self.state.lock();
            if let Some(order) = state.stopped.as_ref().filter(|_| is_required && !state.is_taken) {
                return Some(format!("the standby is {order}"));
            }
        }
        let process =
            self.process().filter(|process| is_required && process.state != ProcessState::Running)?;
        let last = process.problem.map(|problem| format!(" ({problem})")).unwrap_or_default();
        Some(format!("the standby is {}{last}", process.state))
    }

    /// Calls `seen` after each change of the standby's process, until it is dropped.
    pub(crate) async fn watch(&self, seen: impl Fn()) {
        follow_runs(&self.turns, || self.state.lock().run.clone(), seen).await;
    }
}
