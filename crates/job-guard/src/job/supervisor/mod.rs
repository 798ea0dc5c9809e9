//! The task behind a [`JobRun`](super::JobRun): runs the program, restarts it, ends it.
//!
//! ```text
//!   stop requests ─┐
//!   ends of runs ──┴─▶ Supervisor ── events ──▶ Machine
//!                          ▲   ◀── decisions ──────┘
//!                          │ run, or wait, or finish
//!                       one_run: the program under its guard
//! ```

mod one_run;

use std::sync::Arc;
use std::time::Duration;
use std::{io, os::fd::OwnedFd};

use boot_time::{BootTime, sleep_until};
use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, watch};

use super::{
    guarded::Guarded,
    guards::Guards,
    handover::{Ask, HandedRun, ProgramState, RunState},
    lease::WorkTime,
    machine::{Decision, End, Event, Finish, Machine},
    notify::NotifySocket,
    output::{self, Copying, KeptOutput},
    restart::RestartHistory,
    run_end::RunEnd,
    status::{ProcessState, ProcessStatus, Stopped},
};
use crate::{
    config::{Job, StopSignal},
    guard::plan,
};

/// The outcome of a run of the job.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) end: RunEnd,
    pub(super) stopped: Stopped,
}

pub(super) struct Supervisor {
    /// The description of the present run, or of the last one.
    job: Arc<Job>,
    task: RunTask,
    kept: Option<KeptOutput>,
    guards: Guards,
    /// Whether the processes rest.
    frozen: watch::Sender<bool>,
    stop: Option<Stop>,
    /// Whether the [`JobRun`](super::JobRun) was dropped.
    is_abandoned: bool,
    machine: Machine,
    /// Why the last run ended, until the next one is ready.
    problem: Option<String>,
    /// It has ended with code 0, and stays down.
    is_done: bool,
    /// The run that the program before this one has handed over.
    adopted: Option<Adopted>,
    /// It is one of several processes of a job, which is told how it ends.
    is_process: bool,
}

/// A run of the program, from the program before this one or from an earlier process.
struct Adopted {
    guarded: Guarded,
    copying: Copying,
    restarts: RestartHistory,
    notify: Option<NotifySocket>,
    /// Whether it is to be probed.
    is_starting: bool,
}

/// What the task behind a run gets.
pub(super) struct RunTask {
    pub(super) jobs: watch::Receiver<Arc<Job>>,
    pub(super) time: WorkTime,
    pub(super) stop_requests: watch::Receiver<Option<StopRequest>>,
    /// Requests about the program that runs.
    pub(super) asks: mpsc::Receiver<RunAsk>,
    pub(super) status: watch::Sender<ProcessStatus>,
}

/// A request about the program that runs.
pub(super) enum RunAsk {
    /// Hand it over to the next program of this process.
    HandOver(Ask<HandedRun>),
    /// It is about to change its role: this description and this time count from now on.
    Arm(Box<(Job, WorkTime)>, Ask<()>),
    /// What it has said of its readiness does not count any more.
    ForgetReady(Ask<()>),
    /// It has changed its role, and is to be probed.
    Probe,
    /// Send it this signal.
    Signal(StopSignal),
}

impl RunAsk {
    /// Answers that it is not possible now.
    pub(super) fn refuse(self, why: String) {
        match self {
            RunAsk::HandOver(ask) => drop(ask.send(Err(why))),
            RunAsk::Arm(_, ask) | RunAsk::ForgetReady(ask) => drop(ask.send(Err(why))),
            RunAsk::Probe | RunAsk::Signal(_) => {}
        }
    }
}

/// How a job is to be stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopRequest {
    /// The time between the stop signal and SIGKILL; `None`: the stop timeout.
    pub(super) given: Option<Duration>,
    /// The job is gone by this time. `None`: the lease is the limit.
    pub(super) by: Option<BootTime>,
}

impl StopRequest {
    /// Both: the earliest end counts.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            given: self.given.zip(other.given).map(|(one, other)| one.min(other)),
            by: [self.by, other.by].into_iter().flatten().min(),
        }
    }
}

/// A stop that has begun.
#[derive(Clone, Copy)]
pub(super) struct Stop {
    pub(super) began: BootTime,
    /// When SIGKILL is sent at the latest, unless the lease ends before.
    pub(super) kill_at: BootTime,
}

impl Stop {
    pub(super) fn new(began: BootTime, request: StopRequest, stop_timeout: Duration) -> Self {
        Self { began, kill_at: plan::kill_at(began, request.given.unwrap_or(stop_timeout), request.by) }
    }

    /// Both: it began with the earlier one, and the earliest end counts.
    pub(super) fn and(self, earlier: Option<Self>) -> Self {
        earlier.map_or(self, |earlier| Self { kill_at: earlier.kill_at.min(self.kill_at), ..earlier })
    }
}

impl Supervisor {
    pub(super) fn new(mut task: RunTask, guards: Guards) -> Supervisor {
        let job = Arc::clone(&task.jobs.borrow_and_update());
        let machine = Machine::new(job.restart, job.exit_codes.clone());
        Supervisor {
            kept: KeptOutput::of_guards(&guards),
            job,
            task,
            guards,
            frozen: watch::Sender::new(false),
            stop: None,
            is_abandoned: false,
            machine,
            problem: None,
            is_done: false,
            adopted: None,
            is_process: false,
        }
    }

    /// Continues this run, instead of starting the program.
    ///
    /// # Errors
    /// If the descriptors can't be used, or are not those of one program.
    pub(super) fn adopt(
        task: RunTask,
        guards: Guards,
        RunState { program, restarts, is_starting, .. }: RunState,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<Supervisor> {
        let others =
            || io::Error::other("the run is not that of a single program, or these are not its descriptors");
        let program = program.filter(|program| program.descriptors() == descriptors.len());
        let ProgramState { guard, output, notify } = program.ok_or_else(others)?;
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(others);
        let (socket, pipe) = (next()?, next()?);
        let notify = notify.map(|name| NotifySocket::adopt(next()?, name)).transpose()?;
        let guarded = Guarded::adopt(&guards, guard, socket)?;
        let copying = output::adopt(task.jobs.clone(), &guards, output, pipe)?;
        let adopted = Some(Adopted { guarded, copying, restarts, notify, is_starting });
        Ok(Supervisor { adopted, ..Supervisor::new(task, guards) })
    }

    /// For one of several processes of a job.
    pub(super) fn in_group(self) -> Supervisor {
        Supervisor { is_process: true, ..self }
    }

    /// Runs the job until it is stopped or has failed. No process of it is left then.
    pub(super) async fn supervise(mut self) -> Outcome {
        let mut decision = self.tell(Event::Start);
        let mut stopped = Stopped { exit: None, took: Duration::ZERO };
        let mut reason = String::new();
        loop {
            let restart_at = match decision {
                Decision::Run => {
                    let ended = self.run_once().await;
                    let now = BootTime::now();
                    stopped = Stopped {
                        exit: ended.exit,
                        took: now.duration_since(self.stop.map_or(ended.since, |stop| stop.began)),
                    };
                    let is_lease_over = ended.by_deadline || self.lease_leaves_no_time(now);
                    let by_itself = ended.exit.filter(|_| !ended.was_asked);
                    reason = ended.reason;
                    decision = self.machine.on(Event::Gone(End { by_itself, is_lease_over }), now);
                    self.report(decision, &reason, now);
                    continue;
                }
                Decision::RestartAt(at) => Some(at),
                Decision::StayDown(_) | Decision::Continue => None,
                Decision::Finish(why) => return self.finish(why, reason, stopped),
            };
            self.publish(None);
            decision = tokio::select! {
                biased;
                request = next_request(&mut self.task.stop_requests) => self.begin_stop(request).1,
                Some(()) = OptionFuture::from(restart_at.map(sleep_until)) => self.tell(Event::Start),
                Some(ask) = self.task.asks.recv() => {
                    ask.refuse(self.no_handover());
                    continue;
                }
            };
        }
    }

    fn tell(&mut self, event: Event) -> Decision {
        self.machine.on(event, BootTime::now())
    }

    /// Reports why the program is not running any more, and what follows.
    fn report(&mut self, decision: Decision, reason: &str, now: BootTime) {
        let job = self.job.name.as_str();
        self.is_done = decision == Decision::StayDown(0);
        match decision {
            Decision::RestartAt(at) => {
                let in_ms = millis(at.duration_since(now));
                tracing::warn!(job, in_ms, "job ended ({reason}); restarting it");
            }
            Decision::StayDown(_) => {
                tracing::warn!(job, "job ended ({reason}) and stays down (exit_codes.stay_down)")
            }
            Decision::Finish(Finish::Stopped | Finish::LeaseEnded) => return,
            _ => {}
        }
        self.problem = Some(reason.to_owned());
    }

    fn finish(&mut self, why: Finish, last: String, stopped: Stopped) -> Outcome {
        let job = self.job.name.clone();
        let end = match why {
            Finish::Stopped => {
                let took_ms = millis(stopped.took);
                tracing::info!(job, took_ms, "job stopped: all its processes have ended");
                self.problem = None;
                RunEnd::Stopped { job }
            }
            Finish::LeaseEnded => {
                tracing::error!(job, "job ended: its lease was not renewed");
                RunEnd::LeaseEnded { job }
            }
            Finish::NotHere(code) => RunEnd::NotHere { job, code },
            Finish::RoleNotTaken => RunEnd::RoleNotTaken { job, last },
            Finish::RestartsExhausted => RunEnd::RestartsExhausted {
                job,
                last,
                restarts: self.machine.restarts(),
                max: self.job.restart.max,
                within: self.job.restart.within,
            },
        };
        if let Finish::NotHere(_) | Finish::RoleNotTaken | Finish::RestartsExhausted = why
            && !self.is_process
        {
            tracing::error!(job = self.job.name, "{end}");
        }
        self.publish(None);
        Outcome { end, stopped }
    }

    /// Takes over the present description for the next run.
    fn renew(&mut self) {
        let job = Arc::clone(&self.task.jobs.borrow_and_update());
        self.machine.set_rules(job.restart, job.exit_codes.clone());
        self.job = job;
    }

    /// Notes an event among the job's last output.
    fn keep(&self, event: &str) {
        if let Some(kept) = &self.kept {
            kept.add(&self.job.name, None, event.as_bytes());
        }
    }

    /// Records that the job is to stop, or that its [`JobRun`](super::JobRun) was dropped. The earliest end counts.
    fn begin_stop(&mut self, request: Option<StopRequest>) -> (Stop, Decision) {
        self.is_abandoned |= request.is_none();
        let new = Stop::new(BootTime::now(), request.unwrap_or_default(), self.job.stop_timeout);
        let stop = new.and(self.stop);
        self.stop = Some(stop);
        (stop, self.tell(Event::Stop))
    }

    fn no_handover(&self) -> String {
        format!("its process is {}", self.machine.state().as_str())
    }

    fn lease_leaves_no_time(&self, now: BootTime) -> bool {
        now >= plan::last_stop(*self.task.time.until.borrow(), self.job.stop_timeout)
    }

    fn publish(&self, pid: Option<u32>) {
        let state = match self.machine.state() {
            ProcessState::Starting | ProcessState::Running if *self.frozen.borrow() => ProcessState::Frozen,
            state => state,
        };
        let restarts = self.machine.restarts();
        let status = ProcessStatus {
            pid,
            restarts,
            problem: self.problem.clone(),
            is_done: self.is_done,
            ..ProcessStatus::in_state(state)
        };
        self.task.status.send_if_modified(|old| {
            let is_new = *old != status;
            *old = status;
            is_new
        });
    }
}

/// A duration in milliseconds: a number in the log, which has no type for `u128`.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The next request to stop, or `None` if the [`JobRun`](super::JobRun) was dropped.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn next_request(requests: &mut watch::Receiver<Option<StopRequest>>) -> Option<StopRequest> {
    loop {
        if requests.changed().await.is_err() {
            return None;
        }
        if let Some(request) = *requests.borrow_and_update() {
            return Some(request);
        }
    }
}
