//! Checks of a member: whether it is fit to lead.

use job_guard::{Check, Guards, OneShot, probe_once};

use super::env::JobEnv;
use crate::config::{Helper, JobSpec};

/// One try of a job's fitness check on a member with this `role`. The error is the reason, as a sentence.
///
/// # Cancel safety
/// If the future is dropped, the guard kills a running command soon after.
pub(crate) async fn check_fitness(
    spec: &JobSpec,
    check: &Check,
    env: &JobEnv,
    role: &str,
    guards: &Guards,
) -> Result<(), String> {
    let command = OneShot {
        env: env.of_member(&spec.env, role),
        working_dir: spec.working_dir.clone(),
        no_new_privileges: spec.no_new_privileges,
        run_as: spec.user_of(Helper::Fitness),
        ..OneShot::new(format!("job {} fitness", spec.name))
    };
    probe_once(&check.probe, command, guards).await
}
