//! The settings of elections, by the configuration.

use election_core::{
    ElectionConfig, Paths,
    config::{Profile, QueueFormat, Recipe},
    internals::record::Health,
};
use strategies::spec::Needs;

use crate::{
    config::{self, Config, HostPort, JobConfig},
    error::Error,
    tls::scheme,
    worker::state::JobSlot,
};

/// This worker's profile for an election.
pub(super) fn profile(config: &Config, http_port: u16) -> Profile {
    let node = &config.node;
    let place = HostPort { host: config.public_host(), port: http_port };
    let mut profile = Profile::new(node.id.clone()).in_site(node.site.clone());
    profile.address = Some(node.address.clone());
    profile.http = Some(format!("{}://{place}", scheme(config.http.has_tls())));
    profile.priority = node.priority;
    profile.attributes = node.attributes.clone();
    concat!("dr-worker ", env!("CARGO_PKG_VERSION")).clone_into(&mut profile.software);
    profile
}

/// The znodes of a job's election.
pub(super) fn paths(config: &Config, job: &str) -> Result<Paths, Error> {
    Paths::new(&config.zookeeper.root, job)
        .map_err(|wrong| Error::Setting { key: "job", message: wrong.to_string() })
}

/// How the leader of a job is found.
fn recipe(job: &JobConfig, slot: &JobSlot) -> Recipe {
    match job.recipe {
        config::Recipe::Elector => Recipe::Elector(job.policy.clone().seeing(slot.other_jobs()).strategy()),
        config::Recipe::Queue => Recipe::Queue(QueueFormat::Native),
        config::Recipe::Single => Recipe::Single,
    }
}

/// What the policy of a job depends on.
pub(super) fn needs(job: &JobConfig) -> Needs {
    if job.recipe == config::Recipe::Elector { job.policy.needs() } else { Needs::default() }
}

/// The election of a job, whose process may need `slot.stop_budget()` to end.
pub(super) fn election(
    config: &Config,
    job: &JobConfig,
    paths: &Paths,
    slot: &JobSlot,
    http_port: u16,
) -> ElectionConfig {
    let mut me = profile(config, http_port);
    me.policy = job.policy.fingerprint(job.fenced);
    me.overlay = slot.overlay();
    // It is not elected before its first check has passed.
    let is_checked = job.spec.fitness.is_some() || slot.requires_standby();
    me.health = if is_checked { Health::Unknown } else { Health::Unchecked };
    let policy = job.policy.engine(slot.stop_budget(), job.fenced);
    let policy = policy.with(|policy| policy.lease_reserve = slot.lease_reserve);
    ElectionConfig::new(paths.clone(), me, recipe(job, slot)).policy(policy)
}
