//! A job as it is configured: plain data, and what can be found wrong with it before it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::signal::StopSignal;

/// How long before the lease's end SIGKILL is sent at the latest, so that the kernel has torn the
/// process tree down by the end of the lease.
pub const KILL_RESERVE: Duration = Duration::from_millis(300);

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

/// The environment variable that holds the name of a guard's record, for everything that the guard starts.
pub(crate) const DR_RUN: &str = "DR_RUN";

/// A job: `[job.NAME]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// NAME.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Set on top of the worker's environment, below the leadership's own variables.
    pub env: BTreeMap<String, String>,
    /// Where the job runs; the worker's own directory by default.
    pub working_dir: Option<PathBuf>,
    /// Whether neither the job nor its hooks and probes can become another user by a program's mode or
    /// capabilities (`no_new_privs`). `None`: so that all that they start can be killed by this worker.
    pub no_new_privileges: Option<bool>,
    /// The signal that asks the job to stop.
    pub stop_signal: StopSignal,
    /// The time between that and SIGKILL to its whole tree.
    pub stop_timeout: Duration,
    /// How it is told that the job serves.
    pub ready: ReadyProbe,
    /// How it is started again when it ends.
    pub restart: RestartPolicy,
    /// What else is run around it.
    pub hooks: Hooks,
    /// What tells how fit this member is, if anything does.
    pub measure: Option<Measure>,
    /// Tried while it runs, from READY on: when it fails the job is ended and started again, as if it had ended.
    pub liveness: Option<Check>,
    /// Tried on every member, leading or not: while it fails the member is unhealthy.
    pub fitness: Option<Check>,
}

/// How it is told that a job serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadyProbe {
    /// Nobody asks: it serves when its program has run for a while.
    None {
        /// For how long: what ends before has not served at all.
        after: Duration,
    },
    /// It serves when this command ends with exit code 0.
    Exec {
        /// The program and its arguments; environment and directory as for the job.
        command: Vec<String>,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try is killed and counts as failed.
        timeout: Duration,
    },
    /// It serves when a GET of this address is answered with a 2xx status.
    Http {
        /// `http://...`
        url: String,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try counts as failed.
        timeout: Duration,
    },
    /// It serves when this address accepts a connection.
    Tcp {
        /// `HOST:PORT`
        address: String,
        /// The pause between two tries.
        interval: Duration,
        /// After which a try counts as failed.
        timeout: Duration,
    },
    /// It serves when it says `READY=1` on the socket that `NOTIFY_SOCKET` names, as for
    /// `sd_notify`.
    Notify,
}

impl ReadyProbe {
    /// The pause between two tries, and the timeout of one; none where nothing is tried.
    pub fn pace(&self) -> Option<(Duration, Duration)> {
        match self {
            ReadyProbe::None { .. } | ReadyProbe::Notify => None,
            ReadyProbe::Exec { interval, timeout, .. }
            | ReadyProbe::Http { interval, timeout, .. }
            | ReadyProbe::Tcp { interval, timeout, .. } => Some((*interval, *timeout)),
        }
    }
}

/// A probe that is tried again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is tried: `exec`, `http` or `tcp`.
    pub probe: ReadyProbe,
    /// After so many failures in a row it counts as failed; at least 1.
    pub failures: u32,
}

impl Check {
    /// The pause between the beginnings of two tries.
    pub fn interval(&self) -> Duration {
        self.probe.pace().map_or(Duration::MAX, |(interval, _)| interval)
    }
}

/// How a job that ended is started again.
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

/// A command that is run again and again on every member, leading or not, and whose standard
/// output says how fit the member is: such as a score, or how far its replica lags behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The program and its arguments; environment and directory as for the job.
    pub command: Vec<String>,
    /// The pause between the beginnings of two runs.
    pub interval: Duration,
    /// After which a run is killed and counts as failed.
    pub timeout: Duration,
    /// For how long what was measured last goes on counting while the command fails.
    pub keep: Duration,
}

/// A command that is run at a certain moment of a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The program and its arguments; environment and directory as for the job.
    pub command: Vec<String>,
    /// After which it is killed with everything it started, and counts as failed.
    pub timeout: Duration,
}

/// The hooks of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// While the old leader may still be stopping; must change nothing outside this node.
    pub prepare: Option<Hook>,
    /// Leadership is held, the job not started yet.
    pub before_takeover: Option<Hook>,
    /// The job serves.
    pub after_ready: Option<Hook>,
    /// The job is about to be stopped.
    pub before_stop: Option<Hook>,
    /// Nothing of the job runs any more.
    pub after_stop: Option<Hook>,
    /// On every member, when it learns of another leader.
    pub on_leader_changed: Option<Hook>,
}

/// Which of the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookName {
    /// [`Hooks::prepare`]
    Prepare,
    /// [`Hooks::before_takeover`]
    BeforeTakeover,
    /// [`Hooks::after_ready`]
    AfterReady,
    /// [`Hooks::before_stop`]
    BeforeStop,
    /// [`Hooks::after_stop`]
    AfterStop,
    /// [`Hooks::on_leader_changed`]
    OnLeaderChanged,
}

impl HookName {
    /// All of them, in the order of a leadership.
    pub const ALL: [HookName; 6] = [
        HookName::Prepare,
        HookName::BeforeTakeover,
        HookName::AfterReady,
        HookName::BeforeStop,
        HookName::AfterStop,
        HookName::OnLeaderChanged,
    ];

    /// The name as it is configured.
    pub fn as_str(self) -> &'static str {
        match self {
            HookName::Prepare => "prepare",
            HookName::BeforeTakeover => "before_takeover",
            HookName::AfterReady => "after_ready",
            HookName::BeforeStop => "before_stop",
            HookName::AfterStop => "after_stop",
            HookName::OnLeaderChanged => "on_leader_changed",
        }
    }
}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Hooks {
    /// The hook of that name, if one is configured.
    pub fn get(&self, name: HookName) -> Option<&Hook> {
        match name {
            HookName::Prepare => &self.prepare,
            HookName::BeforeTakeover => &self.before_takeover,
            HookName::AfterReady => &self.after_ready,
            HookName::BeforeStop => &self.before_stop,
            HookName::AfterStop => &self.after_stop,
            HookName::OnLeaderChanged => &self.on_leader_changed,
        }
        .as_ref()
    }
}

impl JobSpec {
    /// How long before its end a stop has to begin for the job to have its whole stop timeout: the
    /// stop budget of the timing rules.
    pub fn stop_budget(&self) -> Duration {
        self.stop_timeout + KILL_RESERVE
    }
}
