//! The task behind a [`JobRun`](super::JobRun): starts the job under a guard, probes it, restarts it,
//! ends it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use nix::unistd::Pid;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, mpsc, oneshot, watch};
use zk_session::{BootTime, sleep_until};

use super::{
    env::JobEnv,
    error::JobError,
    guarded::{ESCALATION_LAG, Guarded, Guards, Output},
    handover::{Ask, HandedRun, RunState, hold},
    machine::{Decision, End, Event, Finish, Machine},
    notify::{NOTIFY_SOCKET, NotifySocket},
    output::{self, Copying, KeptOutput},
    probe::Probe,
    restart::RestartState,
    run::WorkTime,
    status::{ProcessState, ProcessStatus, Stopped},
};
use crate::{
    capabilities::renounces_privileges,
    config::{Identity, JobSpec, ReadyProbe},
    wall,
    worker::{
        descriptors::limit_of_programs,
        guard::{
            Exit, Why, plan,
            protocol::{Launch, Report},
        },
    },
};

/// How long a guard may take to confirm a stop order, before the worker sends the stop signal instead: a guard that
/// hangs must not cost the job its stop timeout.
const CONFIRM_WITHIN: Duration = Duration::from_millis(500);

/// Jobs are started one at a time: a thread of the runtime waits until the kernel has executed the guard. If hundreds of jobs
/// are taken over at once, the heartbeats of the session need a thread too.
static STARTING: Semaphore = Semaphore::const_new(1);

/// The outcome of a run of the job.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) error: JobError,
    pub(super) stopped: Stopped,
}

pub(super) struct Supervisor {
    /// The configuration of the present run, or of the last one.
    spec: Arc<JobSpec>,
    specs: watch::Receiver<Arc<JobSpec>>,
    /// Whether the sender of configurations still exists.
    is_followed: bool,
    leadership: JobEnv,
    /// The environment of the job.
    env: BTreeMap<String, String>,
    kept: Option<KeptOutput>,
    guards: Guards,
    work_until: watch::Receiver<BootTime>,
    /// Whether the sender of renewals still exists.
    is_renewed: bool,
    suspended: watch::Receiver<bool>,
    /// Whether the sender of that still exists.
    is_suspendable: bool,
    /// Whether the processes rest.
    frozen: watch::Sender<bool>,
    stop_requests: watch::Receiver<Option<BootTime>>,
    stop: Option<Stop>,
    /// Whether the [`JobRun`](super::JobRun) was dropped.
    is_abandoned: bool,
    machine: Machine,
    /// Why the last run ended, until the next one is ready.
    problem: Option<String>,
    status: watch::Sender<ProcessStatus>,
    /// Requests to hand the job over to the next program of this process.
    asks: mpsc::Receiver<Ask<HandedRun>>,
    /// The run that the program before this one has handed over.
    adopted: Option<Adopted>,
}

/// A run of the program that is ready, from the program before this one.
pub(super) struct Adopted {
    pub(super) guarded: Guarded,
    pub(super) copying: Copying,
    pub(super) restarts: RestartState,
}

/// A requested stop.
#[derive(Clone, Copy)]
struct Stop {
    began: BootTime,
    /// The job is gone by this time. `None`: no caller waits, and the lease is the limit.
    by: Option<BootTime>,
}

/// One run of the program.
struct Run {
    ended: Ended,
    /// The main process, while it runs.
    main: Option<Pid>,
    /// Whether the guard has sent the stop signal.
    is_asked: bool,
    /// When the worker sends the stop signal itself, unless the guard has confirmed the order.
    unconfirmed: Option<BootTime>,
    /// The readiness probe, then the liveness check.
    probe: Option<Pin<Box<dyn Future<Output = Probed> + Send>>>,
    /// The stop because its liveness check failed.
    dead: Option<Stop>,
    cancel_probe: watch::Sender<bool>,
    notify: Option<Arc<NotifySocket>>,
    /// Copies its output to the log.
    copying: Option<Copying>,
}

/// The outcome of a probe.
enum Probed {
    /// The job is ready.
    Ready,
    /// The liveness check failed, and why.
    Dead(String),
    /// The probe was cancelled.
    Nothing,
}

/// How one run of the program ended, its whole tree included.
struct Ended {
    exit: Option<Exit>,
    /// When the program itself ended, or got the stop signal.
    since: BootTime,
    reason: String,
    /// Whether it was asked to end.
    was_asked: bool,
    by_deadline: bool,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            ended: Ended {
                exit: None,
                since: BootTime::now(),
                // Every other end sets its own reason.
                reason: "its guard was lost".to_owned(),
                was_asked: false,
                by_deadline: false,
            },
            main: None,
            is_asked: false,
            unconfirmed: None,
            probe: None,
            dead: None,
            cancel_probe: watch::Sender::new(false),
            notify: None,
            copying: None,
        }
    }
}

impl Run {
    fn pid(&self) -> Option<u32> {
        u32::try_from(self.main?.as_raw()).ok()
    }
}

impl Supervisor {
    pub(super) fn new(
        mut specs: watch::Receiver<Arc<JobSpec>>,
        leadership: JobEnv,
        guards: Guards,
        time: WorkTime,
        stop_requests: watch::Receiver<Option<BootTime>>,
        asks: mpsc::Receiver<Ask<HandedRun>>,
        status: watch::Sender<ProcessStatus>,
    ) -> Supervisor {
        let spec = Arc::clone(&specs.borrow_and_update());
        let machine = Machine::new(spec.restart, spec.exit_codes.clone());
        Supervisor {
            env: leadership.over(&spec.env),
            kept: guards.kept_output(),
            spec,
            specs,
            is_followed: true,
            leadership,
            guards,
            work_until: time.until,
            is_renewed: true,
            suspended: time.suspended,
            is_suspendable: true,
            frozen: watch::Sender::new(false),
            stop_requests,
            stop: None,
            is_abandoned: false,
            machine,
            problem: None,
            status,
            asks,
            adopted: None,
        }
    }

    /// Continues this run, if there is one, instead of starting the program.
    pub(super) fn adopting(mut self, adopted: Option<Adopted>) -> Supervisor {
        self.adopted = adopted;
        self
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
            let pause = async {
                match restart_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            decision = tokio::select! {
                biased;
                by = next_request(&mut self.stop_requests) => self.begin_stop(by),
                () = pause => self.tell(Event::Start),
                Some(ask) = self.asks.recv() => {
                    drop(ask.send(Err(self.no_handover())));
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
        let job = self.spec.name.as_str();
        match decision {
            Decision::RestartAt(at) => {
                let in_ms = wall::ms(at.duration_since(now));
                tracing::warn!(job, in_ms, "job ended ({reason}); restarting it");
            }
            Decision::StayDown(_) => tracing::warn!(
                job,
                "job ended ({reason}) and stays down, as job.{job}.exit_codes.stay_down says; this member leads on"
            ),
            Decision::Finish(Finish::Stopped | Finish::LeaseEnded) => return,
            _ => {}
        }
        self.problem = Some(reason.to_owned());
    }

    fn finish(&mut self, why: Finish, last: String, stopped: Stopped) -> Outcome {
        let job = self.spec.name.clone();
        let error = match why {
            Finish::Stopped => {
                let took_ms = wall::ms(stopped.took);
                tracing::info!(job, took_ms, "job stopped: no process of it is left");
                self.problem = None;
                JobError::Stopped { job }
            }
            Finish::LeaseEnded => {
                tracing::error!(job, "job ended: its lease was not renewed");
                JobError::LeaseEnded { job }
            }
            Finish::NotHere(code) => JobError::NotHere { job, code },
            Finish::RestartsExhausted => JobError::RestartsExhausted {
                job,
                last,
                restarts: self.machine.restarts(),
                max: self.spec.restart.max,
                within: self.spec.restart.within,
            },
        };
        if let Finish::NotHere(_) | Finish::RestartsExhausted = why {
            tracing::error!(job = self.spec.name, "{error}");
        }
        self.publish(None);
        Outcome { error, stopped }
    }

    /// Takes over the present configuration for the next run.
    fn renew(&mut self) {
        let spec = Arc::clone(&self.specs.borrow_and_update());
        self.machine.set_rules(spec.restart, spec.exit_codes.clone());
        self.env = self.leadership.over(&spec.env);
        self.spec = spec;
    }

    /// Takes over what can change in the present run. The guard got the rest when the program was started.
    fn adapt(&mut self, run: &mut Run) {
        let new = Arc::clone(&self.specs.borrow_and_update());
        self.machine.set_rules(new.restart, new.exit_codes.clone());
        let has_other_check = new.liveness != self.spec.liveness;
        self.spec = Arc::new(JobSpec {
            restart: new.restart,
            exit_codes: new.exit_codes.clone(),
            liveness: new.liveness.clone(),
            ..JobSpec::clone(&self.spec)
        });
        if has_other_check && self.machine.state() == ProcessState::Running {
            run.probe = None;
            self.check_liveness(run);
        }
    }

    /// Runs the program once. Returns when no process of it is left.
    async fn run_once(&mut self) -> Ended {
        if let Some(adopted) = self.adopted.take() {
            return self.run_adopted(adopted).await;
        }
        self.renew();
        self.frozen.send_replace(false);
        self.publish(None);
        let mut run = Run::default();
        let turn = tokio::select! {
            biased;
            by = next_request(&mut self.stop_requests), if !self.is_abandoned => {
                self.begin_stop(by);
                return run.ended;
            }
            turn = turn_to_start(self.suspended.clone()) => turn,
        };
        self.keep(&format!("starting in term {}", self.leadership.term));
        let guarded = match self.start(&mut run).await {
            Ok(guarded) => guarded,
            Err(reason) => {
                self.keep(&format!("not started: {reason}"));
                return Ended { reason, ..run.ended };
            }
        };
        drop(turn);
        self.see_through(guarded, run).await
    }

    /// Continues a run that is ready.
    async fn run_adopted(&mut self, adopted: Adopted) -> Ended {
        let Adopted { guarded, copying, restarts } = adopted;
        let policy = Machine::new(self.spec.restart, self.spec.exit_codes.clone());
        self.machine = policy.with_restarts(restarts);
        self.tell(Event::Start);
        self.tell(Event::Ready);
        let mut run = Run { main: guarded.main(), copying: Some(copying), ..Run::default() };
        self.publish(run.pid());
        tracing::info!(job = self.spec.name, pid = run.pid(), "job runs on under the upgraded worker");
        self.check_liveness(&mut run);
        self.see_through(guarded, run).await
    }

    /// Supervises the program to the end of its run.
    async fn see_through(&mut self, guarded: Guarded, mut run: Run) -> Ended {
        self.attend(guarded, &mut run).await;
        run.cancel_probe.send_replace(true);
        if let Some(probe) = run.probe {
            probe.await;
        }
        if let Some(copying) = run.copying {
            copying.finish().await;
        }
        self.keep(&format!("ended: {}", run.ended.reason));
        run.ended
    }

    /// Notes an event among the job's last output.
    fn keep(&self, event: &str) {
        if let Some(kept) = &self.kept {
            kept.add(&self.spec.name, None, event.as_bytes());
        }
    }

    async fn start(&mut self, run: &mut Run) -> Result<Guarded, String> {
        let run_as = self.look_up_user().await?;
        let mut launch = self.launch(run_as);
        if self.spec.ready == ReadyProbe::Notify {
            let socket =
                NotifySocket::bind().map_err(|error| format!("can't make its readiness socket: {error}"))?;
            launch.env.insert(NOTIFY_SOCKET.to_owned(), socket.address());
            run.notify = Some(Arc::new(socket));
        }
        let (stdout, copying) = output::of_job(self.specs.clone(), &self.leadership, self.kept.clone())
            .map_err(|error| format!("can't make a pipe for its output: {error}"))?;
        run.copying = Some(copying);
        // The guard inherits the worker's standard error, to which it passes on the job's output once the worker is
        // gone.
        let output = Output { stdout: Some(stdout), stderr: None };
        Guarded::start(&self.guards, &format!("job {}", self.spec.name), launch, output).await
    }

    /// The user that the program runs as, unless that is the worker's.
    async fn look_up_user(&self) -> Result<Option<Identity>, String> {
        let Some(run_as) = self.spec.run_as.clone() else { return Ok(None) };
        // A name service can be slow.
        let found = tokio::task::spawn_blocking(move || run_as.resolve()).await;
        let found = found.map_err(|error| error.to_string())?;
        let found = found.map_err(|(key, reason)| format!("{key}: {reason}"))?;
        Ok((!found.is_own()).then_some(found))
    }

    /// Supervises a guarded program until no process of it is left.
    async fn attend(&mut self, mut guarded: Guarded, run: &mut Run) {
        if *self.suspended.borrow_and_update() {
            guarded.suspend(true);
        }
        loop {
            let destroy_at = self.kill_at(run.dead) + ESCALATION_LAG;
            let probed = async {
                match &mut run.probe {
                    Some(probe) => probe.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                report = guarded.next() => match report {
                    Report::Gone => return,
                    other => self.handle(other, run),
                },
                by = next_request(&mut self.stop_requests), if !self.is_abandoned => {
                    self.begin_stop(by);
                    self.order_end(by, &mut guarded, run);
                }
                renewed = self.work_until.changed(), if self.is_renewed => match renewed {
                    Ok(()) => guarded.until(*self.work_until.borrow_and_update()),
                    Err(_) => self.is_renewed = false,
                },
                changed = self.specs.changed(), if self.is_followed => match changed {
                    Ok(()) => self.adapt(run),
                    Err(_) => self.is_followed = false,
                },
                changed = self.suspended.changed(), if self.is_suspendable => match changed {
                    Ok(()) => guarded.suspend(*self.suspended.borrow_and_update()),
                    Err(_) => self.is_suspendable = false,
                },
                () = sleep_until(destroy_at) => {
                    tracing::error!(
                        job = self.spec.name,
                        "the guard has not ended the job in time; killing it and its guard"
                    );
                    guarded.destroy().await;
                }
                () = sleep_until(run.unconfirmed.unwrap_or(destroy_at)), if run.unconfirmed.is_some() => {
                    run.unconfirmed = None;
                    tracing::warn!(
                        job = self.spec.name,
                        "the guard does not answer; the worker sends the stop signal itself"
                    );
                    guarded.signal_directly(self.spec.stop_signal);
                }
                probed = probed => {
                    run.probe = None;
                    // During a stop the result of a probe does not count.
                    if run.main.is_some() && !run.is_asked && self.stop.is_none() {
                        self.probed(probed, &mut guarded, run);
                    }
                }
                Some(ask) = self.asks.recv() => self.hand_over(ask, &guarded, run).await,
            }
        }
    }

    /// Answers, and waits for the next program.
    async fn hand_over(&self, ask: Ask<HandedRun>, guarded: &Guarded, run: &mut Run) {
        let is_at_rest = self.machine.state() == ProcessState::Running
            && !run.is_asked
            && run.dead.is_none()
            && self.stop.is_none()
            && !*self.frozen.borrow();
        let (held, released) = oneshot::channel();
        let handed = async {
            let copying = run.copying.as_ref().filter(|_| is_at_rest).ok_or_else(|| self.no_handover())?;
            let output = copying.hand_over().await?;
            let (guard, socket) = guarded.hand_over()?;
            let state = RunState { guard, restarts: self.machine.restart_state(), output: output.state };
            Ok(HandedRun { state, socket, output: output.pipe, held: [held, output.held] })
        };
        if ask.send(handed.await).is_ok() {
            hold(released).await;
        }
    }

    fn no_handover(&self) -> String {
        format!("its process is {}", self.machine.state().as_str())
    }

    fn probed(&mut self, probed: Probed, guarded: &mut Guarded, run: &mut Run) {
        match probed {
            Probed::Nothing => {}
            Probed::Ready => {
                tracing::info!(job = self.spec.name, pid = run.pid(), "job is ready");
                self.problem = None;
                self.tell(Event::Ready);
                self.publish(run.pid());
                self.check_liveness(run);
            }
            Probed::Dead(reason) => {
                tracing::error!(
                    job = self.spec.name,
                    pid = run.pid(),
                    "job runs but does not serve; ending it: liveness: {reason}"
                );
                counter!("dr_liveness_failures_total", "job" => self.spec.name.clone()).increment(1);
                run.ended.reason = format!("liveness: {reason}");
                self.problem = Some(run.ended.reason.clone());
                let began = BootTime::now();
                let by = (began + self.spec.stop_budget()).min(*self.work_until.borrow());
                run.dead = Some(Stop { began, by: Some(by) });
                self.order_end(Some(by), guarded, run);
            }
        }
    }

    /// Begins the liveness check, if the job has one.
    fn check_liveness(&self, run: &mut Run) {
        let Some(main) = run.main.filter(|_| self.spec.liveness.is_some()) else { return };
        let probe = self.probe(main, run);
        run.probe = Some(Box::pin(async { probe.failed().await.map_or(Probed::Nothing, Probed::Dead) }));
    }

    /// Orders the guard to stop the program, gone `by`, or else by the end of the lease.
    fn order_end(&mut self, by: Option<BootTime>, guarded: &mut Guarded, run: &mut Run) {
        run.cancel_probe.send_replace(true);
        if !run.is_asked && !self.spec.stop_timeout.is_zero() {
            let within = CONFIRM_WITHIN.min(self.spec.stop_timeout / 2);
            run.unconfirmed.get_or_insert(BootTime::now() + within);
        }
        self.tell(Event::Ending);
        self.publish(run.pid());
        guarded.stop(by.unwrap_or_else(|| *self.work_until.borrow()));
    }

    fn handle(&mut self, report: Report, run: &mut Run) {
        match report {
            Report::Started { pid } => {
                let main = Pid::from_raw(pid);
                run.main = Some(main);
                tracing::info!(job = self.spec.name, pid, "job started");
                if self.stop.is_none() {
                    self.publish(run.pid());
                    let probe = self.probe(main, run);
                    run.probe = Some(Box::pin(async {
                        if probe.passed().await { Probed::Ready } else { Probed::Nothing }
                    }));
                }
            }
            Report::Failed { error } => run.ended.reason = error,
            Report::Frozen => {
                tracing::warn!(
                    job = self.spec.name,
                    pid = run.pid(),
                    "all processes of the job are stopped until ZooKeeper confirms the leadership"
                );
                self.set_frozen(true, run);
            }
            Report::Thawed => {
                tracing::info!(job = self.spec.name, pid = run.pid(), "the job continues");
                self.set_frozen(false, run);
            }
            Report::Stopping(why) => {
                let signal = self.spec.stop_signal;
                tracing::info!(job = self.spec.name, pid = run.pid(), "sent {signal} to the job: {why}");
                run.is_asked = true;
                run.unconfirmed = None;
                run.cancel_probe.send_replace(true);
                run.ended.by_deadline |= why == Why::Deadline;
                if why != Why::Exited {
                    run.ended.since = BootTime::now();
                    run.ended.was_asked = true;
                }
                self.tell(Event::Ending);
                self.publish(run.pid());
            }
            Report::Expired => {
                let why = Why::Deadline;
                tracing::warn!(job = self.spec.name, pid = run.pid(), "killed the job: {why}");
                run.ended.by_deadline = true;
            }
            Report::Exited(exit) => {
                run.main = None;
                run.cancel_probe.send_replace(true);
                if !run.is_asked {
                    run.ended.since = BootTime::now();
                }
                if run.dead.is_none() {
                    run.ended.reason = exit.to_string();
                }
                run.ended.exit = Some(exit);
                run.ended.was_asked |= run.dead.is_some();
                self.tell(Event::Ending);
                self.publish(None);
            }
            Report::Lingering(lingering) => tracing::error!(
                job = self.spec.name,
                "the job has not ended: {lingering}; leadership is kept"
            ),
            Report::Gone => {}
        }
    }

    fn set_frozen(&mut self, frozen: bool, run: &Run) {
        self.frozen.send_replace(frozen);
        self.publish(run.pid());
    }

    /// Records that the job is to stop, or that its [`JobRun`](super::JobRun) was dropped. The earliest end counts.
    fn begin_stop(&mut self, by: Option<BootTime>) -> Decision {
        self.is_abandoned |= by.is_none();
        let earlier = self.stop.and_then(|stop| stop.by);
        self.stop = Some(Stop {
            began: self.stop.map_or_else(BootTime::now, |stop| stop.began),
            by: match (earlier, by) {
                (Some(earlier), Some(by)) => Some(earlier.min(by)),
                (earlier, by) => earlier.or(by),
            },
        });
        self.tell(Event::Stop)
    }

    fn launch(&mut self, run_as: Option<Identity>) -> Launch {
        let mut env = self.env.clone();
        if let Some((name, home)) = run_as.as_ref().and_then(|user| user.account.clone()) {
            // As a login sets them, and systemd's `User=`.
            for (variable, value) in [("USER", &name), ("LOGNAME", &name), ("HOME", &home)] {
                env.entry(variable.to_owned()).or_insert_with(|| value.clone());
            }
        }
        Launch {
            command: self.spec.command.clone(),
            env,
            working_dir: self.spec.working_dir.clone(),
            stop_signal: self.spec.stop_signal,
            stop_timeout_ms: u64::try_from(self.spec.stop_timeout.as_millis()).unwrap_or(u64::MAX),
            freezes: self.spec.freezes,
            until: (*self.work_until.borrow_and_update()).into(),
            cgroup: self.guards.cgroup_of(&self.spec.name),
            record: None,
            lock_from: None,
            relays_output: true,
            open_files: limit_of_programs(),
            no_new_privileges: renounces_privileges(self.spec.no_new_privileges),
            run_as,
            limits: self.spec.limits,
        }
    }

    fn probe(&self, main: Pid, run: &Run) -> Probe {
        Probe {
            spec: Arc::clone(&self.spec),
            env: self.env.clone(),
            guards: self.guards.clone(),
            work_until: self.work_until.clone(),
            main,
            notify: run.notify.clone(),
            frozen: self.frozen.subscribe(),
            cancel: run.cancel_probe.subscribe(),
        }
    }

    /// When the guard sends SIGKILL at the latest; `dead` is the stop of this run.
    fn kill_at(&self, dead: Option<Stop>) -> BootTime {
        let ends = [self.stop, dead].into_iter().flatten();
        latest_kill(*self.work_until.borrow(), ends, self.spec.stop_timeout)
    }

    fn lease_leaves_no_time(&self, now: BootTime) -> bool {
        now >= plan::last_stop(*self.work_until.borrow(), self.spec.stop_timeout)
    }

    fn publish(&self, pid: Option<u32>) {
        let state = match self.machine.state() {
            ProcessState::Starting | ProcessState::Running if *self.frozen.borrow() => ProcessState::Frozen,
            state => state,
        };
        let restarts = self.machine.restarts();
        let status = ProcessStatus { state, pid, restarts, problem: self.problem.clone() };
        self.status.send_if_modified(|old| {
            let is_new = *old != status;
            *old = status;
            is_new
        });
    }
}

/// When a working guard has sent SIGKILL at the latest: for the end of the lease, or for any of the stops.
fn latest_kill(
    work_until: BootTime,
    stops: impl IntoIterator<Item = Stop>,
    stop_timeout: Duration,
) -> BootTime {
    let of_stops = stops.into_iter().map(|stop| plan::kill_at(stop.began, stop_timeout, stop.by));
    of_stops.fold(plan::last_kill(work_until), BootTime::min)
}

/// Waits until a job may be started: not while it would have to rest, and one at a time.
async fn turn_to_start(
    mut suspended: watch::Receiver<bool>,
) -> Result<SemaphorePermit<'static>, AcquireError> {
    if suspended.wait_for(|suspended| !suspended).await.is_err() {
        // The leadership is over, and the order to stop follows.
        std::future::pending::<()>().await;
    }
    STARTING.acquire().await
}

/// The next request to stop: by when, or `None` if the [`JobRun`](super::JobRun) was dropped.
///
/// # Cancel safety
/// Cancel safe.
async fn next_request(wishes: &mut watch::Receiver<Option<BootTime>>) -> Option<BootTime> {
    loop {
        if wishes.changed().await.is_err() {
            return None;
        }
        if let Some(by) = *wishes.borrow_and_update() {
            return Some(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    #[test]
    fn the_worker_expects_the_kill_when_the_guard_plans_it() {
        let kill = |stops: &[(u64, Option<u64>)]| {
            let stops = stops.iter().map(|(began, by)| Stop { began: at(*began), by: by.map(at) });
            latest_kill(at(10_000), stops, Duration::from_secs(1))
        };
        assert_eq!(kill(&[]), at(9_700));
        assert_eq!(kill(&[(2_000, None)]), at(3_000));
        assert_eq!(kill(&[(2_000, Some(2_700))]), at(2_400));
        assert_eq!(kill(&[(9_500, Some(60_000))]), at(9_700));
        assert_eq!(kill(&[(2_500, None), (2_000, Some(3_300))]), at(3_000), "the earliest of several");
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_other_jobs_to_be_started() {
        let _other = STARTING.acquire().await;
        let (_renewed, work_until) = watch::channel(BootTime::now() + Duration::from_secs(60));
        let (stop, stop_requests) = watch::channel(None);
        let starting = ProcessStatus { state: ProcessState::Starting, pid: None, restarts: 0, problem: None };
        let (status, _) = watch::channel(starting);
        let (_, specs) = watch::channel(Arc::new(JobSpec::example()));
        let (_asks, asked) = mpsc::channel(1);
        let (env, guards) = (JobEnv::default(), Guards::new());
        let supervisor = Supervisor::new(specs, env, guards, work_until.into(), stop_requests, asked, status);
        let supervised = tokio::spawn(supervisor.supervise());
        stop.send_replace(Some(BootTime::now() + Duration::from_secs(30)));
        let outcome = tokio::time::timeout(Duration::from_secs(20), supervised).await;
        assert!(matches!(outcome, Ok(Ok(Outcome { error: JobError::Stopped { .. }, .. }))), "{outcome:?}");
    }
}
