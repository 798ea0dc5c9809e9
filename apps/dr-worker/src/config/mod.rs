//! The configuration: layered, typed, and refused as a whole with everything that is
//! wrong with it.
//!
//! A [`Config`] that exists is coherent: every value is of its type and within its
//! limits, and every job can be stopped before the lease of the session timeout that
//! is asked for ends.

mod balance;
mod beside;
mod check;
mod file;
mod http;
mod job;
mod layers;
mod node;
mod parse;
mod policy;
mod probe;
mod probes;
mod problem;
mod reader;
mod runnable;
mod signal;
mod spec;
mod timing;
mod tree;
mod zookeeper;

use std::collections::{BTreeMap, BTreeSet};

use election_core::Policy;

use strategies::{Registry, stages::Share};

pub(crate) use balance::BALANCING;
pub use balance::BalanceConfig;
pub use http::{HostPort, HttpConfig};
pub use job::{JobConfig, Recipe};
pub use layers::{PREFIX, Sources, is_of_policy};
pub use node::NodeConfig;
pub use policy::{AutoMoves, Confirm, OnLeaderFailure, OnPause, PolicyConfig, TakeoverLimit};
pub use probes::{ProbeTarget, ProbesConfig};
pub use problem::{Problem, Problems};
pub use reader::Shown;
pub use runnable::{SpecError, SpecErrors};
pub use signal::{NotAStopSignal, StopSignal};
pub use spec::{Check, Hook, HookName, Hooks, JobSpec, KILL_RESERVE, Measure, ReadyProbe, RestartPolicy};
pub(crate) use spec::{DR_RUN, LEADERSHIP_VARIABLES};
pub use tree::Origin;
pub use zookeeper::{Access, Auth, Scheme, ZooKeeperConfig};

use reader::{Findings, Section};
use tree::Node;
use zk_session::LeaseTiming;

/// All that a worker needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Who it is.
    pub node: NodeConfig,
    /// Where the ensemble is.
    pub zookeeper: ZooKeeperConfig,
    /// Its own endpoints.
    pub http: HttpConfig,
    /// How it measures round trips.
    pub probes: ProbesConfig,
    /// How leaderships are spread over the nodes.
    pub balance: BalanceConfig,
    /// What it runs where it leads; at least one, sorted by name.
    pub jobs: Vec<JobConfig>,
    /// Every value and where it came from.
    shown: Vec<Shown>,
    /// All settings as they were read.
    root: Node,
    /// What their policies may name beside what is built in.
    registry: Registry,
}

impl Config {
    /// Reads and checks the configuration of a worker.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        let read = Section::read_root(&root, &mut findings, read_worker);
        Problems::none_of(findings.problems).map_err(|problems| sources.explain(problems))?;
        let (node, zookeeper, http, probes, balance, jobs) = read.ok_or_else(incomplete)?;
        let registry = sources.registry.clone();
        Ok(Self { node, zookeeper, http, probes, balance, jobs, shown: findings.shown, root, registry })
    }

    /// The policies as they would be with these settings, each `key=value`, over all others.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn what_if(&self, sets: &[String]) -> Result<OperatorConfig, Problems> {
        let mut findings = Findings::with(&self.registry);
        let root = layers::set_over(self.root.clone(), sets, &mut findings.problems);
        OperatorConfig::read(&root, findings)
    }

    /// Every value and where it came from.
    pub fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// Looks whether the jobs can run on this very node: whether their programs and
    /// directories exist. Starts nothing.
    ///
    /// # Errors
    /// Everything that would keep them from it.
    pub fn check_node(&self) -> Result<(), Problems> {
        let mut problems = Vec::new();
        for job in &self.jobs {
            let Err(faults) = job.spec.check() else {
                continue;
            };
            for fault in faults.iter() {
                let origin = origin_of(&self.shown, &fault.key);
                problems.push(Problem::with_key(origin, &fault.key, &fault.problem));
            }
        }
        Problems::none_of(problems)
    }

    /// A problem with the value of one key, which showed only when it was used.
    pub fn problem(&self, key: &str, message: &str) -> Problems {
        problem_at(&self.shown, key, message)
    }

    /// Checks that every job can be stopped before its lease ends.
    ///
    /// # Errors
    /// For each that can't, the figures and what to change.
    pub fn check_timing(&self, granted: LeaseTiming) -> Result<(), Problems> {
        let mut problems = Vec::new();
        for job in &self.jobs {
            if let Err(wrong) = timing::check(&job.spec, granted) {
                let key = format!("job.{}.stop_timeout", job.name());
                let message = format!("with the session timeout that the servers grant, {wrong}");
                problems.push(Problem::with_key(origin_of(&self.shown, &key), key.as_str(), message));
            }
        }
        Problems::none_of(problems)
    }
}

/// Where the value of a key came from, or of the nearest key that it is a part of.
fn origin_of<'a>(shown: &'a [Shown], key: &str) -> &'a Origin {
    let mut key = Some(key);
    while let Some(name) = key {
        if let Some(shown) = shown.iter().find(|shown| shown.key == name) {
            return &shown.origin;
        }
        key = name.rsplit_once('.').map(|(parent, _)| parent);
    }
    &Origin::BuiltIn
}

fn problem_at(shown: &[Shown], key: &str, message: &str) -> Problems {
    Problem::with_key(origin_of(shown, key), key, message).into()
}

/// All that an operator's command needs to know; it runs without a node or a job of
/// its own, so that a mistake in those never stands in an operator's way.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorConfig {
    /// Where the ensemble is.
    pub zookeeper: ZooKeeperConfig,
    /// What goes for every job that has no policy of its own.
    pub policy: PolicyConfig,
    /// The jobs that are configured, with their policies; maybe none.
    pub jobs: BTreeMap<String, PolicyConfig>,
    /// Which of them have a resource that checks fencing tokens.
    pub fenced: BTreeSet<String>,
    shown: Vec<Shown>,
}

impl OperatorConfig {
    /// Reads and checks what an operator's command needs.
    ///
    /// # Errors
    /// Everything that is wrong with that.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        Self::read(&root, findings).map_err(|problems| sources.explain(problems))
    }

    fn read(root: &Node, mut findings: Findings) -> Result<Self, Problems> {
        let mut fenced = BTreeSet::new();
        let read = Section::read_root(root, &mut findings, |root| {
            root.know("node");
            let zookeeper = root.table("zookeeper", ZooKeeperConfig::read);
            root.know("http");
            let probes = root.table("probes", ProbesConfig::read);
            root.know("balance");
            let policy = read_policy(root, &probes);
            let jobs = root.table("job", |jobs| {
                jobs.each_table(|name, section| {
                    section.leave_rest();
                    if section.or("fenced", false) {
                        fenced.insert(name.to_owned());
                    }
                    (name.to_owned(), JobConfig::read_policy(name, section, &policy))
                })
            });
            Some((zookeeper?, policy, jobs))
        });
        Problems::none_of(findings.problems)?;
        let (zookeeper, policy, jobs) = read.ok_or_else(incomplete)?;
        Ok(Self { zookeeper, policy, jobs: jobs.into_iter().collect(), fenced, shown: findings.shown })
    }

    /// A problem with the value of one key, which showed only when it was used.
    pub fn problem(&self, key: &str, message: &str) -> Problems {
        problem_at(&self.shown, key, message)
    }

    /// The policy of a job, whether it is configured here or not.
    pub fn policy_of(&self, job: &str) -> PolicyConfig {
        self.jobs.get(job).cloned().unwrap_or_else(|| self.policy.clone().for_job(job, job::DEFAULT_LOAD))
    }

    /// A short word for the policy of a job: the same on all nodes that have the same.
    pub fn fingerprint_of(&self, job: &str) -> String {
        self.policy_of(job).fingerprint(self.fenced.contains(job))
    }

    /// How the election of a job behaves, as far as an operator need know: what the job needs to
    /// stop is for its workers.
    pub fn engine_of(&self, job: &str) -> Policy {
        self.policy_of(job).engine(std::time::Duration::ZERO, self.fenced.contains(job))
    }
}

type Worker = (NodeConfig, ZooKeeperConfig, HttpConfig, ProbesConfig, BalanceConfig, Vec<JobConfig>);

fn read_worker(root: &mut Section<'_>) -> Option<Worker> {
    let node = root.table("node", NodeConfig::read);
    let zookeeper = root.table("zookeeper", ZooKeeperConfig::read);
    let http = root.table("http", HttpConfig::read);
    let probes = root.table("probes", ProbesConfig::read);
    let balance = root.table("balance", BalanceConfig::read);
    let policy = read_policy(root, &probes);
    let jobs: Vec<_> = root.table("job", |jobs| {
        jobs.each_table(|name, section| {
            let job = JobConfig::read(name, section, &policy);
            if let (Some(node), Some(job)) = (&node, &job) {
                check_site(section, node, job);
                check_limits(section, node, job);
                beside::check_capacity(section, node, job);
            }
            if let Some(job) = &job {
                check_targets(section, &probes, job);
            }
            if job.as_ref().is_some_and(|job| job.policy.balance) {
                check_weight(section, node.as_ref(), name);
            }
            if let (Some(zookeeper), Some(job)) = (&zookeeper, &job) {
                check_timing(section, zookeeper, job);
            }
            job
        })
    });
    if jobs.is_empty() {
        root.problem("job", "no job is configured; add a section such as [job.orders] with a command");
    }
    let jobs: Option<Vec<_>> = jobs.into_iter().collect();
    if let Some(jobs) = &jobs {
        beside::check_jobs(root, jobs);
    }
    Some((node?, zookeeper?, http, probes, balance, jobs?))
}

fn read_policy(root: &mut Section<'_>, probes: &ProbesConfig) -> PolicyConfig {
    let usual = PolicyConfig::measured_to(probes.publishing);
    root.table("policy", |section| PolicyConfig::read(section, &usual))
}

/// A site that the order of sites doesn't know is a typing error more often than not.
fn check_site(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    let (sites, forbidden) = (&job.policy.sites, &job.policy.forbidden_sites);
    if !sites.is_empty() && !sites.contains(&node.site) && !forbidden.contains(&node.site) {
        let all: Vec<_> = sites.iter().map(|site| site.as_str()).collect();
        section.problem(
            "policy",
            format!(
                "this node's site {:?} is not in the order of sites {all:?}; correct node.site, or add it to policy.sites",
                node.site.as_str()
            ),
        );
    }
}

/// Who goes by a target that nobody measures would find all members equally far away.
fn check_targets(section: &mut Section<'_>, probes: &ProbesConfig, job: &JobConfig) {
    if job.recipe != Recipe::Elector {
        return;
    }
    let needs = job.policy.needs();
    for name in needs.targets.iter().filter(|name| !probes.targets.contains_key(*name)) {
        let known: Vec<_> = probes.targets.keys().collect();
        let valid = if known.is_empty() { "none is".to_owned() } else { format!("{known:?} are") };
        section.problem(
            "policy",
            format!("it goes by the round trip to {name:?}, which is not in [probes.targets]; {valid}"),
        );
    }
}

/// What balancing needs to be right, for a job that is balanced.
fn check_weight(section: &mut Section<'_>, node: Option<&NodeConfig>, job: &str) {
    if job == BALANCING {
        section.problem_here(format!(
            "{job:?} is where the balancer has its own election; choose another name for the job, or set \
             policy.balance to false"
        ));
    }
    let weight = node.and_then(|node| node.attributes.get("weight"));
    if let Some(text) = weight.filter(|text| !text.parse().is_ok_and(|w: u32| w <= Share::MAX_WEIGHT)) {
        section.problem(
            "policy",
            format!(
                "balance needs a whole number from 0 to {} as the weight of this node, and node.attributes.weight \
                 is {text:?}",
                Share::MAX_WEIGHT
            ),
        );
    }
}

/// Who limits what no member publishes refuses everybody.
fn check_limits(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    if job.recipe != Recipe::Elector || job.spec.measure.is_some() {
        return;
    }
    let needs = job.policy.needs();
    for name in needs.limited.iter().filter(|name| !node.attributes.contains_key(*name)) {
        section.problem(
            "policy",
            format!(
                "it limits {name:?}, which nobody measures: add [job.{}.measure] with a command that prints it, or \
                 say it in node.attributes",
                job.name()
            ),
        );
    }
}

fn check_timing(section: &mut Section<'_>, zookeeper: &ZooKeeperConfig, job: &JobConfig) {
    let lease = LeaseTiming { session_timeout: zookeeper.session_timeout, tick_time: zookeeper.tick_time };
    if let Err(wrong) = timing::check(&job.spec, lease) {
        section.problem("stop_timeout", wrong.to_string());
    }
}

/// Never seen: what is missing has been reported already.
fn incomplete() -> Problems {
    Problem::with_source("configuration", "it is incomplete").into()
}

#[cfg(test)]
mod tests;
