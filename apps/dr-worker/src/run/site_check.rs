//! Looks again and again whether the whole site of this node is fit, and tells the elections.

use std::collections::BTreeMap;

use election_core::{record::Health, shell::Election};
use tokio::time::{Instant, sleep_until};

use crate::{
    config::{NodeConfig, SiteCheck},
    job::{Guards, ReadyProbe, check_once},
};

/// Checks for ever. One success is enough to be well again: to be wrong about that costs little, as
/// most members of the site have to agree anyway.
pub(super) async fn keep(node: NodeConfig, check: SiteCheck, elections: Vec<Election>, guards: Guards) {
    let (ReadyProbe::Exec { interval, .. }
    | ReadyProbe::Http { interval, .. }
    | ReadyProbe::Tcp { interval, .. }) = check.probe
    else {
        return;
    };
    let env: BTreeMap<_, _> = [("DR_MEMBER", node.id.to_string()), ("DR_SITE", node.site.to_string())]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let (mut failures, mut told) = (0, None);
    // Another site's failure is no reason to come here before this is known.
    elections.iter().for_each(|election| election.set_site_health(Some(Health::Unknown)));
    loop {
        let next = Instant::now() + interval;
        let health = match check_once(&check.probe, "site check", &env, &guards).await {
            Ok(()) => {
                failures = 0;
                Some(Health::Healthy)
            }
            Err(reason) => {
                failures += 1;
                tracing::debug!(site = %node.site, failures, "the site check failed: {reason}");
                (failures >= check.failures).then_some(Health::Unhealthy { reason })
            }
        };
        // Other words for the same are no news: each is a write.
        let kind = health.as_ref().map(|health| *health == Health::Healthy);
        if let Some(health) = health.filter(|_| kind != told) {
            match &health {
                Health::Healthy | Health::Unchecked | Health::Unknown => {
                    tracing::info!(site = %node.site, "the site check passes")
                }
                Health::Unhealthy { reason } => {
                    tracing::warn!(site = %node.site, failures, "this site counts as unwell here: {reason}");
                }
            }
            elections.iter().for_each(|election| election.set_site_health(Some(health.clone())));
            told = kind;
        }
        sleep_until(next).await;
    }
}
