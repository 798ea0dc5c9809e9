//! The user that a job runs as.

use job_guard::{RunAs, capabilities::may_run_as_any_user};

use super::{hook::HookName, parse::choice, reader::Section};
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
    later: []
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

/// Reads `as_worker` of a job with this user.
pub(super) fn read_as_worker(section: &mut Section<'_>, run_as: Option<&RunAs>) -> Vec<Helper> {
    let helpers: Vec<Helper> = section.or("as_worker", Vec::new());
    if run_as.is_none() && !helpers.is_empty() && !section.has("user") {
        section.problem("as_worker", "it needs `user` as well");
    }
    helpers
}

/// Reads `user` and `group` of a job.
pub(super) fn read_run_as(section: &mut Section<'_>) -> Option<RunAs> {
    let (user, group) = (section.optional("user"), section.optional("group"));
    if user.is_none() && group.is_some() && !section.has("user") {
        section.problem("group", "it needs `user` as well");
    }
    Some(RunAs { user: user?, group })
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
