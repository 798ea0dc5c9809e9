//! Hooks: commands around a leadership.

use super::env::JobEnv;
use super::error::{HookProblem, JobError};
use super::guarded::Guards;
use super::oneshot::OneShot;
use super::spec::{HookName, JobSpec};
use crate::guard::BootTime;

/// Runs the hook of that name, if the job has one, and returns when it is gone, with everything that
/// it started: a hook starts no daemons.
///
/// Its time is the hook's timeout, cut short so that it is gone `by` (the end of the lease, while
/// leadership is held or to be held; less the job's stop budget for a hook that runs before a stop).
///
/// # Errors
/// [`JobError::Hook`] with the exit and the end of its standard error.
///
/// # Cancel safety
/// Dropped, the hook is killed by its guard soon after.
pub async fn run_hook(
    spec: &JobSpec,
    name: HookName,
    env: &JobEnv,
    guards: &Guards,
    by: Option<BootTime>,
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
        timeout: hook.timeout,
        by,
        listen: false,
    }
    .run(guards, std::future::pending())
    .await;
    let problem = match (finished.timed_out, finished.exit) {
        (_, Ok(exit)) if exit.is_success() => {
            tracing::info!(
                job = spec.name,
                hook = %name,
                took_ms = BootTime::now().duration_since(began).as_millis(),
                stderr = finished.stderr,
                "hook done"
            );
            return Ok(());
        }
        (Some(after), _) => HookProblem::TimedOut(after),
        (None, Ok(exit)) => HookProblem::Failed(exit),
        (None, Err(words)) => HookProblem::NotStarted(words),
    };
    Err(JobError::Hook { job: spec.name.clone(), hook: name, problem, stderr: finished.stderr })
}
