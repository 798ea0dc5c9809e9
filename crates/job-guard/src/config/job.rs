//! A program that is supervised.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::{Check, JobOutput, Limits, ReadyProbe, RunAs, Size, StopSignal};

/// How long before the deadline SIGKILL is sent at the latest, so that the kernel has torn the
/// process tree down by then.
pub const KILL_RESERVE: Duration = Duration::from_millis(300);

/// A program that is supervised: started, probed, restarted, and stopped with its whole process tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name: in the log, of its cgroup and of the files with its last output.
    pub name: String,
    /// The program and its arguments. The program is looked up in the `PATH` of `env`.
    pub command: Vec<String>,
    /// Set on top of this process's environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs; this process's directory by default.
    pub working_dir: Option<PathBuf>,
    /// Whether neither the program nor its probes can become another user by a program's mode or capabilities
    /// (`no_new_privs`). `None`: decided so that this process can kill everything that they start.
    pub no_new_privileges: Option<bool>,
    /// The user that it runs as; this process's own by default.
    pub run_as: Option<RunAs>,
    /// What it may take of its host.
    pub limits: Limits,
    /// The signal that asks it to stop.
    pub stop_signal: StopSignal,
    /// The time between that and SIGKILL to its whole tree. A lease that is not longer than this and [`KILL_RESERVE`] starts
    /// nothing.
    pub stop_timeout: Duration,
    /// Whether its processes are stopped (SIGSTOP), and not asked to end, while its deadline is not moved on.
    pub freezes: bool,
    /// The readiness probe.
    pub ready: ReadyProbe,
    /// Whether the program goes on if this process dies, until the next one continues it ([`left_runs`](crate::left_runs)), or ends
    /// it ([`sweep`](crate::sweep)). Only without a deadline: a program that gets one by [`JobRun::arm`](crate::JobRun::arm) ends
    /// with its process from then on. Needs [`Guards::lock`](crate::Guards::lock).
    pub outlives: bool,
    /// Whether it gets a `NOTIFY_SOCKET` although `ready` is another probe, for a role to which [`JobRun::arm`](crate::JobRun::arm)
    /// may change it.
    pub notifies: bool,
    /// The user that a command of `ready` runs as.
    pub ready_as: Option<RunAs>,
    /// The liveness check, from the first readiness on: if it fails, the program is stopped and restarted, as if it had ended.
    pub liveness: Option<Check>,
    /// The user that a command of `liveness` runs as.
    pub liveness_as: Option<RunAs>,
    /// How it is restarted when it ends.
    pub restart: RestartPolicy,
    /// The exit codes with a meaning.
    pub exit_codes: ExitCodes,
    /// Where its output goes.
    pub output: JobOutput,
    /// How many bytes of it go there in a second, over ten seconds; `None`: any number.
    pub output_limit: Option<Size>,
    /// What an entry in the journal has besides the line.
    pub journal_fields: BTreeMap<String, String>,
    /// The programs that it consists of, in the order of their start. Empty: it is one program, `command`. Otherwise only `name`,
    /// `stop_timeout` and `restart` of this description count, for all of them together.
    pub processes: Vec<JobProcess>,
}

/// One of several programs of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProcess {
    /// Its name in the job.
    pub name: String,
    /// The program; its own `restart` is not used. Its `name` must differ from those of all other jobs and processes. The
    /// stop timeouts of all together should be no longer than that of the job.
    pub program: Job,
    /// What follows if it ends.
    pub on_exit: OnExit,
}

/// Which processes of a job are restarted when one of them ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// That one.
    RestartOne,
    /// It and those that are started after it.
    #[default]
    RestartRest,
    /// All of them.
    RestartAll,
}

impl Job {
    /// A job with this name and command, and the usual settings: SIGTERM, ten seconds until SIGKILL, ready when it runs, three
    /// restarts within a minute.
    pub fn new(name: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> Job {
        Job {
            name: name.into(),
            command: command.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            working_dir: None,
            no_new_privileges: None,
            run_as: None,
            limits: Limits::default(),
            stop_signal: StopSignal::default(),
            stop_timeout: Duration::from_secs(10),
            freezes: false,
            ready: ReadyProbe::None { after: Duration::ZERO },
            outlives: false,
            notifies: false,
            ready_as: None,
            liveness: None,
            liveness_as: None,
            restart: RestartPolicy::default(),
            exit_codes: ExitCodes::default(),
            output: JobOutput::Log,
            output_limit: None,
            journal_fields: BTreeMap::new(),
            processes: Vec::new(),
        }
    }

    /// Whether the other description has processes of the same names in the same order, or neither has any.
    pub(crate) fn has_processes_of(&self, other: &Job) -> bool {
        let names = |job: &Job| job.processes.iter().map(|process| process.name.clone()).collect::<Vec<_>>();
        names(self) == names(other)
    }

    /// How long before its deadline a stop has to begin for the program to have its whole stop timeout.
    pub fn stop_budget(&self) -> Duration {
        self.stop_timeout.saturating_add(KILL_RESERVE)
    }
}

/// How a job that ended is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// How many restarts within `within`; one more end, and the job has failed. 0: none at all.
    pub max: u32,
    /// The window that restarts are counted in.
    pub within: Duration,
    /// The pause before a restart, doubled with each one in the window.
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            max: 3,
            within: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// Exit codes of a job after which it is not restarted here, if it ended by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitCodes {
    /// It stays down, and counts as ready.
    pub stay_down: Vec<i32>,
    /// It can't run on this host: its run is over.
    pub not_here: Vec<i32>,
}
