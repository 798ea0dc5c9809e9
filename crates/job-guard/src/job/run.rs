//! The handle on the run of a job.

use std::sync::Arc;
use std::time::Duration;

use boot_time::BootTime;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    handover::HandedRun,
    lease::WorkTime,
    run_end::RunEnd,
    status::{ProcessState, ProcessStatus, Stopped},
    supervisor::{Outcome, RunAsk, RunTask, StopRequest},
};
use crate::config::{Job, StopSignal};

/// The run of a job, with all restarts of its program.
///
/// If it is dropped, the job is stopped as by [`JobRun::stop`], in the background, before the lease ends. If the
/// runtime shuts down as well, the guard stops it.
#[derive(Debug)]
pub struct JobRun {
    name: String,
    jobs: watch::Sender<Arc<Job>>,
    stop: watch::Sender<Option<StopRequest>>,
    status: watch::Receiver<ProcessStatus>,
    outcome: watch::Receiver<Option<Outcome>>,
    asks: mpsc::Sender<RunAsk>,
}

/// Reports the outcome of a run.
pub(super) struct OutcomeSender(watch::Sender<Option<Outcome>>);

impl OutcomeSender {
    /// Reports that of this task.
    pub(super) fn of(self, task: impl Future<Output = Outcome> + Send + 'static) {
        tokio::spawn(async move {
            let outcome = task.await;
            // The receivers may be gone.
            let _ = self.0.send(Some(outcome));
        });
    }
}

/// How long the job's tasks may take to answer that it is handed over.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// How long a guard may take to confirm new terms.
const ARM_WITHIN: Duration = Duration::from_secs(2);

impl JobRun {
    /// A run without the task that supervises it.
    pub(super) fn connect(
        job: Job,
        time: WorkTime,
        status: ProcessStatus,
    ) -> (JobRun, RunTask, OutcomeSender) {
        let name = job.name.clone();
        let jobs = watch::Sender::new(Arc::new(job));
        let (stop, stop_requests) = watch::channel(None);
        let (status_sender, status) = watch::channel(status);
        let (outcome_sender, outcome) = watch::channel(None);
        let (asks, asked) = mpsc::channel(1);
        let task =
            RunTask { jobs: jobs.subscribe(), time, stop_requests, asks: asked, status: status_sender };
        (JobRun { name, jobs, stop, status, outcome, asks }, task, OutcomeSender(outcome_sender))
    }

    /// Changes the description. The limits of restarts, the meaning of exit codes, the liveness check and the destination of
    /// the output change at once, the rest at the next start of the program. A description with other processes is ignored.
    pub fn change(&self, job: Job) {
        self.jobs.send_if_modified(|present| {
            let is_new = **present != job && present.has_processes_of(&job);
            if is_new {
                *present = Arc::new(job);
            }
            is_new
        });
    }

    /// Waits until the job runs and its readiness probe has passed, or until it has ended and stays down
    /// ([`ExitCodes::stay_down`](crate::ExitCodes::stay_down)): it has done its work.
    ///
    /// It keeps waiting while the job is restarted.
    ///
    /// # Errors
    /// As [`JobRun::finished`], if that comes first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ready(&self) -> Result<(), RunEnd> {
        let mut status = self.status.clone();
        let is_ready = |state| matches!(state, ProcessState::Running | ProcessState::Exited);
        let running = status.wait_for(|status| is_ready(status.state));
        tokio::select! {
            biased;
            end = self.finished() => Err(end),
            Ok(_) = running => Ok(()),
        }
    }

    /// Waits until the job has ended and is not restarted. No process of it is left, but for the command of a check that hangs in
    /// the kernel.
    ///
    /// # Cancel safety
    /// Cancel safe, and may be called any number of times.
    pub async fn finished(&self) -> RunEnd {
        self.outcome().await.end
    }

    /// Stops the job: the stop signal now, SIGKILL to its whole tree after the stop timeout, early enough that it is
    /// gone `by`. Returns only when no process of it is left, as of [`finished`](Self::finished). If a process survives SIGKILL (in an uninterruptible wait
    /// of the kernel), that is after `by`, and is logged.
    ///
    /// Called again, it can only bring the end forward. It returns at once if the job has ended.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the stop; call it again to continue waiting.
    pub async fn stop(&self, by: BootTime) -> Stopped {
        self.request_stop(StopRequest { given: None, by: Some(by) }).await
    }

    /// Stops the job as [`JobRun::stop`] does, but gives it this time instead of the stop timeout, as long as its lease is
    /// renewed. It is gone before its lease ends in any case.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the stop; call this or [`JobRun::stop`], which ends it earlier, to continue waiting.
    pub async fn stop_within(&self, given: Duration) -> Stopped {
        self.request_stop(StopRequest { given: Some(given), by: None }).await
    }

    async fn request_stop(&self, request: StopRequest) -> Stopped {
        self.ask_to_stop(request);
        self.outcome().await.stopped
    }

    pub(super) fn ask_to_stop(&self, request: StopRequest) {
        self.stop.send_modify(|stop| *stop = Some(stop.map_or(request, |earlier| earlier.and(request))));
    }

    /// Gives the program that runs the description and the time of another role, such as a deadline that it did not have. When
    /// this returns, its guard has them: it ends the program by the new deadline, whatever happens to this process.
    ///
    /// The program is [`Starting`](ProcessState::Starting) then. Have it change its role, unless it has done so, and call
    /// [`JobRun::probe`]. If it ends before it is ready in its new role, it is not restarted, and the run is over. Later it is
    /// restarted as the new description says, with its command.
    ///
    /// # Errors
    /// The reason, if its program does not run or has no readiness socket for the new `ready`, or its guard does not answer.
    /// [Stop](JobRun::stop) the run then: the terms that count are not known.
    ///
    /// # Cancel safety
    /// If the future is dropped, the terms that count are not known.
    pub async fn arm(&self, job: Job, time: WorkTime) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let terms = Box::new((job.clone(), time));
        self.asks.send(RunAsk::Arm(terms, answer)).await.map_err(|_| "its run is over".to_owned())?;
        match tokio::time::timeout(ARM_WITHIN, answered).await {
            Ok(Ok(armed)) => armed?,
            Ok(Err(_)) => return Err("its program has ended".to_owned()),
            Err(_) => return Err(format!("its guard has not confirmed the deadline within {ARM_WITHIN:?}")),
        }
        self.change(job);
        Ok(())
    }

    /// What the program has said of its readiness until now (`READY=1`) does not count any more: it is about to change its role. Call
    /// it before the program can know that.
    ///
    /// # Cancel safety
    /// If the future is dropped, what it has said may still count.
    pub async fn forget_ready(&self) {
        let (answer, answered) = oneshot::channel();
        let _ = self.asks.send(RunAsk::ForgetReady(answer)).await;
        // An error: the run is over.
        let _ = tokio::time::timeout(ANSWER_WITHIN, answered).await;
    }

    /// Probes the program until it is ready, after it has changed its role.
    pub async fn probe(&self) {
        // An error: the run is over.
        let _ = self.asks.send(RunAsk::Probe).await;
    }

    /// Sends the program a signal, through its guard: to its main process alone, while that runs.
    pub async fn signal(&self, signal: StopSignal) {
        let _ = self.asks.send(RunAsk::Signal(signal)).await;
    }

    /// Hands the run over to the next program of this process.
    ///
    /// # Errors
    /// The reason, if the job is not ready, is being stopped, or its tasks are busy.
    pub async fn hand_over(&self) -> Result<HandedRun, String> {
        let (answer, answered) = oneshot::channel();
        let _ = self.asks.try_send(RunAsk::HandOver(answer));
        match tokio::time::timeout(ANSWER_WITHIN, answered).await {
            Ok(Ok(handed)) => handed,
            _ => Err("its tasks are busy, or have ended".to_owned()),
        }
    }

    /// The state of the job's process, and its changes.
    pub fn status(&self) -> watch::Receiver<ProcessStatus> {
        self.status.clone()
    }

    pub(super) async fn outcome(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        if let Ok(outcome) = outcome.wait_for(Option::is_some).await
            && let Some(outcome) = outcome.as_ref()
        {
            return outcome.clone();
        }
        // The supervisor is gone without an outcome: it panicked, or its runtime is shutting down. The guard ends the
        // job, but its end was not observed. So it is not reported, and the lease has to expire.
        tracing::error!(
            job = self.name,
            "the job's supervisor has died; the guard ends the job, but its end is not reported"
        );
        std::future::pending().await
    }
}
