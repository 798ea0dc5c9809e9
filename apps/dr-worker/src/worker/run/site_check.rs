//! Looks again and again whether the whole site of this node is fit, and tells the elections.

use std::collections::BTreeMap;

use election_core::{Election, record::Health};
use tokio::time::{Instant, sleep_until};

use crate::{
    config::{Check, NodeConfig},
    worker::job::{Guards, Tally, check_once},
};

/// Checks for ever. One success is enough to be well again: to be wrong about that costs little, as
/// most members of the site have to agree anyway.
pub(super) async fn keep(node: NodeConfig, check: Check, elections: Vec<Election>, guards: Guards) {
    let env: BTreeMap<_, _> = [("DR_MEMBER", node.id.to_string()), ("DR_SITE", node.site.to_string())]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let mut tally = Tally::new(check.failures);
    // Another site's failure is no reason to come here before this is known.
    elections.iter().for_each(|election| election.set_site_health(Some(Health::Unknown)));
    loop {
        let next = Instant::now() + check.interval();
        let outcome = check_once(&check.probe, "site check", &env, &guards).await;
        // Other words for the same are no news: each is a write.
        let report = tally.answered(outcome.is_ok());
        let failures = tally.in_a_row();
        if let Err(reason) = &outcome {
            tracing::debug!(site = %node.site, failures, "the site check failed: {reason}");
        }
        if report.is_some() {
            let health = match outcome {
                Ok(()) => {
                    tracing::info!(site = %node.site, "the site check passes");
                    Health::Healthy
                }
                Err(reason) => {
                    tracing::warn!(site = %node.site, failures, "this site counts as unwell here: {reason}");
                    Health::Unhealthy { reason }
                }
            };
            elections.iter().for_each(|election| election.set_site_health(Some(health.clone())));
        }
        sleep_until(next).await;
    }
}
