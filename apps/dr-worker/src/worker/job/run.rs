//! One leadership's run of a job, as its owner holds it.

use std::sync::Arc;

use tokio::sync::watch;
use zk_session::BootTime;

use super::{
    env::JobEnv,
    error::JobError,
    guarded::Guards,
    status::{ProcessState, ProcessStatus, Stopped},
    supervisor::{Outcome, Supervisor},
};
use crate::config::JobSpec;

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
        let starting = ProcessStatus { state: ProcessState::Starting, pid: None, restarts: 0, problem: None };
        let (status_sender, status) = watch::channel(starting);
        let (outcome_sender, outcome) = watch::channel(None);
        let job = spec.name.clone();
        let env = env.over(&spec.env);
        let supervisor = Supervisor::new(spec, env, guards, work_until, stop_wishes, status_sender);
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
