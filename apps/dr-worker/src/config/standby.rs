//! `[job.NAME.standby]`: the program that runs on every member that does not lead.

use std::time::Duration;

use job_guard::{Check, ReadyProbe, RestartPolicy, StopSignal};

use super::{
    check::CheckKeys,
    parse::{HOUR, MILLISECOND, SECOND, choice},
    probe::ReadyKeys,
    reader::Section,
    table::{nested, nested_as, optional_nested, required, table, value},
};

table! {
    /// `[job.NAME.standby]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StandbySpec {
        /// The program and its arguments; environment, directory, user and limits as for the job.
        pub command: Vec<String> = Vec::new() => required(
            "the program to run on every member that does not lead, and its arguments"
        ).example("[\"/usr/local/bin/db\", \"--replica\"]");
        /// How the running standby becomes the leader's program. "restart": it is stopped, and the job's command is started.
        pub promote: RoleChange = RoleChange::Restart => nested_as(ChangeKeys::default());
        /// How the leader's program becomes a standby again in a planned move. "restart": it is stopped, and the standby's
        /// command is started.
        pub demote: RoleChange = RoleChange::Restart => nested_as(ChangeKeys::default());
        /// What the running standby needs when the leader has changed.
        pub follow: RoleChange = RoleChange::None => nested_as(ChangeKeys::of(ChangeKind::None));
        /// When the standby counts as ready.
        pub ready: ReadyProbe = ReadyProbe::None { after: SECOND } => nested_as(ReadyKeys::default()).shows(
            "that the standby is ready"
        );
        /// Check of the running standby. After `failures` failures in a row it is stopped, and restarted as `restart` allows;
        /// leadership does not move. Keys as for the job's liveness, which is the check of the leader's program.
        pub liveness: Option<Check> = None => optional_nested(CheckKeys::of_job()).has_kind().shows(
            "that the standby still serves"
        ).example("{ kind = \"tcp\", address = \"127.0.0.1:5432\", interval = \"5s\", timeout = \"2s\", failures = 3 }");
        /// Whether a member without a ready standby is not elected.
        pub required: bool = false => value();
        /// Whether the standby goes on when its worker has died, and the next worker continues it. A program that was promoted ends
        /// with its worker. Needs another `ready` than "notify", of the standby and of the job.
        pub outlives: bool = false => value();
        /// How long the standby may take to end. Then its whole process tree is killed.
        pub stop_timeout: Duration = 10 * SECOND => value().within(Duration::ZERO..=HOUR);
        /// Restarts of a standby that ends: so many within this window, after a pause that doubles from backoff to backoff_max.
        /// After that it is started again after backoff_max.
        pub restart: RestartPolicy = RestartPolicy {
            max: 5,
            within: Duration::from_secs(600),
            backoff: SECOND,
            backoff_max: Duration::from_secs(60),
        } => nested();
    }
    check StandbySpec::check;
}

/// How a running program changes its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// Not at all: it finds out for itself.
    None,
    /// It is stopped, and the other role's program is started.
    Restart,
    /// By a command.
    Exec {
        /// The program and its arguments.
        command: Vec<String>,
        /// After which it is killed with everything it started, and counts as failed.
        timeout: Duration,
    },
    /// By a signal to its main process.
    Signal(StopSignal),
}

choice! {
    enum ChangeKind {
        None = "none",
        Restart = "restart",
        Exec = "exec",
        Signal = "signal",
    }
}

table! {
    #[derive(Clone)]
    struct ChangeKeys {
        /// How: "restart", "exec" (a command), "signal" (to the main process), or "none" (only `follow`).
        kind: ChangeKind = ChangeKind::Restart => value();
        /// The program and its arguments; environment, directory and user as for the job.
        command: Vec<String> = Vec::new() => required("the program to run and its arguments").only(&["exec"]);
        /// After which it is killed with everything it started, and counts as failed.
        timeout: Duration = 30 * SECOND => value().within(MILLISECOND..=HOUR).only(&["exec"]);
        /// The signal.
        signal: StopSignal = StopSignal::Usr1 => value().only(&["signal"]);
    }
}

impl ChangeKeys {
    fn of(kind: ChangeKind) -> Self {
        Self { kind, ..Self::default() }
    }
}

impl From<ChangeKeys> for RoleChange {
    fn from(ChangeKeys { kind, command, timeout, signal }: ChangeKeys) -> Self {
        match kind {
            ChangeKind::None => RoleChange::None,
            ChangeKind::Restart => RoleChange::Restart,
            ChangeKind::Exec => RoleChange::Exec { command, timeout },
            ChangeKind::Signal => RoleChange::Signal(signal),
        }
    }
}

/// Why a standby that outlives its worker can't report its readiness.
pub(super) const NOT_HEARD: &str =
    "what a program reports by \"notify\" is lost with its worker; use another `ready`";

impl StandbySpec {
    fn check(&mut self, section: &mut Section<'_>) {
        for (key, change) in [("promote", &self.promote), ("demote", &self.demote)] {
            if *change == RoleChange::None {
                section.problem(key, "the kind \"none\" is for `follow`");
            }
        }
        if let RoleChange::Signal(_) = self.demote {
            section.problem(
                "demote",
                "a signal does not show when the demotion has ended; valid: \"restart\", \"exec\"",
            );
        }
        if self.outlives && self.ready == ReadyProbe::Notify {
            section.problem("outlives", NOT_HEARD);
        }
    }
}
