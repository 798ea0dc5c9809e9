//! A rehearsal of a job: its program is started on a member that does not lead, without a token, and stopped when it is
//! ready.

use std::time::Duration;

use election_core::strategy::in_words;
use job_guard::{Deadline, Guards, JobRun};
use tokio::sync::{Mutex, MutexGuard, watch};
use zk_session::{BootTime, sleep_until};

use super::{described::guards_in, env::JobEnv, hook::run_hook};
use crate::config::{ExitCodes, HookName, JobOutput, JobSpec, RestartPolicy};

/// How long before its guard the worker stops a rehearsal that was not ready in time.
const SPARE: Duration = Duration::from_millis(200);

/// The rehearsals of a job on this member: one at a time, and none while the member takes over.
#[derive(Debug, Default)]
pub(crate) struct Rehearsals {
    turn: Mutex<()>,
    /// Counts the interruptions.
    interruptions: watch::Sender<u64>,
}

impl Rehearsals {
    /// Waits for its turn. The future that is returned completes when it has to end.
    pub(crate) async fn begin(&self) -> (MutexGuard<'_, ()>, impl Future<Output = ()> + use<>) {
        let turn = self.turn.lock().await;
        let mut interruptions = self.interruptions.subscribe();
        let interrupted = async move {
            if interruptions.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        (turn, interrupted)
    }

    /// Interrupts the rehearsal that is under way, and waits until it has ended.
    pub(crate) async fn end(&self) {
        self.interruptions.send_modify(|count| *count += 1);
        drop(self.turn.lock().await);
    }
}

/// What is started in a rehearsal. It has another name, so that its cgroup, its last output and its lines in the log are not
/// taken for those of the job. It writes into no file of the job's, is not restarted, and no hook but `prepare` belongs to it.
fn rehearsed(spec: &JobSpec) -> JobSpec {
    let mut processes = spec.processes.clone();
    if spec.rehearsal.command.is_some() {
        processes.clear();
    }
    for process in &mut processes {
        (process.liveness, process.exit_codes) = (None, None);
    }
    JobSpec {
        processes,
        name: format!("{} (rehearsal)", spec.name),
        command: spec.rehearsal.command.clone().unwrap_or_else(|| spec.command.clone()),
        output: JobOutput::Log,
        restart: RestartPolicy { max: 0, ..RestartPolicy::default() },
        exit_codes: ExitCodes::default(),
        liveness: None,
        freezes: false,
        ..spec.clone()
    }
}

/// Starts the job as a rehearsal, waits until it is ready, calls `ready`, and stops it. Its guard ends it `until` then, whatever
/// becomes of this worker. Returns when no process of it is left.
///
/// If `stop` completes first, with the reason, it is stopped at once.
///
/// # Errors
/// Why it did not become ready, as a sentence.
pub(crate) async fn rehearse(
    spec: &JobSpec,
    env: &JobEnv,
    until: BootTime,
    guards: Guards,
    stop: impl Future<Output = String>,
    ready: impl FnOnce(),
) -> Result<(), String> {
    let (timeout, prepares) = (spec.rehearsal.timeout, spec.rehearsal.prepares);
    let spec = rehearsed(spec);
    let budget = spec.stop_budget();
    // The sender lives as long as the rehearsal: it is not renewed.
    let (_sender, ends) = watch::channel(until);
    let (stopped, mut stopping) = watch::channel(None::<String>);
    let work = async {
        if prepares {
            let cancelled = async {
                let _ = stopping.clone().wait_for(Option::is_some).await;
            };
            let by = Some(Deadline::at(ends.clone()));
            run_hook(&spec, HookName::Prepare, env, &guards, by, cancelled)
                .await
                .map_err(|e| e.to_string())?;
        }
        if let Some(reason) = stopping.borrow().clone() {
            return Err(reason);
        }
        let run = JobRun::start(spec.job(env), ends.clone(), guards_in(&guards, env));
        // The guard ends it in time for `until`, which would be reported as an end of the lease.
        let last = until - budget - SPARE;
        let limit = (BootTime::now() + timeout).min(last);
        let outcome = tokio::select! {
            biased;
            reason = stopping.wait_for(Option::is_some) => {
                Err(reason.ok().and_then(|reason| reason.clone()).unwrap_or_default())
            }
            became = run.ready() => became.map_err(|error| error.to_string()),
            () = sleep_until(limit) => Err(match limit == last {
                true => "it was not ready before the end of the drill".to_owned(),
                false => format!("it was not ready within {}", in_words(timeout)),
            }),
        };
        if outcome.is_ok() {
            ready();
        }
        run.stop(BootTime::now() + budget).await;
        outcome
    };
    let stop = async {
        stopped.send_replace(Some(stop.await));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = work => outcome,
        () = stop => Err(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsal_has_a_name_of_its_own_and_touches_nothing_of_the_job() {
        let mut spec = JobSpec::example();
        spec.rehearsal.command = Some(vec!["true".into()]);
        let rehearsed = rehearsed(&spec);
        assert_eq!(rehearsed.name, "orders (rehearsal)");
        assert_eq!((rehearsed.command, rehearsed.restart.max), (vec!["true".to_owned()], 0));
        assert_eq!(rehearsed.output, JobOutput::Log);
        assert!(election_core::Paths::new("/dr", &rehearsed.name).is_err(), "no job can have this name");
    }

    #[tokio::test]
    async fn who_takes_over_waits_for_the_end_of_a_rehearsal() {
        let rehearsals = std::sync::Arc::new(Rehearsals::default());
        // None is under way.
        rehearsals.end().await;
        let (turn, interrupted) = rehearsals.begin().await;
        let taking_over = tokio::spawn({
            let rehearsals = std::sync::Arc::clone(&rehearsals);
            async move { rehearsals.end().await }
        });
        interrupted.await;
        assert!(!taking_over.is_finished());
        drop(turn);
        taking_over.await.unwrap();
    }
}
