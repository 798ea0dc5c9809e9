//! A job of the configuration, as its guards get it.

use std::{collections::BTreeMap, iter::zip, pin::Pin, sync::Arc};

use election_core::Leadership;
use job_guard::{Guards, Job, JobProcess, LockError, OneShot, Reporter, RunAs, Stream, WorkTime};
use metrics::counter;

use super::env::JobEnv;
use crate::{
    config::{
        DR_PROCESS, DR_REHEARSAL, Helper, JobSpec, LEADERSHIP_VARIABLES, ProcessSpec, STANDBY_VARIABLES,
        split_name,
    },
    error::Error,
    host_fault::HostFault,
    logging::{self, OUTPUT},
    worker::descriptors::limit_of_programs,
};

/// Guards of this program. What is in its own environment is of another leadership, if it is itself a job.
pub fn new_guards() -> Guards {
    Guards::new()
        .name("dr")
        .withhold(LEADERSHIP_VARIABLES.into_iter().chain(STANDBY_VARIABLES).chain([DR_REHEARSAL, DR_PROCESS]))
        .open_files(limit_of_programs())
        .reporter(Arc::new(WorkerLog::default()))
}

/// The same for the job of a leadership.
pub(crate) fn guards_in(guards: &Guards, env: &JobEnv) -> Guards {
    guards.clone().reporter(Arc::new(WorkerLog { term: Some(env.term) }))
}

/// The worker's log and its metrics.
#[derive(Debug, Default)]
struct WorkerLog {
    /// Of the leadership; `None` for commands beside the job.
    term: Option<u64>,
}

impl Reporter for WorkerLog {
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(logging::room_for_output())
    }

    fn line(&self, program: &str, stream: Stream, line: &str) {
        let ((job, process), term, stream) = (split_name(program), self.term, stream.as_str());
        tracing::info!(target: OUTPUT, job, process, term, stream, "{line}");
    }

    fn lines_dropped(&self, program: &str, lines: u64) {
        let (job, _) = split_name(program);
        match self.term {
            Some(_) => counter!("dr_log_lines_dropped_total", "job" => job.to_owned()),
            None => counter!("dr_log_lines_dropped_total"),
        }
        .increment(lines);
    }

    fn start_note(&self) -> String {
        format!("starting in term {}", self.term.unwrap_or_default())
    }

    fn liveness_failed(&self, program: &str) {
        let (job, _) = split_name(program);
        counter!("dr_liveness_failures_total", "job" => job.to_owned()).increment(1);
    }
}

impl JobSpec {
    /// The job of this leadership, with its processes if it has several.
    pub fn job(&self, env: &JobEnv) -> Job {
        let process = |(process, program): (&ProcessSpec, JobSpec)| JobProcess {
            name: process.name.clone(),
            program: program.job(env),
            on_exit: process.on_exit,
        };
        let processes = zip(&self.processes, self.programs()).map(process).collect();
        let env = env.over(&self.env);
        let of_leadership = |name: &str| Some((name.to_owned(), env.get(name)?.clone()));
        let fields = LEADERSHIP_VARIABLES.into_iter().chain([DR_PROCESS]);
        let journal_fields = fields.filter_map(of_leadership).collect();
        Job {
            working_dir: self.working_dir.clone(),
            no_new_privileges: self.no_new_privileges,
            run_as: self.run_as.clone(),
            limits: self.limits,
            stop_signal: self.stop_signal,
            stop_timeout: self.stop_timeout,
            freezes: self.freezes,
            ready: self.ready.clone(),
            // It may become a standby or a standby this, as a later configuration says.
            notifies: self.standby.is_some(),
            ready_as: self.user_of(Helper::Ready),
            liveness: self.liveness.clone(),
            liveness_as: self.user_of(Helper::Liveness),
            restart: self.restart,
            exit_codes: self.exit_codes.clone(),
            output: self.output.clone(),
            output_limit: self.output_limit,
            journal_fields,
            processes,
            env,
            ..Job::new(&self.name, &self.command)
        }
    }
}

/// A command beside the job, with the job's directory and privileges.
pub(crate) fn beside(
    spec: &JobSpec,
    name: &str,
    run_as: Option<RunAs>,
    env: BTreeMap<String, String>,
) -> OneShot {
    OneShot {
        env,
        working_dir: spec.working_dir.clone(),
        no_new_privileges: spec.no_new_privileges,
        run_as,
        ..OneShot::new(format!("job {} {name}", spec.name))
    }
}

/// When the job of this leadership may work.
pub(crate) fn work_time(leadership: &Leadership) -> WorkTime {
    WorkTime::new(leadership.work_until().into(), leadership.suspended().into())
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        match &error {
            LockError::Held { .. } => Self::NotNow(format!("node.id: {error}")),
            LockError::Io { path, source } => {
                Self::on_host("node.state_dir", HostFault::of_user(path, source))
            }
            _ => Self::Internal(error.to_string()),
        }
    }
}
