//! How the run of a job begins.

use std::{io, os::fd::OwnedFd};

use super::{
    group::GroupSupervisor,
    guards::Guards,
    handover::RunState,
    lease::WorkTime,
    run::JobRun,
    status::{ProcessState, ProcessStatus},
    supervisor::Supervisor,
};
use crate::config::Job;

impl JobRun {
    /// Starts the job, which may work until the end of the lease in `time`. The job
    /// gets the stop signal early enough to have its whole stop timeout, and is killed before that time, by the guard
    /// alone if necessary.
    ///
    /// If its guard is killed, its main process ends. What else is left of it is ended only in a process that has called
    /// [`adopt_orphans`](crate::adopt_orphans).
    ///
    /// Faults of the description, such as a program that does not exist, appear only in [`JobRun::finished`].
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn start(job: Job, time: impl Into<WorkTime>, guards: Guards) -> JobRun {
        let is_group = !job.processes.is_empty();
        let (run, task, outcome) = JobRun::connect(job, time.into(), ProcessStatus::starting());
        if is_group {
            outcome.of(GroupSupervisor::new(task, guards).supervise());
        } else {
            outcome.of(Supervisor::new(task, guards).supervise());
        }
        run
    }

    /// Continues a run that the program before this one has handed over, with its descriptors. The job runs, and is ready unless
    /// it is one of [`left_runs`](crate::left_runs).
    ///
    /// # Errors
    /// If the descriptors can't be used, or the job has other processes.
    ///
    /// # Panics
    /// As [`JobRun::start`].
    pub fn adopt(
        job: Job,
        time: impl Into<WorkTime>,
        guards: Guards,
        state: RunState,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<JobRun> {
        let now = if state.is_starting { ProcessState::Starting } else { ProcessState::Running };
        let status = ProcessStatus {
            pid: state.main(),
            restarts: state.restarts.total(),
            ..ProcessStatus::in_state(now)
        };
        let is_group = !job.processes.is_empty();
        let (run, task, outcome) = JobRun::connect(job, time.into(), status);
        if is_group {
            outcome.of(GroupSupervisor::adopt(task, guards, state, descriptors)?.supervise());
        } else {
            outcome.of(Supervisor::adopt(task, guards, state, descriptors)?.supervise());
        }
        Ok(run)
    }
}
