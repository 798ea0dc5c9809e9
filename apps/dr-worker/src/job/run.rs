//! One leadership's run of a job: started under a guard, probed, restarted, ended.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::env::JobEnv;
use super::error::JobError;
use super::guarded::{ESCALATION_LAG, Guarded, Guards};
use super::probe::Probe;
use super::restart::{RestartHistory, Verdict};
use super::spec::JobSpec;
use super::status::{ProcessState, ProcessStatus};
use crate::guard::protocol::{Launch, Report};
use crate::guard::{BootTime, Exit, KILL_RESERVE, Why, sleep_until};

/// How long a guard may take to confirm a stop order, before the worker sends the stop signal in its
/// place: a guard that hangs must not cost the job its gentle end.
const CONFIRM_WITHIN: Duration = Duration::from_millis(500);

/// One leadership's run of a job.
///
/// Dropped, the job is ended as by [`JobRun::stop`], in the background, within what is left of the
/// lease. If the runtime goes down as well, the guard does it.
#[derive(Debug)]
pub struct JobRun {
    job: String,
    stop_by: watch::Sender<Option<BootTime>>,
    status: watch::Receiver<ProcessStatus>,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// How a job was ended. Nothing of it runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How its program ended; `None` if it was not running, or nobody could see it.
    pub exit: Option<Exit>,
    /// From the request, or from its own end, to the end of its last process.
    pub took: Duration,
}

#[derive(Clone, Debug)]
struct Outcome {
    error: JobError,
    stopped: Stopped,
}

impl JobRun {
    /// Starts the job, which may work until `work_until`: the end of the lease, renewed by whoever
    /// holds the sender. It is killed before that time comes, and is asked to end early enough to
    /// have its whole stop timeout, by the guard alone if need be.
    ///
    /// Call [`JobSpec::check`] before; what it finds shows here only in [`JobRun::finished`].
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn start(
        spec: Arc<JobSpec>,
        env: &JobEnv,
        work_until: watch::Receiver<BootTime>,
        guards: Guards,
    ) -> JobRun {
        let (stop_by, stop_wishes) = watch::channel(None);
        let (status_sender, status) =
            watch::channel(ProcessStatus { state: ProcessState::Starting, pid: None, restarts: 0 });
        let (outcome_sender, outcome) = watch::channel(None);
        let job = spec.name.clone();
        let supervisor = Supervisor {
            env: env.over(&spec.env),
            spec,
            guards,
            work_until,
            is_renewed: true,
            stop_wishes,
            stop: None,
            restarts: RestartHistory::default(),
            status: status_sender,
        };
        tokio::spawn(async move {
            let outcome = supervisor.supervise().await;
            // Nobody may be left to hear it.
            let _ = outcome_sender.send(Some(outcome));
        });
        JobRun { job, stop_by, status, outcome }
    }

    /// Waits until the job runs and its readiness probe has passed.
    ///
    /// It waits on while the job is restarted: bound it by the takeover timeout.
    ///
    /// # Errors
    /// As [`JobRun::finished`], if that comes first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self) -> Result<(), JobError> {
        let mut status = self.status.clone();
        let running = status.wait_for(|status| status.state == ProcessState::Running);
        tokio::select! {
            biased;
            error = self.finished() => Err(error),
            Ok(_) = running => Ok(()),
        }
    }

    /// Waits until the job has ended and is not started again. Nothing of it runs then.
    ///
    /// # Cancel safety
    /// Cancel safe, and may be called any number of times.
    pub async fn finished(&self) -> JobError {
        self.outcome().await.error
    }

    /// Ends the job: the stop signal now, SIGKILL to all of its tree after the stop timeout, and
    /// early enough that it is gone `by`. Returns when nothing of it is left, and not before: should
    /// a process survive SIGKILL (in an uninterruptible wait of the kernel) that is after `by`,
    /// and the log says so. Leadership must not be released before.
    ///
    /// Called again, it can only bring the end forward. If the job has ended already it returns at
    /// once.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the stop back; call it again to wait on.
    pub async fn stop(&self, by: BootTime) -> Stopped {
        self.stop_by.send_modify(|wish| {
            *wish = Some(wish.map_or(by, |earlier| earlier.min(by)));
        });
        self.outcome().await.stopped
    }

    /// What the job's process is doing, now and from now on.
    pub fn status(&self) -> watch::Receiver<ProcessStatus> {
        self.status.clone()
    }

    async fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        if let Ok(outcome) = outcome.wait_for(Option::is_some).await
            && let Some(outcome) = outcome.as_ref()
        {
            return outcome.clone();
        }
        // The supervisor is gone without a word: it panicked, or its runtime is shutting down. The
        // guard ends the job, but nobody has seen it; so nobody is told that it is gone, and the
        // lease has to run out.
        tracing::error!(
            job = self.job,
            "the job's supervisor has died; leadership is kept until the lease ends"
        );
        std::future::pending().await
    }
}

struct Supervisor {
    spec: Arc<JobSpec>,
    env: BTreeMap<String, String>,
    guards: Guards,
    work_until: watch::Receiver<BootTime>,
    /// Whether somebody is left who could renew the lease.
    is_renewed: bool,
    stop_wishes: watch::Receiver<Option<BootTime>>,
    stop: Option<Stop>,
    restarts: RestartHistory,
    status: watch::Sender<ProcessStatus>,
}

/// A stop that was asked for.
#[derive(Clone, Copy)]
struct Stop {
    began: BootTime,
    /// Gone by then. `None`: nobody waits for it; the lease is the bound.
    by: Option<BootTime>,
}

/// How one run of the program ended, all of its tree included.
struct Ended {
    exit: Option<Exit>,
    /// When the program itself ended, or was asked to.
    since: BootTime,
    words: String,
    by_deadline: bool,
}

impl Supervisor {
    async fn supervise(mut self) -> Outcome {
        loop {
            let ended = self.run_once().await;
            let now = BootTime::now();
            let stopped = Stopped {
                exit: ended.exit,
                took: now.duration_since(self.stop.map_or(ended.since, |stop| stop.began)),
            };
            if self.stop.is_some() {
                return self.stopped(stopped);
            }
            if ended.by_deadline || self.lease_leaves_no_time(now) {
                tracing::error!(job = self.spec.name, "job ended: its lease was not renewed");
                self.publish(ProcessState::Failed, None);
                return Outcome { error: JobError::LeaseEnded { job: self.spec.name.clone() }, stopped };
            }
            match self.restarts.ended(&self.spec.restart, now) {
                Verdict::RestartAt(at) => {
                    tracing::warn!(
                        job = self.spec.name,
                        in_ms = at.duration_since(now).as_millis(),
                        "job ended ({}); it is started again",
                        ended.words
                    );
                    self.publish(ProcessState::Backoff, None);
                    tokio::select! {
                        biased;
                        by = next_wish(&mut self.stop_wishes) => {
                            self.stop = Some(Stop { began: now, by });
                            return self.stopped(stopped);
                        }
                        () = sleep_until(at) => {}
                    }
                }
                Verdict::GiveUp => {
                    let error = JobError::RestartsExhausted {
                        job: self.spec.name.clone(),
                        last: ended.words,
                        restarts: self.restarts.total(),
                        max: self.spec.restart.max,
                        within: self.spec.restart.within,
                    };
                    tracing::error!("{error}");
                    self.publish(ProcessState::Failed, None);
                    return Outcome { error, stopped };
                }
            }
        }
    }

    fn stopped(&self, stopped: Stopped) -> Outcome {
        tracing::info!(
            job = self.spec.name,
            took_ms = stopped.took.as_millis(),
            "job stopped: nothing of it runs any more"
        );
        self.publish(ProcessState::Stopped, None);
        Outcome { error: JobError::Stopped { job: self.spec.name.clone() }, stopped }
    }

    /// Runs the program once; returns when nothing of it is left.
    async fn run_once(&mut self) -> Ended {
        self.publish(ProcessState::Starting, None);
        let mut ended = Ended {
            exit: None,
            since: BootTime::now(),
            words: "its guard was lost".to_owned(),
            by_deadline: false,
        };
        let launch = self.launch();
        let title = format!("job {}", self.spec.name);
        let mut guarded = match Guarded::start(&self.guards, &title, launch, None).await {
            Ok(guarded) => guarded,
            Err(words) => {
                ended.words = words;
                return ended;
            }
        };
        let mut pid = None;
        let mut probe: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
        // When the stop signal is sent past a guard that has not confirmed the order.
        let mut unconfirmed: Option<BootTime> = None;
        loop {
            let destroy_at = self.kill_at() + ESCALATION_LAG;
            tokio::select! {
                biased;
                report = guarded.next() => match report {
                    Report::Started { pid: number } => {
                        pid = u32::try_from(number).ok();
                        tracing::info!(job = self.spec.name, pid, "job started");
                        if self.stop.is_none() {
                            self.publish(ProcessState::Starting, pid);
                            probe = Some(Box::pin(self.probe().passed()));
                        }
                    }
                    Report::Failed { error } => ended.words = error,
                    Report::Stopping(why) => {
                        unconfirmed = None;
                        if why != Why::Exited {
                            probe = None;
                            ended.since = BootTime::now();
                            ended.by_deadline |= why == Why::Deadline;
                            self.publish(ProcessState::Stopping, pid);
                        }
                        tracing::info!(job = self.spec.name, pid, "job is asked to end: {why}");
                    }
                    Report::Exited(exit) => {
                        probe = None;
                        if self.stop.is_none() && !ended.by_deadline {
                            ended.since = BootTime::now();
                        }
                        ended.words = exit.to_string();
                        ended.exit = Some(exit);
                        pid = None;
                        self.publish(ProcessState::Stopping, None);
                    }
                    Report::Lingering { pids } => tracing::error!(
                        job = self.spec.name,
                        ?pids,
                        "processes of the job survive SIGKILL; leadership is kept"
                    ),
                    Report::Gone => return ended,
                },
                by = next_wish(&mut self.stop_wishes), if !self.is_abandoned() => {
                    let now = BootTime::now();
                    let began = self.stop.map_or(now, |stop| stop.began);
                    self.stop = Some(Stop { began, by });
                    probe = None;
                    unconfirmed.get_or_insert(now + CONFIRM_WITHIN.min(self.spec.stop_timeout / 2));
                    self.publish(ProcessState::Stopping, pid);
                    guarded.stop(by.unwrap_or_else(|| *self.work_until.borrow()));
                }
                renewed = self.work_until.changed(), if self.is_renewed => match renewed {
                    Ok(()) => guarded.until(*self.work_until.borrow_and_update()),
                    Err(_) => self.is_renewed = false,
                },
                () = sleep_until(destroy_at) => {
                    tracing::error!(
                        job = self.spec.name,
                        "the guard has not ended the job in time; killing it and its guard"
                    );
                    guarded.destroy().await;
                }
                () = async { sleep_until(unconfirmed.unwrap_or(destroy_at)).await },
                    if unconfirmed.is_some() =>
                {
                    unconfirmed = None;
                    tracing::warn!(
                        job = self.spec.name,
                        "the guard does not answer; sending the stop signal in its place"
                    );
                    guarded.signal_directly(self.spec.stop_signal);
                }
                () = async { if let Some(probe) = &mut probe { probe.await } },
                    if probe.is_some() =>
                {
                    probe = None;
                    tracing::info!(job = self.spec.name, pid, "job is ready");
                    self.publish(ProcessState::Running, pid);
                }
            }
        }
    }

    fn launch(&mut self) -> Launch {
        Launch {
            command: self.spec.command.clone(),
            env: self.env.clone(),
            working_dir: self.spec.working_dir.clone(),
            stop_signal: self.spec.stop_signal,
            stop_timeout_ms: u64::try_from(self.spec.stop_timeout.as_millis()).unwrap_or(u64::MAX),
            until: (*self.work_until.borrow_and_update()).into(),
            cgroup: self.guards.cgroup_of(&self.spec.name),
        }
    }

    fn probe(&self) -> Probe {
        Probe {
            spec: Arc::clone(&self.spec),
            env: self.env.clone(),
            guards: self.guards.clone(),
            work_until: self.work_until.clone(),
        }
    }

    /// When the guard kills the job, at the latest.
    fn kill_at(&self) -> BootTime {
        latest_kill(
            *self.work_until.borrow(),
            self.stop.map(|stop| (stop.began, stop.by)),
            self.spec.stop_timeout,
        )
    }

    fn lease_leaves_no_time(&self, now: BootTime) -> bool {
        now >= *self.work_until.borrow() - self.spec.stop_budget()
    }

    /// Whether the [`JobRun`] was dropped, and has been taken note of.
    fn is_abandoned(&self) -> bool {
        self.stop.is_some_and(|stop| stop.by.is_none())
    }

    fn publish(&self, state: ProcessState, pid: Option<u32>) {
        let status = ProcessStatus { state, pid, restarts: self.restarts.total() };
        self.status.send_if_modified(|old| {
            let is_new = *old != status;
            *old = status;
            is_new
        });
    }
}

/// When a guard that works has sent SIGKILL, at the latest: the end of the lease, or of a stop that
/// began at one time and is to be over by another.
fn latest_kill(
    work_until: BootTime,
    stop: Option<(BootTime, Option<BootTime>)>,
    stop_timeout: Duration,
) -> BootTime {
    let mut by = work_until - KILL_RESERVE;
    if let Some((began, stop_by)) = stop {
        by = by.min(began + stop_timeout);
        if let Some(stop_by) = stop_by {
            by = by.min(stop_by - KILL_RESERVE);
        }
    }
    by
}

/// The next wish to stop: by when, or `None` if the [`JobRun`] was dropped.
///
/// # Cancel safety
/// Cancel safe.
async fn next_wish(wishes: &mut watch::Receiver<Option<BootTime>>) -> Option<BootTime> {
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
        let second = Duration::from_secs(1);
        assert_eq!(latest_kill(at(10_000), None, second), at(9_800));
        assert_eq!(latest_kill(at(10_000), Some((at(2_000), None)), second), at(3_000));
        assert_eq!(latest_kill(at(10_000), Some((at(2_000), Some(at(2_700)))), second), at(2_500));
        assert_eq!(latest_kill(at(10_000), Some((at(9_500), Some(at(60_000)))), second), at(9_800));
    }
}
