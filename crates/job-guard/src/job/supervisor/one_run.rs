//! One run of the program, from its start under a guard until no process of it is left.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use futures_util::future::OptionFuture;
use nix::unistd::Pid;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, oneshot, watch};

use super::{Adopted, RunAsk, Stop, StopRequest, Supervisor, next_request};
use crate::{
    config::{Identity, Job, ReadyProbe, RunAs},
    guard::{
        plan,
        protocol::{Exit, Launch, Report, Terms, Why},
    },
    job::{
        guarded::{ESCALATION_LAG, Guarded, Output},
        handover::{Ask, HandedRun, ProgramState, RunState, hold},
        lease::WorkTime,
        machine::{Event, Machine},
        notify::{NOTIFY_SOCKET, NotifySocket},
        output::{self, Copying},
        probe::Probe,
        status::ProcessState,
    },
};

/// How long a guard may take to confirm a stop order, before the worker sends the stop signal instead: a guard that
/// hangs must not cost the job its stop timeout.
const CONFIRM_WITHIN: Duration = Duration::from_millis(500);

/// What explains most ends with code 0: the worker ends what a program has left behind in the background.
const IN_FOREGROUND: &str = ", without a stop request; if the program goes into the background, configure \
                             it to stay in the foreground";

/// Jobs are started one at a time: a thread of the runtime waits until the kernel has executed the guard. If hundreds of jobs
/// are taken over at once, the heartbeats of the session need a thread too.
static STARTING: Semaphore = Semaphore::const_new(1);

/// One run of the program.
#[derive(Default)]
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
    /// Whether the kernel has ended a process just before the program ended.
    is_out_of_memory: bool,
    cancel_probe: watch::Sender<bool>,
    /// Its readiness socket. It is read as long as the main process runs: one that reports its state all the time must not block.
    notify: Option<NotifySocket>,
    /// Whether it has sent `READY=1` in its present role.
    says_ready: watch::Sender<bool>,
    /// Copies its output to the log.
    copying: Option<Copying>,
    /// Who waits until the guard has confirmed new terms.
    arming: Option<Ask<()>>,
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
pub(super) struct Ended {
    pub(super) exit: Option<Exit>,
    /// When the program itself ended, or got the stop signal.
    pub(super) since: BootTime,
    pub(super) reason: String,
    /// Whether it was asked to end.
    pub(super) was_asked: bool,
    pub(super) by_deadline: bool,
}

impl Default for Ended {
    fn default() -> Self {
        Ended {
            exit: None,
            since: BootTime::now(),
            // Every other end sets its own reason.
            reason: "its guard was lost".to_owned(),
            was_asked: false,
            by_deadline: false,
        }
    }
}

impl Run {
    fn pid(&self) -> Option<u32> {
        u32::try_from(self.main?.as_raw()).ok()
    }
}

impl Supervisor {
    /// Runs the program once. Returns when no process of it is left.
    pub(super) async fn run_once(&mut self) -> Ended {
        if let Some(adopted) = self.adopted.take() {
            return self.run_adopted(adopted).await;
        }
        self.renew();
        self.frozen.send_replace(false);
        self.publish(None);
        let mut run = Run::default();
        // In a pause one that freezes would rest until the end of its lease, as its leader does.
        let stop_timeout = if self.job.freezes { Duration::ZERO } else { self.job.stop_timeout };
        let before = before_start(self.job.run_as.clone(), self.task.time.suspended.clone());
        let may_start = tokio::select! {
            biased;
            request = next_request(&mut self.task.stop_requests), if !self.is_abandoned => {
                self.begin_stop(request);
                return run.ended;
            }
            may_start = before => may_start,
            () = lease_is_over(self.task.time.until.clone(), stop_timeout) => {
                let reason = Why::Deadline.to_string();
                return Ended { reason, by_deadline: true, ..run.ended };
            }
        };
        self.keep(&self.guards.reporter.start_note());
        let started = match may_start {
            Ok((run_as, _turn)) => self.start(run_as, &mut run).await,
            Err(reason) => Err(reason),
        };
        match started {
            Ok(guarded) => self.see_through(guarded, run).await,
            Err(reason) => {
                self.keep(&format!("not started: {reason}"));
                Ended { reason, ..run.ended }
            }
        }
    }

    /// Continues a run whose program runs.
    async fn run_adopted(&mut self, adopted: Adopted) -> Ended {
        let Adopted { guarded, copying, restarts, notify, is_starting } = adopted;
        let policy = Machine::new(self.job.restart, self.job.exit_codes.clone());
        self.machine = policy.with_restarts(restarts);
        self.tell(Event::Start);
        let mut run = Run { main: guarded.main(), copying: Some(copying), notify, ..Run::default() };
        if is_starting {
            tracing::info!(job = self.job.name, pid = run.pid(), "job outlived the previous worker");
            self.probe_again(&mut run);
        } else {
            self.tell(Event::Ready);
            tracing::info!(
                job = self.job.name,
                pid = run.pid(),
                "job keeps running under the worker's new program"
            );
            self.check_liveness(&mut run);
        }
        self.publish(run.pid());
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

    async fn start(&mut self, run_as: Option<Identity>, run: &mut Run) -> Result<Guarded, String> {
        let mut launch = self.launch(run_as);
        if self.job.ready == ReadyProbe::Notify || self.job.notifies {
            let socket =
                NotifySocket::bind().map_err(|error| format!("can't make its readiness socket: {error}"))?;
            launch.env.insert(NOTIFY_SOCKET.to_owned(), socket.address());
            run.notify = Some(socket);
        }
        let (stdout, copying) = output::of_job(self.task.jobs.clone(), &self.guards)
            .map_err(|error| format!("can't make a pipe for its output: {error}"))?;
        run.copying = Some(copying);
        // The guard inherits the worker's standard error, to which it passes on the job's output once the worker is
        // gone.
        let output = Output { stdout: Some(stdout), stderr: None };
        Guarded::start(&self.guards, &format!("job {}", self.job.name), launch, output).await
    }

    fn launch(&mut self, run_as: Option<Identity>) -> Launch {
        let job = &*self.job;
        let until = *self.task.time.until.borrow_and_update();
        Launch {
            working_dir: job.working_dir.clone(),
            stop_signal: job.stop_signal,
            stop_timeout_ms: u64::try_from(job.stop_timeout.as_millis()).unwrap_or(u64::MAX),
            freezes: job.freezes,
            outlives: job.outlives.then(|| job.name.clone()),
            cgroup: self.guards.cgroup_of(&job.name),
            relays_output: true,
            limits: job.limits,
            ..self.guards.launch(&job.command, &job.env, run_as, job.no_new_privileges, until)
        }
    }

    /// Supervises a guarded program until no process of it is left.
    async fn attend(&mut self, mut guarded: Guarded, run: &mut Run) {
        if *self.task.time.suspended.borrow_and_update() {
            guarded.suspend(true);
        }
        let (mut kill_at, mut ordered_at) = (self.kill_at(run.dead), BootTime::now());
        loop {
            let before = mem::replace(&mut kill_at, self.kill_at(run.dead));
            if kill_at < before {
                // The guard learns it only now, and the time may have passed.
                ordered_at = BootTime::now();
            }
            let destroy_at = kill_at.max(ordered_at) + ESCALATION_LAG;
            let says_ready = run.notify.as_ref().zip(run.main).map(|(notify, main)| notify.ready(main));
            let time = &mut self.task.time;
            tokio::select! {
                biased;
                report = guarded.next() => match report {
                    Report::Gone => return,
                    other => self.handle(other, run),
                },
                request = next_request(&mut self.task.stop_requests), if !self.is_abandoned => {
                    let (stop, _) = self.begin_stop(request);
                    self.order_end(stop, &mut guarded, run);
                }
                // Without its sender none of them changes.
                Ok(()) = time.until.changed() => guarded.until(*self.task.time.until.borrow_and_update()),
                Ok(()) = self.task.jobs.changed() => self.adapt(run),
                Ok(()) = time.suspended.changed() => {
                    guarded.suspend(*self.task.time.suspended.borrow_and_update());
                }
                () = sleep_until(destroy_at) => {
                    tracing::error!(
                        job = self.job.name,
                        "the guard has not ended the job in time; killing the job and its guard"
                    );
                    guarded.destroy().await;
                }
                () = sleep_until(run.unconfirmed.unwrap_or(destroy_at)), if run.unconfirmed.is_some() => {
                    run.unconfirmed = None;
                    tracing::warn!(
                        job = self.job.name,
                        "the guard does not answer; the worker sends the stop signal itself"
                    );
                    guarded.signal_directly(self.job.stop_signal);
                }
                Some(probed) = OptionFuture::from(run.probe.as_mut()) => {
                    run.probe = None;
                    // During a stop the result of a probe does not count.
                    if run.main.is_some() && !run.is_asked && self.stop.is_none() {
                        self.probed(probed, &mut guarded, run);
                    }
                }
                Some(ask) = self.task.asks.recv() => match ask {
                    RunAsk::HandOver(ask) => self.hand_over(ask, &guarded, run).await,
                    RunAsk::Arm(terms, ask) => self.arm(*terms, ask, &mut guarded, run),
                    RunAsk::ForgetReady(ask) => {
                        run.notify.as_ref().inspect(|notify| notify.discard());
                        run.says_ready.send_replace(false);
                        let _ = ask.send(Ok(()));
                    }
                    RunAsk::Probe => self.probe_again(run),
                    RunAsk::Signal(signal) => guarded.signal(signal),
                },
                // The last one: a program that sends all the time holds up nothing.
                Some(()) = OptionFuture::from(says_ready) => drop(run.says_ready.send_replace(true)),
            }
        }
    }

    /// Gives the program that runs the terms of another role. From then on it is ended by them, whatever happens.
    fn arm(&mut self, (job, time): (Job, WorkTime), ask: Ask<()>, guarded: &mut Guarded, run: &mut Run) {
        let runs = matches!(self.machine.state(), ProcessState::Starting | ProcessState::Running)
            && run.main.is_some()
            && !run.is_asked
            && run.dead.is_none()
            && self.stop.is_none();
        let terms = Terms {
            stop_signal: job.stop_signal,
            stop_timeout_ms: u64::try_from(job.stop_timeout.as_millis()).unwrap_or(u64::MAX),
            freezes: job.freezes,
            until: (*time.until.borrow()).into(),
        };
        if job.ready == ReadyProbe::Notify && run.notify.is_none() {
            let _ = ask.send(Err("it was started without a readiness socket".to_owned()));
            return;
        }
        if !runs || !guarded.arm(terms) {
            let _ = ask.send(Err(self.no_handover()));
            return;
        }
        run.probe = None;
        run.arming = Some(ask);
        self.job = Arc::new(job);
        self.task.time = time;
        // What the guard does not know yet is sent by the loop.
        self.task.time.until.mark_changed();
        self.task.time.suspended.mark_changed();
        self.tell(Event::RoleChanges);
        self.publish(run.pid());
    }

    /// Probes the program until it is ready.
    fn probe_again(&self, run: &mut Run) {
        if run.main.is_none() || self.machine.state() != ProcessState::Starting {
            return;
        }
        let probe = self.probe(run);
        run.probe =
            Some(Box::pin(async { if probe.passed().await { Probed::Ready } else { Probed::Nothing } }));
    }

    /// Takes over what can change in the present run. The guard got the rest when the program was started.
    fn adapt(&mut self, run: &mut Run) {
        let new = Arc::clone(&self.task.jobs.borrow_and_update());
        self.machine.set_rules(new.restart, new.exit_codes.clone());
        let has_other_check = new.liveness != self.job.liveness;
        self.job = Arc::new(Job {
            restart: new.restart,
            exit_codes: new.exit_codes.clone(),
            liveness: new.liveness.clone(),
            liveness_as: new.liveness_as.clone(),
            ..Job::clone(&self.job)
        });
        if has_other_check && self.machine.state() == ProcessState::Running {
            run.probe = None;
            self.check_liveness(run);
        }
    }

    fn handle(&mut self, report: Report, run: &mut Run) {
        match report {
            Report::Started { pid } => {
                let main = Pid::from_raw(pid);
                run.main = Some(main);
                tracing::info!(job = self.job.name, pid, "job started");
                if self.stop.is_none() {
                    self.publish(run.pid());
                    self.probe_again(run);
                }
            }
            Report::Armed => {
                if let Some(ask) = run.arming.take() {
                    // Its caller may not wait any more, and ends the job then.
                    let _ = ask.send(Ok(()));
                }
            }
            Report::Failed { error } => run.ended.reason = error,
            Report::Frozen => {
                tracing::warn!(
                    job = self.job.name,
                    pid = run.pid(),
                    "all processes of the job are frozen until its deadline is extended"
                );
                self.set_frozen(true, run);
            }
            Report::Thawed => {
                tracing::info!(job = self.job.name, pid = run.pid(), "the job continues");
                self.set_frozen(false, run);
            }
            Report::Stopping(why) => {
                let signal = self.job.stop_signal;
                tracing::info!(job = self.job.name, pid = run.pid(), "sent {signal} to the job: {why}");
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
                tracing::warn!(job = self.job.name, pid = run.pid(), "killed the job: {why}");
                run.ended.by_deadline = true;
            }
            Report::Unmet(limits) => {
                for limit in limits {
                    tracing::warn!(job = self.job.name, "{limit}");
                }
            }
            Report::OutOfMemory => run.is_out_of_memory = true,
            Report::Exited(exit) => {
                run.main = None;
                run.cancel_probe.send_replace(true);
                if !run.is_asked {
                    run.ended.since = BootTime::now();
                }
                if run.dead.is_none() {
                    let stays_down = self.job.exit_codes.stay_down.contains(&0);
                    let why = match exit {
                        _ if run.is_out_of_memory => ", out of memory",
                        Exit::Code(0) if !run.is_asked && !stays_down => IN_FOREGROUND,
                        _ => "",
                    };
                    run.ended.reason = format!("{exit}{why}");
                }
                run.ended.exit = Some(exit);
                run.ended.was_asked |= run.dead.is_some();
                self.tell(Event::Ending);
                self.publish(None);
            }
            Report::Lingering(lingering) => tracing::error!(
                job = self.job.name,
                "the job has not ended: {lingering}; its end is not reported yet"
            ),
            Report::Dropped { lines } => {
                let job = self.job.name.as_str();
                tracing::warn!(
                    job,
                    lines,
                    "{lines} lines of its last output were dropped: this worker did not read them in time"
                );
                self.guards.reporter.lines_dropped(job, lines);
            }
            Report::Unlocked { .. } | Report::Starting | Report::Adopted { .. } | Report::Gone => {}
        }
    }

    fn set_frozen(&mut self, frozen: bool, run: &Run) {
        self.frozen.send_replace(frozen);
        self.publish(run.pid());
    }

    fn probed(&mut self, probed: Probed, guarded: &mut Guarded, run: &mut Run) {
        match probed {
            Probed::Nothing => {}
            Probed::Ready => {
                tracing::info!(job = self.job.name, pid = run.pid(), "job is ready");
                self.problem = None;
                self.tell(Event::Ready);
                self.publish(run.pid());
                self.check_liveness(run);
            }
            Probed::Dead(reason) => {
                tracing::error!(
                    job = self.job.name,
                    pid = run.pid(),
                    "job runs but does not serve; ending it: liveness: {reason}"
                );
                self.guards.reporter.liveness_failed(&self.job.name);
                run.ended.reason = format!("liveness: {reason}");
                self.problem = Some(run.ended.reason.clone());
                let stop = Stop::new(BootTime::now(), StopRequest::default(), self.job.stop_timeout);
                run.dead = Some(stop);
                self.order_end(stop, guarded, run);
            }
        }
    }

    /// Begins the liveness check, if the job has one.
    fn check_liveness(&self, run: &mut Run) {
        if run.main.is_none() || self.job.liveness.is_none() {
            return;
        }
        let probe = self.probe(run);
        run.probe = Some(Box::pin(async { probe.failed().await.map_or(Probed::Nothing, Probed::Dead) }));
    }

    fn probe(&self, run: &Run) -> Probe {
        // Another job goes on.
        let suspended =
            if self.job.freezes { self.task.time.suspended.clone() } else { watch::channel(false).1 };
        Probe {
            job: Arc::clone(&self.job),
            guards: self.guards.clone(),
            work_until: self.task.time.until.clone(),
            says_ready: run.says_ready.subscribe(),
            rests: [self.frozen.subscribe(), suspended],
            cancel: run.cancel_probe.subscribe(),
        }
    }

    /// Orders the guard to stop the program.
    fn order_end(&mut self, stop: Stop, guarded: &mut Guarded, run: &mut Run) {
        run.cancel_probe.send_replace(true);
        if !run.is_asked && !self.job.stop_timeout.is_zero() {
            let within = CONFIRM_WITHIN.min(self.job.stop_timeout / 2);
            run.unconfirmed.get_or_insert(BootTime::now() + within);
        }
        self.tell(Event::Ending);
        self.publish(run.pid());
        guarded.stop(stop.kill_at);
    }

    /// When the guard sends SIGKILL at the latest; `dead` is the stop of this run.
    fn kill_at(&self, dead: Option<Stop>) -> BootTime {
        let ends = [self.stop, dead].into_iter().flatten();
        latest_kill(*self.task.time.until.borrow(), ends)
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
            let notify = run.notify.as_ref().map(NotifySocket::hand_over).transpose();
            let (notify, ready) = notify.map_err(|error| error.to_string())?.unzip();
            let program = Some(ProgramState { guard, output: output.state, notify });
            let state = RunState { restarts: self.machine.restart_history(), ..RunState::of(program) };
            let descriptors = [socket, output.pipe].into_iter().chain(ready).collect();
            Ok(HandedRun { state, descriptors, held: vec![held, output.held] })
        };
        if ask.send(handed.await).is_ok() {
            hold(released).await;
        }
    }
}

/// When a working guard has sent SIGKILL at the latest: for the end of the lease, or for any of the stops.
fn latest_kill(work_until: BootTime, stops: impl IntoIterator<Item = Stop>) -> BootTime {
    stops.into_iter().map(|stop| stop.kill_at).fold(plan::last_kill(work_until), BootTime::min)
}

/// What a start waits for: the user that the program runs as, unless that is the worker's, and its turn. A name service that
/// does not answer holds up no other job.
async fn before_start(
    run_as: Option<RunAs>,
    suspended: watch::Receiver<bool>,
) -> Result<(Option<Identity>, Result<SemaphorePermit<'static>, AcquireError>), String> {
    let found = match run_as {
        Some(run_as) => run_as.other_than_own().await?,
        None => None,
    };
    Ok((found, turn_to_start(suspended).await))
}

/// Returns when the lease leaves no time to start the job and to stop it again.
async fn lease_is_over(mut work_until: watch::Receiver<BootTime>, stop_timeout: Duration) {
    loop {
        let last = plan::last_stop(*work_until.borrow_and_update(), stop_timeout);
        tokio::select! {
            biased;
            Ok(()) = work_until.changed() => {}
            () = sleep_until(last) => return,
        }
    }
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::job::{
        guards::Guards,
        run_end::RunEnd,
        status::ProcessStatus,
        supervisor::{Outcome, RunTask},
    };

    fn at(ms: u64) -> BootTime {
        BootTime::from_duration(Duration::from_millis(ms))
    }

    #[test]
    fn the_worker_expects_the_kill_when_the_guard_plans_it() {
        let kill = |stops: &[(u64, Option<u64>)]| {
            let stops = stops.iter().map(|(began, by)| {
                let request = StopRequest { given: None, by: by.map(at) };
                Stop::new(at(*began), request, Duration::from_secs(1))
            });
            latest_kill(at(10_000), stops)
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
        let (_, jobs) = watch::channel(Arc::new(Job::new("orders", ["sh", "-c", "exit"])));
        let (_asks, asks) = mpsc::channel(1);
        let status = watch::Sender::new(ProcessStatus::starting());
        let task = RunTask { jobs, time: work_until.into(), stop_requests, asks, status };
        let supervisor = Supervisor::new(task, Guards::new());
        let supervised = tokio::spawn(supervisor.supervise());
        stop.send_replace(Some(StopRequest::default()));
        let outcome = tokio::time::timeout(Duration::from_secs(20), supervised).await;
        assert!(matches!(outcome, Ok(Ok(Outcome { end: RunEnd::Stopped { .. }, .. }))), "{outcome:?}");
    }
}
