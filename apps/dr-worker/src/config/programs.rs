//! The programs that a job consists of.

use std::{iter::zip, time::Duration};

use job_guard::{JobOutput, Limits, RotatedFile};

use super::{
    process::ProcessSpec,
    spec::{DR_PROCESS, JobSpec},
};

impl JobSpec {
    /// How long each process may take to end.
    fn stop_timeouts(&self) -> impl Iterator<Item = Duration> {
        let set: Duration = self.processes.iter().filter_map(|process| process.stop_timeout).sum();
        let open = self.processes.iter().filter(|process| process.stop_timeout.is_none()).count();
        let share = self.stop_timeout.saturating_sub(set) / u32::try_from(open.max(1)).unwrap_or(u32::MAX);
        self.processes.iter().map(move |process| process.stop_timeout.unwrap_or(share))
    }

    /// The programs of the job, each as a job of its own, with its key and what follows its end: one for each process, or the job
    /// itself.
    pub(crate) fn programs(&self) -> Vec<JobSpec> {
        if self.processes.is_empty() {
            return vec![self.clone()];
        }
        zip(&self.processes, self.stop_timeouts())
            .map(|(process, timeout)| self.program(process, timeout))
            .collect()
    }

    fn program(&self, process: &ProcessSpec, stop_timeout: Duration) -> JobSpec {
        let mut env = self.env.clone();
        env.extend(process.env.clone());
        env.insert(DR_PROCESS.to_owned(), process.name.clone());
        let (own, of_job) = (process.limits, self.limits);
        JobSpec {
            name: program_name(&self.name, &process.name),
            command: process.command.clone(),
            env,
            working_dir: process.working_dir.clone().or_else(|| self.working_dir.clone()),
            no_new_privileges: self.no_new_privileges,
            run_as: process.run_as.clone().or_else(|| self.run_as.clone()),
            as_worker: self.as_worker.clone(),
            limits: Limits {
                open_files: own.open_files.or(of_job.open_files),
                processes: own.processes.or(of_job.processes),
                memory: own.memory.or(of_job.memory),
            },
            stop_signal: process.stop_signal.unwrap_or(self.stop_signal),
            stop_timeout,
            freezes: self.freezes,
            ready: process.ready.clone(),
            liveness: process.liveness.clone(),
            exit_codes: process.exit_codes.clone().unwrap_or_else(|| self.exit_codes.clone()),
            output: output_of(&self.output, &process.name),
            output_limit: self.output_limit,
            ..JobSpec::default()
        }
    }
}

/// The name of a process among all programs: of its cgroup and its last output. No job has a slash in its name.
pub(crate) fn program_name(job: &str, process: &str) -> String {
    format!("{job}/{process}")
}

/// The name of the job in that of a program, and that of its process.
pub(crate) fn split_name(program: &str) -> (&str, Option<&str>) {
    program.split_once('/').map_or((program, None), |(job, process)| (job, Some(process)))
}

/// A file of its own for each process: `/var/log/shop.db.log` of `/var/log/shop.log`.
fn output_of(output: &JobOutput, process: &str) -> JobOutput {
    let JobOutput::File(file) = output else { return output.clone() };
    let mut name = file.path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{process}"));
    if let Some(extension) = file.path.extension() {
        name.push(".");
        name.push(extension);
    }
    JobOutput::File(RotatedFile { path: file.path.with_file_name(name), ..file.clone() })
}
