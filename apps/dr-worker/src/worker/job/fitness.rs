//! Checks of a member: whether it is fit to lead.

use job_guard::{Check, Guards, probe_once};

use super::{described::beside, env::JobEnv};
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
    let command = beside(spec, "fitness", spec.user_of(Helper::Fitness), env.of_member(&spec.env, role));
    probe_once(&check.probe, command, guards).await
}
