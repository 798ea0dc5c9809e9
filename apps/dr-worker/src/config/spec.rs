//! A job as it is configured: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use job_guard::{
    Check, ExitCodes, JobOutput, KILL_RESERVE, Limits, ReadyProbe, RestartPolicy, RunAs, Size, StopSignal,
};

use super::{drill_orders::JobDrill, fence::Fence, hook::Hooks, identity::Helper};

/// How long before the end of the lease the worker orders the end of a frozen job: the order must arrive before the guard
/// kills the job by its own clock.
pub(crate) const FROZEN_BUDGET: Duration = KILL_RESERVE.saturating_add(Duration::from_millis(100));

/// The environment variables that the worker sets for each leadership, in the order of
/// [`JobEnv`](crate::worker::job::JobEnv). A job's configuration may not set them.
pub(crate) const LEADERSHIP_VARIABLES: [&str; 9] = [
    "DR_JOB",
    "DR_MEMBER",
    "DR_SITE",
    "DR_SLOT",
    "DR_TERM",
    "DR_FENCING_TOKEN",
    "DR_CAUSE",
    "DR_PREVIOUS_LEADER",
    "DR_PREVIOUS_SITE",
];

/// The environment variable that a rehearsal has, with the value 1: it must change nothing that is in use.
pub(crate) const DR_REHEARSAL: &str = "DR_REHEARSAL";

/// The variables of a leadership that a rehearsal does not have: it is none.
pub(crate) const NOT_REHEARSED: [&str; 2] = ["DR_TERM", "DR_FENCING_TOKEN"];

/// The environment variables that only a hook has, besides those of the leadership.
pub(crate) const HOOK_VARIABLES: [&str; 3] = ["DR_HOOK", "DR_REASON", "DR_DEADLINE_MS"];

/// The environment variables that only a command has that fences, besides those of the leadership.
pub(crate) const FENCE_VARIABLES: [&str; 4] =
    ["DR_FENCE", "DR_FENCE_REASON", "DR_PREVIOUS_ADDRESS", "DR_PREVIOUS_TERM"];

/// The environment variable that holds the name of a guard's record, for everything that the guard starts.
pub(crate) const DR_RUN: &str = "DR_RUN";

/// A job: `[job.NAME]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// NAME in the section's title.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Set on top of the worker's environment, below the leadership's own variables.
    pub env: BTreeMap<String, String>,
    /// Where the job runs; the worker's own directory by default.
    pub working_dir: Option<PathBuf>,
    /// Whether neither the job nor its hooks and probes can become another user by a program's mode or capabilities
    /// (`no_new_privs`). `None`: decided so that this worker can kill everything that they start.
    pub no_new_privileges: Option<bool>,
    /// The user that the job runs as, with the commands beside it; the worker's own by default.
    pub run_as: Option<RunAs>,
    /// The commands beside it that run as the worker's user nevertheless.
    pub as_worker: Vec<Helper>,
    /// What it may take of its host.
    pub limits: Limits,
    /// The signal that asks the job to stop.
    pub stop_signal: StopSignal,
    /// The time between that and SIGKILL to its whole tree.
    pub stop_timeout: Duration,
    /// Whether its processes are stopped, and not asked to end, while the lease is not renewed: `policy.on_pause = "freeze"`.
    pub freezes: bool,
    /// The readiness probe.
    pub ready: ReadyProbe,
    /// How it is restarted when it ends.
    pub restart: RestartPolicy,
    /// The exit codes with a meaning.
    pub exit_codes: ExitCodes,
    /// Where its output goes.
    pub output: JobOutput,
    /// How many bytes of it go there in a second, over ten seconds; `None`: any number.
    pub output_limit: Option<Size>,
    /// Its hooks.
    pub hooks: Hooks,
    /// How a former leader is fenced that did not leave cleanly; `None`: not at all.
    pub fence: Option<Fence>,
    /// The command that measures this member, if any.
    pub measure: Option<Measure>,
    /// The liveness check, from READY on: if it fails, the job is stopped and restarted, as if it had ended.
    pub liveness: Option<Check>,
    /// The fitness check, on every member, leading or not: while it fails, the member is unhealthy.
    pub fitness: Option<Check>,
    /// What drills may do with it on this node.
    pub drill: JobDrill,
}

/// A command that runs periodically on every member, leading or not. Its standard output has values of the member, such
/// as a score or the lag of its replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The program and its arguments; environment and directory as for the job.
    pub command: Vec<String>,
    /// The pause between the beginnings of two runs.
    pub interval: Duration,
    /// After which a run is killed and counts as failed.
    pub timeout: Duration,
    /// How long the last values stay valid while the command fails.
    pub keep: Duration,
}

impl JobSpec {
    /// How long before the end of its lease a stop has to begin for the job to have its whole stop timeout: the stop
    /// budget of the timing rules.
    pub fn stop_budget(&self) -> Duration {
        self.stop_timeout + KILL_RESERVE
    }

    /// The user that a command beside the job runs as; `None`: the worker's.
    pub(crate) fn user_of(&self, helper: Helper) -> Option<RunAs> {
        self.run_as.clone().filter(|_| !self.as_worker.contains(&helper))
    }

    /// A job that ends at once, for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Self {
            name: "orders".into(),
            command: vec!["sh".into(), "-c".into(), "exit".into()],
            env: BTreeMap::new(),
            working_dir: None,
            no_new_privileges: None,
            run_as: None,
            as_worker: Vec::new(),
            limits: Limits::default(),
            stop_signal: StopSignal::Term,
            stop_timeout: Duration::from_secs(2),
            freezes: false,
            ready: ReadyProbe::None { after: Duration::ZERO },
            restart: RestartPolicy::default(),
            exit_codes: ExitCodes::default(),
            output: JobOutput::Log,
            output_limit: None,
            hooks: Hooks::default(),
            fence: None,
            measure: None,
            liveness: None,
            fitness: None,
            drill: JobDrill::default(),
        }
    }
}
