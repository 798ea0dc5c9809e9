//! A job as it is configured: plain data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use job_guard::{
    Check, ExitCodes, JobOutput, KILL_RESERVE, Limits, ReadyProbe, RestartPolicy, RunAs, Size, StopSignal,
};

use super::{
    check::CheckKeys,
    drill_orders::{JobDrill, Rehearsal},
    exit_codes::ExitKeys,
    fence::Fence,
    hook::Hooks,
    identity::{Helper, UserKeys},
    key::Reach,
    limits::LimitKeys,
    parse::{DAY, HOUR, MILLISECOND, MINUTE, SECOND},
    probe::ReadyKeys,
    process::{self, ProcessSpec},
    reader::Section,
    standby::{NOT_HEARD, RoleChange, StandbySpec},
    table::{each, flat_as, nested, nested_as, optional, optional_nested, required, table, unread, value},
};

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

/// The environment variable with the name of a process, in a job that has several.
pub(crate) const DR_PROCESS: &str = "DR_PROCESS";

/// The environment variable that a rehearsal has, with the value 1: it must change nothing that is in use.
pub(crate) const DR_REHEARSAL: &str = "DR_REHEARSAL";

/// The variables of a leadership that a rehearsal does not have: it is none.
pub(crate) const NOT_REHEARSED: [&str; 2] = ["DR_TERM", "DR_FENCING_TOKEN"];

/// The environment variables that only the programs of a job with a standby have, besides those of the leadership.
pub(crate) const STANDBY_VARIABLES: [&str; 5] =
    ["DR_ROLE", "DR_LEADER", "DR_LEADER_ADDRESS", "DR_LEADER_SITE", "DR_LEADERSHIP_FILE"];

/// The environment variables that only a hook has, besides those of the leadership.
pub(crate) const HOOK_VARIABLES: [&str; 3] = ["DR_HOOK", "DR_REASON", "DR_DEADLINE_MS"];

/// The environment variables that only a command has that fences, besides those of the leadership.
pub(crate) const FENCE_VARIABLES: [&str; 4] =
    ["DR_FENCE", "DR_FENCE_REASON", "DR_PREVIOUS_ADDRESS", "DR_PREVIOUS_TERM"];

/// The environment variable that holds the name of a guard's record, for everything that the guard starts.
pub(crate) const DR_RUN: &str = "DR_RUN";

table! {
    /// A job: `[job.NAME]` of the configuration.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct JobSpec {
        /// NAME in the section's title.
        pub name: String = String::new() => unread();
        /// Program and arguments. A path, or a name in PATH; no shell.
        pub command: Vec<String> = Vec::new() => required(
            "the program to run on the leader and its arguments, such as [\"/usr/bin/job\", \"--fast\"]"
        ).unless("process").job().set("[\"ledger\", \"run\", \"--orders\", \"/var/lib/dr-worker/orders.csv\"]");
        /// Variables added to the worker's environment. Here: where the ledger is stored. For two real sites use a store that
        /// both reach: postgres://ledger@db:5432/ledger
        pub env: BTreeMap<String, String> = BTreeMap::new() => value().job().set(
            "{ LEDGER_STORE = \"sqlite:/var/lib/dr-worker/ledger.db\" }"
        );
        /// Working directory. Default: that of the worker.
        pub working_dir: Option<PathBuf> = None => optional().job().example("\"/srv/orders\"");
        /// Forbid the job, its hooks and its probes to change the user (no_new_privs). Default: true, unless the worker may kill
        /// processes of all users (root); always true for a job with `user`. See docs/configuration.md before you set it to false.
        pub no_new_privileges: Option<bool> = None => optional().job().example("true");
        /// The user that the job runs as, with the commands beside it; the worker's own by default.
        pub run_as: Option<RunAs> = None => flat_as(UserKeys::default()).job().overlay(Reach::Node);
        /// Programs that run as the worker's user instead, by their keys: hooks, "ready", "liveness", "fitness", "measure",
        /// "fence", "drill.probe". For an address or a route that only root can set.
        pub as_worker: Vec<Helper> = Vec::new() => value().applied().overlay(Reach::Node).example("[\"after_ready\", \"after_stop\"]");
        /// Limits of the job. See docs/configuration.md for what they mean without a cgroup of its own. Default: those of the
        /// worker.
        pub limits: Limits = Limits::default() => nested_as(LimitKeys::default()).job().overlay(Reach::Safe);
        /// Signal that asks the job to end.
        pub stop_signal: StopSignal = StopSignal::Term => value().job();
        /// How long it may take to end. Then its whole process tree is killed.
        pub stop_timeout: Duration = 2 * SECOND => value().within(Duration::ZERO..=HOUR).job().overlay(Reach::Safe);
        /// How long a ready job may take to end while the lease goes on being renewed: in a switchover, a drain, maintenance, at
        /// the end of the worker, by `dr-worker stop` or `restart`. Once the lease is not renewed, `stop_timeout` counts.
        /// Default: stop_timeout.
        pub planned_stop_timeout: Option<Duration> = None => optional().within(Duration::ZERO..=DAY).applied().overlay(Reach::Safe).example("\"5m\"");
        /// Whether its processes are stopped, and not asked to end, while the lease is not renewed: `policy.on_pause = "freeze"`.
        pub freezes: bool = false => unread();
        /// When the job counts as serving.
        pub ready: ReadyProbe = ReadyProbe::None { after: SECOND } => nested_as(ReadyKeys::default()).job().shows(
            "that the job is ready"
        );
        /// Restarts of a job that ends: so many within this window, after a pause that doubles from backoff to backoff_max.
        /// After that the worker gives up leadership, and another member is elected.
        pub restart: RestartPolicy = RestartPolicy::default() => nested().applied().overlay(Reach::Safe);
        /// Exit codes of a job that ends by itself.
        pub exit_codes: ExitCodes = ExitCodes::default() => nested_as(ExitKeys::default()).applied().overlay(Reach::Safe);
        /// Where its output goes.
        pub output: JobOutput = JobOutput::Log => unread();
        /// How many bytes of it go there in a second, over ten seconds; `None`: any number.
        pub output_limit: Option<Size> = None => unread();
        /// Programs at certain moments, with the job's environment and more. A failure of prepare or before_takeover fails the
        /// takeover, their exit code 75 declines leadership. A failure of before_stop calls off a planned move, or a restart. Other
        /// failures are reported. on_leader_changed runs on every member.
        /// The worker waits for a hook with the mode "sync"; one with "async" delays nothing. Only before_stop and after_stop have
        /// a choice; after_ready and on_leader_changed are always "async". See docs/configuration.md.
        pub hooks: Hooks = Hooks::default() => nested().applied();
        /// Commands that fence a former leader which did not leave cleanly, in this order, before the job starts. All must succeed
        /// within their timeouts, and within policy.takeover_timeout together. See docs/fencing.md.
        pub fence: Option<Fence> = None => optional_nested(Fence::default()).worker("what fences this member is announced when it joins");
        /// Program on every member that prints attributes for the stages "score" and "limit": lines name=value, or one JSON
        /// object.
        pub measure: Option<Measure> = None => optional_nested(Measure::default()).applied();
        /// Check of the running job on its leader. After `failures` failures in a row the job is stopped, and restarted as
        /// `restart` allows. timeout must not be longer than interval; the kind "none" turns it off.
        pub liveness: Option<Check> = None => optional_nested(CheckKeys::of_job()).has_kind().applied().shows(
            "that the job still serves"
        ).example("{ kind = \"http\", url = \"http://127.0.0.1:8080/health\", interval = \"5s\", timeout = \"2s\", failures = 3 }");
        /// Check on every member of whether it is fit to lead. A member is not elected before its first success, nor after
        /// `failures` failures in a row. Keys as for liveness; the variable DR_ROLE has the member's role.
        pub fitness: Option<Check> = None => optional_nested(CheckKeys::of_job()).has_kind().applied().shows(
            "that this member is fit to lead"
        ).example("{ kind = \"exec\", command = [\"/usr/bin/replica-status\", \"--healthy\"], failures = 3 }");
        /// Program on every member that does not lead, which is promoted where it leads. See docs/standbys.md.
        pub standby: Option<StandbySpec> = None => optional_nested(StandbySpec::default()).handover();
        /// Other jobs that must be READY first: this job's program starts while each of them has a READY leader, on any member,
        /// and stops before one of them stops as planned. See docs/policies.md, "Other jobs".
        pub after: Vec<String> = Vec::new() => value().applied().check(|jobs: &Vec<String>| listed_twice(jobs));
        /// Whether the program is restarted when the leader of a job in `after` has changed.
        pub restart_with: bool = false => value().applied();
        /// Programs that run together on the leader, instead of `command`: each is started once those before it are ready, and they
        /// are stopped in reverse. See docs/several-processes.md.
        pub processes as process: Vec<ProcessSpec> = Vec::new() => each(ProcessSpec::default()).job().overlay(Reach::Node);
        /// Drills of this job on this node.
        pub drill: JobDrill = JobDrill::default() => nested().applied().inherits("drill");
        /// Rehearsal of this job on a standby member: it is started with DR_REHEARSAL=1 and without DR_TERM and DR_FENCING_TOKEN,
        /// must become ready within `timeout`, and is stopped.
        pub rehearsal: Rehearsal = Rehearsal::default() => nested().applied();
    }
    check JobSpec::check_keys;
}

table! {
    for RestartPolicy {
        /// How many restarts are allowed within `within`. If the job ends once more, it has failed. 0: no restart.
        max: u32 => value();
        /// The window that restarts are counted in.
        within: Duration => value().within(MILLISECOND..=DAY);
        /// The pause before a restart, doubled with each one in the window.
        backoff: Duration => value().within(MILLISECOND..=DAY);
        /// The longest pause.
        backoff_max: Duration => value().within(MILLISECOND..=DAY);
    }
    check check_restart;
}

fn check_restart(restart: &mut RestartPolicy, section: &mut Section<'_>) {
    if restart.backoff_max < restart.backoff {
        section.problem("backoff_max", "it is shorter than backoff");
    }
}

fn listed_twice(names: &[String]) -> Option<String> {
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    twice.map(|(_, name)| format!("{name:?} is listed twice; list it once"))
}

table! {
    /// A command that runs periodically on every member, leading or not. Its standard output has values of the member, such
    /// as a score or the lag of its replica.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Measure {
        /// The program and its arguments; environment and directory as for the job.
        pub command: Vec<String> = Vec::new() => required(
            "the program to run and its arguments; it prints name=value lines or a JSON object"
        ).example("[\"/usr/bin/replica-status\", \"--lag\"]");
        // Its output is written to ZooKeeper.
        /// The pause between the beginnings of two runs.
        pub interval: Duration = 10 * SECOND => value().within(100 * MILLISECOND..=HOUR);
        /// How long a run may take before it is killed and counts as failed.
        pub timeout: Duration = 5 * SECOND => value().within(MILLISECOND..=HOUR);
        /// How long the last values stay valid while the command fails.
        pub keep: Duration = MINUTE => value().within(Duration::ZERO..=DAY);
    }
}

impl JobSpec {
    /// How long before the end of its lease a stop has to begin for the job to have its whole stop timeout: the stop
    /// budget of the timing rules.
    pub fn stop_budget(&self) -> Duration {
        self.stop_timeout + KILL_RESERVE
    }

    /// How long the end of a killed worker may take: that of the job or of its standby.
    pub(crate) fn longest_stop(&self) -> Duration {
        let of_standby = self.standby.as_ref().map_or(Duration::ZERO, |standby| standby.stop_timeout);
        self.stop_timeout.max(of_standby) + KILL_RESERVE
    }

    /// How long demote may take before that.
    pub fn demote_timeout(&self) -> Duration {
        match self.standby.as_ref().map(|standby| &standby.demote) {
            Some(RoleChange::Exec { timeout, .. }) => *timeout,
            _ => Duration::ZERO,
        }
    }

    /// How long a stop of the ready job may take while the lease is renewed.
    pub fn planned_stop_timeout(&self) -> Duration {
        self.planned_stop_timeout.unwrap_or(self.stop_timeout)
    }

    fn check_keys(&mut self, section: &mut Section<'_>) {
        if self.planned_stop_timeout() < self.stop_timeout {
            section.problem("planned_stop_timeout", "it is shorter than stop_timeout");
        }
        if self.standby.as_ref().is_some_and(|standby| standby.outlives) && self.ready == ReadyProbe::Notify {
            section.problem("ready", NOT_HEARD);
        }
        if self.restart_with && self.after.is_empty() {
            section.problem("restart_with", "it needs `after` as well");
        }
        process::check_together(&self.processes, self.stop_timeout, section);
        if self.run_as.is_none() && !self.as_worker.is_empty() && !section.has("user") {
            section.problem("as_worker", "it needs `user` as well");
        }
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
            ready: ReadyProbe::None { after: Duration::ZERO },
            ..Self::default()
        }
    }
}
