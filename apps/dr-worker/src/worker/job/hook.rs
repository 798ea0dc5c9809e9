//! Hooks: commands around a leadership.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use job_guard::{Deadline, Exit, Finished, Guards, OneShot};
use metrics::counter;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use zk_session::BootTime;

use super::{
    described::beside,
    env::{self, JobEnv},
    error::{HookProblem, JobError},
};
use crate::{
    config::{FenceCommand, HOOK_VARIABLES, Helper, HookName, JobSpec},
    error::ExitCode,
    wall,
};

/// The exit code of a hook that declines leadership: not here, now. The operator's commands exit with it for the same.
const NOT_NOW: Exit = Exit::Code(ExitCode::NotNow as i32);

/// Runs the hook of that name, if the job has one, and returns when it and everything that it started has ended: a hook
/// can't start daemons.
///
/// Its time is the hook's timeout, shortened so that it is gone `by`: the end of the lease, less the job's stop budget
/// for a hook that runs before a stop. The guard enforces this even without the worker: it knows the deadline and its
/// renewals.
///
/// If `cancelled` completes first, the hook is killed, and gone when this returns.
///
/// Its failure is counted, unless it was cancelled or has declined leadership.
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
    let longest = by.as_ref().map_or(hook.timeout, |by| by.remaining().min(hook.timeout));
    let deadline_ms = wall::unix_ms().saturating_add(wall::ms(longest));
    let mut variables = env.over(&spec.env);
    let of_hook = [name.as_str().to_owned(), env.reason.clone(), deadline_ms.to_string()];
    variables.extend(env::variables(HOOK_VARIABLES, of_hook));
    let command = OneShot {
        command: hook.command.clone(),
        timeout: hook.timeout,
        by,
        logs_errors: true,
        ..beside(spec, &format!("hook {name}"), spec.user_of(name.into()), variables)
    };
    let finished = command.run(guards, cancelled).await;
    let is_cancelled = finished.is_cancelled;
    let Err((problem, stderr)) = outcome(finished, name.can_refuse()) else {
        let took_ms = wall::ms(BootTime::now().duration_since(began));
        tracing::info!(job = spec.name, hook = %name, took_ms, "hook done");
        return Ok(());
    };
    if !is_cancelled && problem != HookProblem::Declined {
        counter!("dr_hook_failures_total", "job" => spec.name.clone(), "hook" => name.as_str()).increment(1);
    }
    Err(JobError::Hook { job: spec.name.clone(), hook: name, problem, stderr })
}

/// What went wrong with a command, which may decline leadership, and the end of its standard error.
fn outcome(finished: Finished, may_decline: bool) -> Result<(), (HookProblem, String)> {
    let problem = match (finished.timed_out, finished.exit) {
        (_, Ok(exit)) if exit.is_success() => return Ok(()),
        (Some(after), _) => HookProblem::TimedOut(after),
        (None, Ok(NOT_NOW)) if may_decline => HookProblem::Declined,
        (None, Ok(exit)) => HookProblem::Failed(exit),
        (None, Err(reason)) => HookProblem::NotStarted(reason),
    };
    Err((problem, finished.stderr))
}

/// How many runs of a hook that [reports news](HookName::reports_news) there are at a time.
const MOST_NEWS: usize = 4;

/// The asynchronous hooks of a job: nothing waits for them. Of each hook and slot one runs at a time, and one waits for
/// its end; a newer run replaces the waiting one, which is out of date. Only runs that [report news](HookName::reports_news) do
/// not wait: a few run side by side, and the oldest is ended for a newer one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AsyncHooks {
    running: Arc<Mutex<RunningHooks>>,
}

/// The hooks that run, by name and slot.
type RunningHooks = BTreeMap<(HookName, usize), RunningHook>;

#[derive(Debug, Default)]
struct RunningHook {
    /// The run that waits for the end of the only one.
    waiting: Option<WantedRun>,
    /// The runs with their numbers, the oldest first. A run is ended when its sender is dropped.
    runs: Vec<(u64, oneshot::Sender<()>)>,
    /// How many there were.
    count: u64,
}

#[derive(Debug)]
struct WantedRun {
    spec: Arc<JobSpec>,
    env: JobEnv,
}

impl AsyncHooks {
    /// Runs the hook of that name, if the job has one, in the background. It ends with this process at the latest.
    /// Returns whether another run was dropped or ended for it, which is counted.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self, spec: Arc<JobSpec>, name: HookName, env: JobEnv, guards: Guards) -> bool {
        if spec.hooks.get(name).is_none() {
            return false;
        }
        let (key, job) = ((name, env.slot), spec.name.clone());
        let wanted = WantedRun { spec, env };
        let mut all = self.running.lock();
        let running = all.entry(key).or_default();
        let most = if name.reports_news() { MOST_NEWS } else { 1 };
        let is_replaced = if running.runs.len() < most {
            self.run(running, key, wanted, guards);
            false
        } else if name.reports_news() {
            running.runs.remove(0);
            self.run(running, key, wanted, guards);
            true
        } else {
            running.waiting.replace(wanted).is_some()
        };
        if is_replaced {
            tracing::warn!(job, hook = %name, "the hook still runs; one of its runs is ended, or dropped, for a newer one");
            counter!("dr_hook_runs_dropped_total", "job" => job, "hook" => name.as_str()).increment(1);
        }
        is_replaced
    }

    /// In a task of its own.
    fn run(&self, running: &mut RunningHook, key: (HookName, usize), wanted: WantedRun, guards: Guards) {
        let (sender, mut unwanted) = oneshot::channel::<()>();
        running.count += 1;
        let number = running.count;
        running.runs.push((number, sender));
        let hooks = self.clone();
        tokio::spawn(async move {
            let WantedRun { spec, env } = wanted;
            let is_unwanted = async { drop((&mut unwanted).await) };
            let ended = run_hook(&spec, key.0, &env, &guards, None, is_unwanted).await;
            let mut all = hooks.running.lock();
            let Some(running) = all.get_mut(&key) else { return };
            let is_wanted = running.runs.iter().any(|(other, _)| *other == number);
            running.runs.retain(|(other, _)| *other != number);
            if let Some(next) = running.waiting.take() {
                hooks.run(running, key, next, guards);
            } else if running.runs.is_empty() {
                all.remove(&key);
            }
            drop(all);
            if let (Err(error), true) = (ended, is_wanted) {
                tracing::warn!(job = spec.name, "{error}");
            }
        });
    }
}

/// Completes when nothing waits for a command any more.
type Unwanted = Pin<Box<dyn Future<Output = ()> + Send>>;

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
        self.to_its_end(|unwanted| async move { run_hook(&spec, name, &env, &guards, by, unwanted).await })
            .await
    }

    /// Runs a command that fences, with these variables, gone by the deadline.
    ///
    /// # Errors
    /// What went wrong with it, and the end of its standard error.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub async fn run_fence(
        &self,
        spec: Arc<JobSpec>,
        fence: FenceCommand,
        env: BTreeMap<String, String>,
        guards: Guards,
        by: Option<Deadline>,
    ) -> Result<(), (HookProblem, String)> {
        let run = |unwanted| async move {
            let FenceCommand { name, command, timeout, .. } = fence;
            let beside = beside(&spec, &format!("fence {name}"), spec.user_of(Helper::Fence), env);
            let command = OneShot { command, timeout, by, logs_errors: true, ..beside };
            outcome(command.run(&guards, unwanted).await, false)
        };
        self.to_its_end(run).await
    }

    /// Runs a command by which the running program changes its role.
    ///
    /// # Errors
    /// What went wrong with it, as a sentence.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub async fn run_change(
        &self,
        spec: Arc<JobSpec>,
        name: &'static str,
        command: OneShot,
        guards: Guards,
    ) -> Result<(), JobError> {
        let run = |unwanted| async move {
            let finished = command.run(&guards, unwanted).await;
            outcome(finished, name == "promote").map_err(|(problem, stderr)| JobError::RoleChange {
                job: spec.name.clone(),
                name,
                problem,
                stderr,
            })
        };
        self.to_its_end(run).await
    }

    /// Runs a command to its end, also if this future is dropped: then it is told that it is unwanted.
    async fn to_its_end<T, F>(&self, run: impl FnOnce(Unwanted) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (_wanted, mut unwanted) = watch::channel(());
        let (ended, result) = oneshot::channel();
        let running = self.running.clone();
        running.send_modify(|count| *count += 1);
        let work = run(Box::pin(async move { while unwanted.changed().await.is_ok() {} }));
        tokio::spawn(async move {
            let done = work.await;
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
