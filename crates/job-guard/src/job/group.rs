//! The task behind the run of a job that consists of several processes.
//!
//! ```text
//!   stop requests ─┐                                    ┌─▶ JobRun of process 1 ─▶ its guard
//!   ends, readiness ┴─▶ GroupSupervisor ── start, stop ─┼─▶ JobRun of process 2 ─▶ its guard
//!                            ▲   ◀── step ── Lineup     └─▶ ...
//! ```
//!
//! Each process has a guard of its own: a guard is the subreaper of one tree, so an orphan can't be taken for that of another
//! process, and a process can be restarted alone. All guards have the deadline of the same lease. That of a process comes before
//! that of the lease by the stop timeouts of those that end later, so the order holds while the worker is frozen too. If the
//! worker is gone, each guard ends its process at once.

use std::{io, iter::zip, os::fd::OwnedFd, sync::Arc, time::Duration};

use boot_time::{BootTime, sleep_until};
use futures_util::future::{OptionFuture, join_all, select_all};
use tokio::sync::watch;

use super::{
    guards::Guards,
    handover::{Ask, HandedProcess, HandedRun, RunState},
    lease::WorkTime,
    lineup::{Doing, Lineup, LineupStep, share},
    restart::RestartHistory,
    run::JobRun,
    run_end::RunEnd,
    status::{NamedStatus, ProcessState, ProcessStatus, Stopped},
    supervisor::{Outcome, RunAsk, RunTask, Stop, StopRequest, Supervisor, millis, next_request},
};
use crate::{
    config::{Job, OnExit, RestartPolicy},
    guard::{plan, protocol::Exit},
};

pub(super) struct GroupSupervisor {
    job: Arc<Job>,
    task: RunTask,
    guards: Guards,
    members: Vec<Member>,
    lineup: Lineup,
    restarts: RestartHistory,
    /// The end of the pause before the next restart.
    restart_at: Option<BootTime>,
    stop: Option<Stop>,
    /// Whether the [`JobRun`] was dropped.
    is_abandoned: bool,
    /// Why the run is over, once no process of it is left.
    end: Option<RunEnd>,
    /// When that was decided.
    since: BootTime,
    /// How the process ended that ended last.
    exit: Option<Exit>,
    /// Why a process ended last, until all are ready.
    problem: Option<String>,
}

/// One of the processes.
struct Member {
    name: String,
    run: Option<Running>,
    /// The status of its run, or of the last one.
    status: ProcessStatus,
    restarts: u32,
    /// Its deadline.
    until: watch::Sender<BootTime>,
}

struct Running {
    run: JobRun,
    status: watch::Receiver<ProcessStatus>,
    is_asked: bool,
}

impl Running {
    fn of(run: JobRun) -> Self {
        Self { status: run.status(), run, is_asked: false }
    }

    /// Waits for another status, or for the end of the run.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn news(&mut self) -> Option<Outcome> {
        match self.status.changed().await {
            Ok(()) => None,
            Err(_) => Some(self.run.outcome().await),
        }
    }
}

impl Member {
    /// Whether it stays down, and has not done its work.
    fn is_down(&self) -> bool {
        self.status.state == ProcessState::Exited && !self.status.is_done
    }

    fn doing(&self) -> Doing {
        match (&self.run, self.status.state) {
            (Some(running), _) if running.is_asked => Doing::Stopping,
            (Some(_), ProcessState::Running) | (_, ProcessState::Exited) => Doing::Serving,
            // It was ready before it was frozen, or is started when it continues.
            (Some(_), _) => Doing::Starting,
            (None, _) => Doing::Nothing,
        }
    }
}

/// Until when each process may work, by the stop timeouts of those that are stopped after it.
fn deadline(job: &Job, at: usize, lease_end: BootTime) -> BootTime {
    plan::before(lease_end, needed(job, 0..at))
}

/// How long the stops of these processes take at most.
fn needed(job: &Job, which: impl IntoIterator<Item = usize>) -> Duration {
    let each = which.into_iter().filter_map(|at| Some(job.processes.get(at)?.program.stop_timeout));
    each.fold(Duration::ZERO, Duration::saturating_add)
}

fn rules(job: &Job) -> Vec<OnExit> {
    job.processes.iter().map(|process| process.on_exit).collect()
}

/// The program of a process: who supervises the group restarts it.
fn program(job: &Job, at: usize) -> Option<Job> {
    let program = job.processes.get(at)?.program.clone();
    Some(Job { restart: RestartPolicy { max: 0, ..job.restart }, ..program })
}

impl GroupSupervisor {
    pub(super) fn new(mut task: RunTask, guards: Guards) -> GroupSupervisor {
        let job = Arc::clone(&task.jobs.borrow_and_update());
        let until = *task.time.until.borrow_and_update();
        let member = |(at, name): (usize, String)| Member {
            name,
            run: None,
            status: ProcessStatus::in_state(ProcessState::Stopped),
            restarts: 0,
            until: watch::Sender::new(deadline(&job, at, until)),
        };
        let names = job.processes.iter().map(|process| process.name.clone());
        GroupSupervisor {
            members: names.enumerate().map(member).collect(),
            lineup: Lineup::new(rules(&job)),
            job,
            task,
            guards,
            restarts: RestartHistory::default(),
            restart_at: None,
            stop: None,
            is_abandoned: false,
            end: None,
            since: BootTime::now(),
            exit: None,
            problem: None,
        }
    }

    /// Continues this run, instead of starting the processes.
    ///
    /// # Errors
    /// If the descriptors can't be used, or are not those of these processes.
    pub(super) fn adopt(
        task: RunTask,
        guards: Guards,
        RunState { restarts, processes, .. }: RunState,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<GroupSupervisor> {
        let others = || io::Error::other("the job's processes are not those that were handed over");
        let mut group = GroupSupervisor::new(task, guards);
        group.restarts = restarts;
        let own = group.job.processes.iter().map(|process| &process.name);
        if !own.eq(processes.iter().map(|process| &process.name)) {
            return Err(others());
        }
        let mut descriptors = descriptors.into_iter();
        for (at, handed) in processes.into_iter().enumerate() {
            let (Some(program), Some(time)) = (program(&group.job, at), group.time_of(at)) else { continue };
            let Some(member) = group.members.get_mut(at) else { continue };
            if handed.program.is_none() {
                let is_done = handed.is_done;
                member.status = ProcessStatus { is_done, ..ProcessStatus::in_state(ProcessState::Exited) };
                continue;
            }
            let state = RunState::of(handed.program);
            let status =
                ProcessStatus { pid: state.main(), ..ProcessStatus::in_state(ProcessState::Running) };
            let (run, task, outcome) = JobRun::connect(program, time, status.clone());
            let descriptors = descriptors.by_ref().take(state.descriptors()).collect();
            let supervisor = Supervisor::adopt(task, group.guards.clone(), state, descriptors)?;
            outcome.of(supervisor.in_group().supervise());
            (member.run, member.status) = (Some(Running::of(run)), status);
        }
        Ok(group)
    }

    /// Runs the processes until the job is stopped or has failed. No process of it is left then.
    pub(super) async fn supervise(mut self) -> Outcome {
        loop {
            match self.lineup.step(&self.members.iter().map(Member::doing).collect::<Vec<_>>()) {
                LineupStep::Start(at) => self.start(at),
                LineupStep::Stop(at) => self.ask(at),
                LineupStep::Pause if self.end.is_some() => return self.finish(),
                LineupStep::Pause => self.wait(self.restart_at).await,
                LineupStep::Wait => self.wait(None).await,
            }
            self.publish();
        }
    }

    /// Waits for an event, and takes note of it. `restart_at`: the end of the pause.
    async fn wait(&mut self, restart_at: Option<BootTime>) {
        tokio::select! {
            biased;
            request = next_request(&mut self.task.stop_requests), if !self.is_abandoned => {
                self.begin_stop(request);
            }
            (at, outcome) = news(&mut self.members) => self.heard(at, outcome),
            // Without its sender neither of them changes.
            Ok(()) = self.task.time.until.changed() => self.renew(),
            Ok(()) = self.task.jobs.changed() => self.adapt(),
            Some(()) = OptionFuture::from(restart_at.map(sleep_until)) => {
                self.restart_at = None;
                self.lineup.resume();
            }
            Some(ask) = self.task.asks.recv() => match ask {
                RunAsk::HandOver(ask) => self.hand_over(ask).await,
                other => other.refuse("it consists of several processes".to_owned()),
            },
        }
    }

    /// When this process may work.
    fn time_of(&self, at: usize) -> Option<WorkTime> {
        Some(WorkTime::new(self.members.get(at)?.until.subscribe(), self.task.time.suspended.clone()))
    }

    fn start(&mut self, at: usize) {
        let (Some(program), Some(time)) = (program(&self.job, at), self.time_of(at)) else { return };
        let Some(member) = self.members.get_mut(at) else { return };
        let (run, task, outcome) = JobRun::connect(program, time, ProcessStatus::starting());
        outcome.of(Supervisor::new(task, self.guards.clone()).in_group().supervise());
        (member.run, member.status) = (Some(Running::of(run)), ProcessStatus::starting());
    }

    /// Asks a process to end, within its share of the time that is left.
    fn ask(&mut self, at: usize) {
        let request = match self.stop {
            None => StopRequest::default(),
            Some(stop) => {
                let later =
                    (0..at).filter(|at| self.members.get(*at).is_some_and(|later| later.run.is_some()));
                let left = stop.kill_at.duration_since(BootTime::now());
                let given = share(needed(&self.job, [at]), needed(&self.job, later), left);
                StopRequest { given: Some(given), by: None }
            }
        };
        let Some(member) = self.members.get_mut(at) else { return };
        match &mut member.run {
            Some(running) => {
                running.is_asked = true;
                running.run.ask_to_stop(request);
            }
            // It stayed down.
            None => member.status.state = ProcessState::Stopped,
        }
    }

    /// Takes note of the status of a process, or of its end.
    fn heard(&mut self, at: usize, outcome: Option<Outcome>) {
        let Some(member) = self.members.get_mut(at) else { return };
        let Some(running) = &mut member.run else { return };
        let is_asked = running.is_asked;
        member.status = running.status.borrow_and_update().clone();
        let Some(Outcome { end, stopped }) = outcome else { return };
        member.run = None;
        self.exit = stopped.exit;
        if is_asked || !self.lineup.wants(at) {
            member.status.state = ProcessState::Stopped;
            return;
        }
        let name = &member.name;
        let job = self.job.name.clone();
        self.problem = member.status.problem.as_ref().map(|problem| format!("{name}: {problem}"));
        match end {
            RunEnd::NotHere { code, .. } => self.fail(RunEnd::NotHere { job, code }),
            RunEnd::LeaseEnded { .. } => self.fail(RunEnd::LeaseEnded { job }),
            RunEnd::RestartsExhausted { last, .. } => self.restart(at, &last),
            // It was not asked for.
            RunEnd::Stopped { .. } | RunEnd::RoleNotTaken { .. } => self.restart(at, "its run was stopped"),
        }
    }

    /// A process has ended by itself: restarts what its rule names, if the job may be restarted once more.
    fn restart(&mut self, at: usize, last: &str) {
        let Some(member) = self.members.get_mut(at) else { return };
        let (job, now) = (self.job.name.as_str(), BootTime::now());
        let last = format!("process {}: {last}", member.name);
        match self.restarts.ended(&self.job.restart, now) {
            Some(pause) => {
                member.restarts += 1;
                let in_ms = millis(pause.duration_since(now));
                self.lineup.ended(at);
                let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
                let others = others.filter(|(other, _)| !self.lineup.wants(*other));
                let with: Vec<_> = others.map(|(_, member)| member.name.as_str()).collect();
                let with =
                    if with.is_empty() { String::new() } else { format!(", with {}", with.join(", ")) };
                tracing::warn!(job, in_ms, "ended: {last}; restarting it{with}");
                self.restart_at = self.restart_at.max(Some(pause));
            }
            None => {
                let RestartPolicy { max, within, .. } = self.job.restart;
                let (job, restarts) = (job.to_owned(), self.restarts.total());
                self.fail(RunEnd::RestartsExhausted { job, last, restarts, max, within });
            }
        }
    }

    /// The run is over as soon as the other processes have ended.
    fn fail(&mut self, end: RunEnd) {
        tracing::error!(job = self.job.name, "{end}");
        self.over(end);
    }

    fn over(&mut self, end: RunEnd) {
        if self.end.is_none() {
            (self.end, self.since) = (Some(end), BootTime::now());
        }
        self.restart_at = None;
        self.lineup.end();
    }

    /// The job is to stop, or its [`JobRun`] was dropped. The earliest end counts, for the process that is being stopped too.
    fn begin_stop(&mut self, request: Option<StopRequest>) {
        self.is_abandoned |= request.is_none();
        let new = Stop::new(BootTime::now(), request.unwrap_or_default(), self.job.stop_timeout);
        self.stop = Some(new.and(self.stop));
        self.over(RunEnd::Stopped { job: self.job.name.clone() });
        if let Some(at) = self.members.iter().position(|member| member.doing() == Doing::Stopping) {
            self.ask(at);
        }
    }

    /// Passes the end of the lease on.
    fn renew(&mut self) {
        let until = *self.task.time.until.borrow_and_update();
        for (at, member) in self.members.iter().enumerate() {
            member.until.send_replace(deadline(&self.job, at, until));
        }
    }

    /// Takes over what can change at once. The processes have the same names.
    fn adapt(&mut self) {
        self.job = Arc::clone(&self.task.jobs.borrow_and_update());
        self.lineup.set_rules(rules(&self.job));
        for (at, member) in self.members.iter().enumerate() {
            if let (Some(running), Some(program)) = (&member.run, program(&self.job, at)) {
                running.run.change(program);
            }
        }
        self.renew();
    }

    /// Hands all processes over, if all are at rest. Whatever happens here meanwhile waits for them.
    async fn hand_over(&self, ask: Ask<HandedRun>) {
        let handed = async {
            if !self.lineup.wants_all() {
                return Err(format!("its processes are {}", self.state()));
            }
            let each = self.members.iter().map(|member| async move {
                match &member.run {
                    Some(running) if member.status.state != ProcessState::Exited => {
                        let handed = running.run.hand_over().await;
                        handed.map(Some).map_err(|why| format!("process {}: {why}", member.name))
                    }
                    _ if member.doing() == Doing::Serving => Ok(None),
                    _ => Err(format!("process {} is {}", member.name, member.status.state)),
                }
            });
            let state = RunState { restarts: self.restarts.clone(), ..RunState::of(None) };
            let mut all = HandedRun { state, descriptors: Vec::new(), held: Vec::new() };
            for (member, handed) in zip(&self.members, join_all(each).await) {
                let (name, is_done) = (member.name.clone(), member.status.is_done);
                let mut program = None;
                if let Some(HandedRun { state, descriptors, held }) = handed? {
                    program = state.program;
                    all.descriptors.extend(descriptors);
                    all.held.extend(held);
                }
                all.state.processes.push(HandedProcess { name, program, is_done });
            }
            Ok(all)
        };
        // Dropped, the processes go on here.
        let _ = ask.send(handed.await);
    }

    fn finish(mut self) -> Outcome {
        let took = BootTime::now().duration_since(self.stop.map_or(self.since, |stop| stop.began));
        let end = self.end.clone().unwrap_or(RunEnd::Stopped { job: self.job.name.clone() });
        if let RunEnd::Stopped { job } = &end {
            tracing::info!(job, took_ms = millis(took), "job stopped: all its processes have ended");
            self.problem = None;
        }
        self.publish();
        Outcome { end, stopped: Stopped { exit: self.exit, took } }
    }

    /// The state of all together.
    fn state(&self) -> ProcessState {
        let any = |state| self.members.iter().any(|member| member.status.state == state);
        let all = |doing| self.members.iter().all(|member| member.doing() == doing);
        match &self.end {
            Some(RunEnd::Stopped { .. }) if all(Doing::Nothing) => ProcessState::Stopped,
            Some(_) if all(Doing::Nothing) => ProcessState::Fatal,
            Some(_) => ProcessState::Stopping,
            None if any(ProcessState::Frozen) => ProcessState::Frozen,
            None if !self.lineup.wants_all() => ProcessState::Backoff,
            None if !all(Doing::Serving) => ProcessState::Starting,
            None if self.members.iter().any(Member::is_down) => ProcessState::Exited,
            None if any(ProcessState::Running) => ProcessState::Running,
            None => ProcessState::Exited,
        }
    }

    fn publish(&mut self) {
        let state = self.state();
        if state == ProcessState::Running {
            self.problem = None;
        }
        let processes = self.members.iter().map(|member| NamedStatus {
            name: member.name.clone(),
            status: ProcessStatus { restarts: member.restarts, ..member.status.clone() },
        });
        let status = ProcessStatus {
            pid: self.members.iter().find_map(|member| member.status.pid),
            restarts: self.restarts.total(),
            problem: self.problem.clone(),
            is_done: self.members.iter().all(|member| member.status.is_done),
            processes: processes.collect(),
            ..ProcessStatus::in_state(state)
        };
        self.task.status.send_if_modified(|old| {
            let is_new = *old != status;
            *old = status;
            is_new
        });
    }
}

/// Waits for news of one of the processes: which one, and its outcome if its run is over.
///
/// # Cancel safety
/// Cancel safe.
async fn news(members: &mut [Member]) -> (usize, Option<Outcome>) {
    let running = members.iter_mut().enumerate().filter_map(|(at, member)| Some((at, member.run.as_mut()?)));
    let each = running.map(|(at, running)| Box::pin(async move { (at, running.news().await) }));
    let each: Vec<_> = each.collect();
    if each.is_empty() {
        return std::future::pending().await;
    }
    select_all(each).await.0
}
