//! The policy, read as a worker reads it.

use std::sync::Arc;

use dr_worker::config::{Config, Sources};
use election_core::{
    config::{Policy, SiteId},
    strategy::Strategy,
};

/// The configuration beside the policy. Like the policy, it is the same for all workers.
const REST: [&str; 5] = [
    "node.id=east-1",
    "node.site=east",
    "zookeeper.connect=zk-1:2181,zk-2:2181,zk-3:2181",
    "job.orders.command=[\"/usr/bin/orders\"]",
    "job.orders.measure.command=[\"/usr/bin/orders-lag\"]",
];

/// The behaviour of an election, and its strategy.
#[derive(Clone, Debug)]
pub struct Rules {
    /// For the engine.
    pub policy: Policy,
    /// For the elector.
    pub strategy: Arc<dyn Strategy>,
    /// In order of preference.
    pub sites: Vec<SiteId>,
}

impl Rules {
    /// Reads a document with a table `[policy]`.
    ///
    /// # Errors
    /// The worker's own message.
    pub fn read(document: &str) -> Result<Self, String> {
        let document: toml::Table = document.parse().map_err(|e| format!("the policy is no TOML: {e}"))?;
        let policy = document.get("policy").and_then(toml::Value::as_table).ok_or("there is no [policy]")?;
        Self::of(policy.iter().map(|(key, value)| format!("{key}={value}")))
    }

    /// Reads settings `key=value` of `[policy]`; a later one of the same key wins.
    ///
    /// # Errors
    /// The worker's own message.
    pub fn of(settings: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let policy = settings.into_iter().map(|setting| format!("policy.{setting}"));
        let sets = REST.iter().map(ToString::to_string).chain(policy).collect();
        let config = Config::load(&Sources { sets, ..Sources::default() }).map_err(|e| e.to_string())?;
        let job = config.jobs.first().ok_or("there is no job")?;
        Ok(Self {
            policy: job.policy.engine(job.spec.stop_budget(), job.fenced),
            strategy: job.policy.strategy(),
            sites: job.policy.who.site_policy.sites.clone(),
        })
    }
}
