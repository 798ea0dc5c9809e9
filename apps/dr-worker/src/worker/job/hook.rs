//! Hooks: commands around a leadership.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use zk_session::BootTime;

use super::{
    env::JobEnv,
    error::{HookProblem, JobError},
    guarded::Guards,
    oneshot::{Deadline, OneShot},
};
use crate::{
    config::{HookName, JobSpec},
    wall,
};

/// Runs the hook of that name, if the job has one, and returns when it and everything that it started has ended: a hook
/// can't start daemons.
///
/// Its time is the hook's timeout, shortened so that it is gone `by`: the end of the lease, less the job's stop budget
/// for a hook that runs before a stop. The guard enforces this even without the worker: it knows the deadline and its
/// renewals.
///
/// If `cancelled` completes first, the hook is killed, and gone when this returns.
///
/// # Errors
/// [`JobError::Hook`] with the exit and the end of its standard error.
///
/// # Cancel safety
/// If the future is dropped, the guard kills the hook soon after.
pub async fn run_hook(
    spec: &JobSpec,
    name: HookName,
    env: &JobEnv,
    guards: &Guards,
    by: Option<Deadline>,
    cancelled: impl Future<Output = ()>,
) -> Result<(), JobError> {
    let Some(hook) = spec.hooks.get(name) else {
        return Ok(());
    };
    let began = BootTime::now();
    let finished = OneShot {
        title: format!("job {} hook {name}", spec.name),
        command: hook.command.clone(),
        env: env.over(&spec.env),
        working_dir: spec.working_dir.clone(),
        no_new_privileges: spec.no_new_privileges,
        timeout: hook.timeout,
        by,
        listen: false,
    }
    .run(guards, cancelled)
    .await;
    let problem = match (finished.timed_out, finished.exit) {
        (_, Ok(exit)) if exit.is_success() => {
            tracing::info!(
                job = spec.name,
                hook = %name,
                took_ms = wall::ms(BootTime::now().duration_since(began)),
                stderr = finished.stderr,
                "hook done"
            );
            return Ok(());
        }
        (Some(after), _) => HookProblem::TimedOut(after),
        (None, Ok(exit)) => HookProblem::Failed(exit),
        (None, Err(reason)) => HookProblem::NotStarted(reason),
    };
    Err(JobError::Hook { job: spec.name.clone(), hook: name, problem, stderr: finished.stderr })
}

/// Hooks that run to their end even after their callers have stopped waiting.
#[derive(Debug, Default)]
pub struct HookRuns {
    running: watch::Sender<usize>,
}

impl HookRuns {
    /// As [`run_hook`].
    ///
    /// # Errors
    /// As [`run_hook`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the hook is killed; [`HookRuns::gone`] waits for its end.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn run(
        &self,
        spec: Arc<JobSpec>,
        name: HookName,
        env: JobEnv,
        guards: Guards,
        by: Option<Deadline>,
    ) -> Result<(), JobError> {
        if spec.hooks.get(name).is_none() {
            return Ok(());
        }
        let (_wanted, mut unwanted) = watch::channel(());
        let (ended, result) = oneshot::channel();
        let running = self.running.clone();
        running.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            let unwanted = async { while unwanted.changed().await.is_ok() {} };
            let done = run_hook(&spec, name, &env, &guards, by, unwanted).await;
            running.send_modify(|count| *count -= 1);
            // The receiver may be gone.
            let _ = ended.send(done);
        });
        match result.await {
            Ok(done) => done,
            // Its task has panicked, or its runtime ends. The hook's end was not observed, so it is not reported.
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until no hook is left, including those whose callers stopped waiting.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn gone(&self) {
        // The sender is in `self`, so the channel is open.
        let _ = self.running.subscribe().wait_for(|count| *count == 0).await;
    }
}
