//! The user that a job runs as.

use job_guard::{RunAs, capabilities::may_run_as_any_user};

use super::{
    hook::HookName,
    parse::choice,
    reader::Section,
    table::{optional, table},
};
use crate::host_fault::HostFault;

choice! {
    /// A command beside the job's program: a hook, a check or another one that the job's section names.
    pub enum Helper {
        /// `hooks.prepare`
        Prepare = "prepare",
        /// `hooks.before_takeover`
        BeforeTakeover = "before_takeover",
        /// `hooks.after_ready`
        AfterReady = "after_ready",
        /// `hooks.before_stop`
        BeforeStop = "before_stop",
        /// `hooks.after_stop`
        AfterStop = "after_stop",
        /// `hooks.on_leader_changed`
        OnLeaderChanged = "on_leader_changed",
        /// `ready`
        Ready = "ready",
        /// `liveness`
        Liveness = "liveness",
        /// `fitness`
        Fitness = "fitness",
        /// `measure`
        Measure = "measure",
        /// All commands of `fence`.
        Fence = "fence",
        /// `drill.probe`
        DrillProbe = "drill.probe",
    }
}

impl From<HookName> for Helper {
    fn from(hook: HookName) -> Self {
        match hook {
            HookName::Prepare => Self::Prepare,
            HookName::BeforeTakeover => Self::BeforeTakeover,
            HookName::AfterReady => Self::AfterReady,
            HookName::BeforeStop => Self::BeforeStop,
            HookName::AfterStop => Self::AfterStop,
            HookName::OnLeaderChanged => Self::OnLeaderChanged,
        }
    }
}

table! {
    /// `user` and `group` of a job.
    pub(super) struct UserKeys {
        /// User that the job or the process runs as, by name or number; only for a worker that is root, or has CAP_SETUID,
        /// CAP_SETGID and CAP_KILL. Default: the job's for a process, the worker's for a job. Hooks, checks, measure and fence
        /// commands of a job run as its user too.
        user: Option<String> = None => optional().example("\"ledger\"");
        /// Group that it runs as. Default: the group of `user`.
        group: Option<String> = None => optional().example("\"ledger\"");
    }
    check UserKeys::check;
}

impl UserKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        if self.user.is_none() && self.group.is_some() && !section.has("user") {
            section.problem("group", "it needs `user` as well");
        }
    }
}

impl From<UserKeys> for Option<RunAs> {
    fn from(UserKeys { user, group }: UserKeys) -> Self {
        Some(RunAs { user: user?, group })
    }
}

/// Whether a job can run as this user here.
///
/// # Errors
/// The key, and what is wrong and what to do.
pub(super) fn check_run_as(run_as: &RunAs) -> Result<(), (&'static str, HostFault)> {
    let identity = run_as.resolve().map_err(|error| (error.key, HostFault::absent(error.why)))?;
    if identity.is_own() || may_run_as_any_user() {
        return Ok(());
    }
    Err((
        "user",
        format!(
            "this process may not run a job as {:?} and end it: run the worker as root, or with CAP_SETUID, \
             CAP_SETGID and CAP_KILL",
            run_as.user
        )
        .into(),
    ))
}
