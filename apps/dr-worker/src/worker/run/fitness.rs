//! Runs a job's fitness check periodically, and publishes the result as the member's health.

use std::sync::Arc;

use election_core::{Election, internals::record::Health};
use job_guard::Tally;
use tokio::time::{Instant, sleep_until};

use crate::{
    config::Check,
    worker::{job::check_fitness, state::JobSlot},
};

/// Runs until it is dropped. The first answer counts at once, because the member is not elected before it. Later a
/// failure has to repeat itself before leadership moves; that is so from the beginning if the member continues (`is_again`)
/// and was healthy.
pub(super) async fn keep(slot: Arc<JobSlot>, election: Election, check: Check, is_again: bool) {
    let job = slot.name();
    let was_healthy = is_again && election.status().now().health == Health::Healthy;
    let mut tally = match was_healthy {
        true => Tally::new(check.failures),
        false => Tally::reporting_the_first(check.failures),
    };
    loop {
        let next = Instant::now() + check.interval();
        let role = election.status().now().role.as_str();
        let outcome = check_fitness(&slot.spec(), &check, &slot.env_of_member(), role, &slot.guards).await;
        // Only a change of the result is published, because each is a write.
        let report = tally.answered(outcome.is_ok());
        let failures = tally.in_a_row();
        if let Err(reason) = &outcome {
            tracing::debug!(job, failures, "the fitness check failed: {reason}");
        }
        if report.is_some() {
            election.set_health(match outcome {
                Ok(()) => {
                    tracing::info!(job, "this member is fit to lead: its fitness check passes");
                    Health::Healthy
                }
                Err(reason) => {
                    tracing::warn!(
                        job,
                        failures,
                        "this member is not fit to lead: its fitness check fails: {reason}"
                    );
                    Health::Unhealthy { reason: format!("fitness: {reason}") }
                }
            });
        }
        sleep_until(next).await;
    }
}
