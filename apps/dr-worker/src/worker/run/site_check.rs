//! Runs the site check of this node periodically, and publishes the result in all elections.

use election_core::{Election, internals::record::Health};
use job_guard::{Guards, OneShot, Tally, probe_once};
use tokio::time::{Instant, sleep_until};

use crate::{
    config::{Check, NodeConfig},
    mask::mask,
    worker::job::variables,
};

/// Runs until it is dropped. One success is enough to be healthy again: an error costs little, because most members of
/// the site have to agree.
pub(super) async fn keep(
    node: NodeConfig,
    check: Check,
    elections: Vec<Election>,
    guards: Guards,
    is_again: bool,
) {
    let env = variables(["DR_MEMBER", "DR_SITE"], [node.id.to_string(), node.site.to_string()]).collect();
    let command = OneShot { env, ..OneShot::new("site check") };
    let mut tally = Tally::new(check.failures);
    // Until the first answer, no leadership moves here after a failure of another site. A member that continues (`is_again`)
    // has reported an answer.
    elections
        .iter()
        .filter(|_| !is_again)
        .for_each(|election| election.set_site_health(Some(Health::Unknown)));
    loop {
        let next = Instant::now() + check.interval();
        let outcome = probe_once(&check.probe, command.clone(), &guards).await;
        // Only a change of the result is published, because each is a write.
        let report = tally.answered(outcome.is_ok());
        let failures = tally.in_a_row();
        if let Err(reason) = &outcome {
            tracing::debug!(failures, "the site check failed: {reason}");
        }
        if report.is_some() {
            let health = match outcome {
                Ok(()) => {
                    tracing::info!("the site check passes");
                    Health::Healthy
                }
                Err(reason) => {
                    tracing::warn!(failures, "the site check fails: {reason}");
                    Health::Unhealthy { reason: mask(&reason).into_owned() }
                }
            };
            elections.iter().for_each(|election| election.set_site_health(Some(health.clone())));
        }
        sleep_until(next).await;
    }
}
