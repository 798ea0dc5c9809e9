//! The configuration: layered, typed, and refused with all of its problems at once.
//!
//! A [`Config`] that exists is coherent: every value has its type and is within its limits, and every job can be stopped
//! before the lease of the configured session timeout ends.

mod balance;
mod beside;
mod change;
mod check;
mod dates;
mod drill_orders;
mod drill_plan;
mod fence;
mod file;
mod hook;
mod http;
mod identity;
mod job;
mod layers;
mod limits;
mod log;
mod node;
mod notify;
mod output;
mod overlay;
mod parse;
mod policy;
mod probe;
mod probes;
mod problem;
mod reader;
mod runnable;
mod size;
mod spec;
mod timing;
mod tokens;
mod tree;
mod watchdog;
mod zookeeper;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_core::{MemberId, Policy};
use nix::unistd::{Uid, User};

use strategies::{Registry, stages::Share};

pub use crate::tls::{PairFiles, TlsFiles};
pub(crate) use balance::BALANCING;
pub use balance::BalanceConfig;
pub use change::{Change, Effect};
pub use dates::Dates;
pub use drill_orders::{DrillConfig, JobDrill};
pub use drill_plan::{DrillPlan, Objectives};
pub use fence::{Fence, FenceCommand, FenceFailure};
pub use hook::{Hook, HookMode, HookName, Hooks};
pub use http::{ControlAccess, HostPort, HttpConfig, StatusAccess};
pub use identity::Helper;
pub use job::{JobConfig, Recipe};
pub use job_guard::{
    Check, ExitCodes, JobOutput, KILL_RESERVE, Limits, NotAStopSignal, ReadyProbe, RestartPolicy,
    RotatedFile, RunAs, Size, StopSignal,
};
pub(crate) use layers::DEFAULT_DIRECTORY;
pub use layers::{PREFIX, Sources, is_of_policy};
pub use log::LogConfig;
pub(crate) use log::read_levels;
pub use node::NodeConfig;
pub(crate) use node::host_name;
pub use notify::{NotifyCommand, NotifyConfig, NotifyEvent, NotifyRetry, Webhook, WebhookUrl};
pub(crate) use overlay::SETTLE;
pub use overlay::{OverlayChange, Usable, check_overlay, overlay_changes, overlay_values};
pub use policy::PolicyConfig;
pub use probes::{ProbeTarget, ProbesConfig};
pub use problem::{Problem, Problems};
pub use reader::Shown;
pub use runnable::{SpecError, SpecErrors};
pub(crate) use spec::{DR_REHEARSAL, FENCE_VARIABLES, HOOK_VARIABLES, LEADERSHIP_VARIABLES, NOT_REHEARSED};
pub use spec::{JobSpec, Measure};
pub use tokens::Tokens;
pub use tree::Origin;
pub use watchdog::{WatchdogConfig, WatchdogMode};
pub use zookeeper::{Access, Auth, Overlays, Scheme, ZooKeeperConfig};
pub(crate) use zookeeper::{CREDENTIALS, unreadable};

use job_guard::own_file;
use reader::{Findings, Section};
use tree::Node;
use zk_session::LeaseTiming;

use crate::{
    checked,
    host_fault::HostFault,
    tls::{Expiry, Unusable, of_authorities, of_zookeeper},
    wall::unix_ms,
};

/// The JSON Schema of a configuration file. A test generates it from the reader and compares it.
pub const SCHEMA: &str = include_str!("../../../../config/schema.json");

/// The configuration of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The node.
    pub node: NodeConfig,
    /// The ensemble.
    pub zookeeper: ZooKeeperConfig,
    /// The HTTP endpoints.
    pub http: HttpConfig,
    /// The worker's own log.
    pub log: LogConfig,
    /// The measurement of round trips.
    pub probes: ProbesConfig,
    /// The balancing of leaderships.
    pub balance: BalanceConfig,
    /// The notifications.
    pub notify: NotifyConfig,
    /// The watchdog device of this machine.
    pub watchdog: WatchdogConfig,
    /// Which orders of a drill this worker obeys.
    pub drill: DrillConfig,
    /// The plans of drills, by name.
    pub drills: BTreeMap<String, DrillPlan>,
    /// The jobs; at least one, sorted by name.
    pub jobs: Vec<JobConfig>,
    /// Every value and where it came from.
    shown: Vec<Shown>,
    /// All settings as they were read.
    root: Node,
    /// Stages and strategies that policies may name besides the built-in ones.
    registry: Registry,
}

impl Config {
    /// Reads and checks the configuration of a worker.
    ///
    /// # Errors
    /// All problems.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        Self::read(root, findings, &sources.registry).map_err(|problems| sources.explain(problems))
    }

    /// Reads and checks merged settings.
    fn of(root: Node, registry: &Registry) -> Result<Self, Problems> {
        Self::read(root, Findings::with(registry), registry)
    }

    fn read(root: Node, mut findings: Findings, registry: &Registry) -> Result<Self, Problems> {
        let read = Section::read_root(&root, &mut findings, read_worker);
        Problems::none_of(findings.problems)?;
        let (node, zookeeper, http, log, probes, balance, notify, watchdog, drill, drills, jobs) =
            read.ok_or_else(incomplete)?;
        let registry = registry.clone();
        Ok(Self {
            node,
            zookeeper,
            http,
            log,
            probes,
            balance,
            notify,
            watchdog,
            drill,
            drills,
            jobs,
            shown: findings.shown,
            root,
            registry,
        })
    }

    /// The policies as they would be with these settings, each `key=value`, over all others.
    ///
    /// # Errors
    /// All problems.
    pub fn what_if(&self, sets: &[String]) -> Result<OperatorConfig, Problems> {
        let mut findings = Findings::with(&self.registry);
        let root = layers::set_over(self.root.clone(), sets, &mut findings.problems);
        OperatorConfig::read(root, findings, &self.registry)
    }

    /// Every value and where it came from.
    pub fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// Checks what the configuration names on this node: whether the programs and directories of the jobs exist, and
    /// whether the tokens can be used. It starts nothing.
    ///
    /// # Errors
    /// All problems.
    pub fn check_node(&self) -> Result<(), Problems> {
        let mut problems = Vec::new();
        let mut add = |key: &str, fault: &HostFault| {
            problems.push(Problem::on_host(origin_of(&self.shown, key), key, fault));
        };
        if let Some(Err(fault)) = self.http.token_file.as_deref().map(Tokens::read) {
            add("http.token_file", &fault);
        }
        if let Err(Unusable { key, fault }) = self.http.load_tls() {
            add(key, &fault);
        }
        if let Some(Err(fault)) = self.zookeeper.auth.as_ref().map(Auth::read) {
            add(CREDENTIALS, &fault);
        }
        if let Some((key, fault)) = self.zookeeper.tls.as_ref().and_then(unreadable) {
            add(key, &fault);
        }
        for (name, webhook) in &self.notify.webhooks {
            let read = webhook
                .ca_file
                .as_deref()
                .map(|path| {
                    let from_disk =
                        || std::fs::read(path).map_err(|e| HostFault::io(path, " can't be read", &e));
                    checked::read(path, from_disk)
                })
                .transpose();
            let files = [
                ("secret_file", webhook.secret_file.as_deref().map(Tokens::read).transpose().err()),
                ("ca_file", read.err()),
            ];
            for (key, fault) in files.into_iter().filter_map(|(key, fault)| Some((key, fault?))) {
                add(&format!("notify.webhook.{name}.{key}"), &fault);
            }
        }
        if let Some(fault) = self.log.file.as_ref().and_then(|file| runnable::not_a_place(&file.path)) {
            add("log.file", &fault);
        }
        problems.extend(self.jobs.iter().flat_map(|job| self.faults_of(job)));
        Problems::none_of(problems)
    }

    /// Checks whether a worker that runs as this user can keep its files.
    ///
    /// # Errors
    /// Why it can't.
    pub(crate) fn check_state_dir(&self) -> Result<(), Problems> {
        let fault = runnable::not_a_home(&self.node.state_dir);
        fault.map_or(Ok(()), |fault| Err(self.problem("node.state_dir", fault)))
    }

    /// The name of the other user who owns the state directory: the worker runs as that user.
    pub(crate) fn owner_of_state_dir(&self) -> Option<String> {
        let owner = Uid::from_raw(own_file::foreign_owner(&self.node.state_dir)?);
        Some(User::from_uid(owner).ok()??.name)
    }

    /// Why only a worker of another user than this one, root, can use the state directory.
    pub(crate) fn warning_of_state_dir(&self) -> Option<String> {
        let dir = &self.node.state_dir;
        let owner = own_file::foreign_owner(dir)?;
        let dir = dir.display();
        Some(format!(
            "node.state_dir {dir} belongs to user {owner}: only a worker of that user starts; check as that user"
        ))
    }

    /// Checks whether other workers and other clients will accept this worker's certificate now. A worker starts without
    /// that: its job matters more. Returns a warning, if there is one: also of the certificates for ZooKeeper and webhooks.
    ///
    /// # Errors
    /// Why they refuse it.
    pub fn check_certificate(&self) -> Result<Option<String>, Problems> {
        let Ok(tls) = self.http.load_tls() else { return Ok(None) };
        let now = unix_ms() / 1000;
        let ending = tls.expires().and_then(|expiry| expiry.ending(now));
        let refused = tls.refused_by_workers(&self.public_host());
        let problem = match (refused, &ending) {
            (_, Some(ending)) if ending.is_over => ending.sentence.clone(),
            (Some(why), _) => self.refusal(&why),
            (None, _) => {
                // An expired one is no error here: the session with ZooKeeper reports it.
                let others = self.expiries_of_others().into_iter();
                let endings = ending.into_iter().chain(others.filter_map(|expiry| expiry.ending(now)));
                let sentences: Vec<_> = endings.map(|ending| ending.sentence).collect();
                return Ok((!sentences.is_empty()).then(|| sentences.join("; ")));
            }
        };
        Err(self.problem("http.tls.cert_file", problem))
    }

    /// When the certificates for ZooKeeper and webhooks end. It blocks.
    pub(crate) fn expiries_of_others(&self) -> Vec<Expiry> {
        let webhooks = self.notify.webhooks.iter();
        let webhooks = webhooks.filter_map(|(name, webhook)| {
            of_authorities(format!("notify.webhook.{name}.ca_file"), webhook.ca_file.as_ref()?)
        });
        of_zookeeper(self.zookeeper.tls.as_ref()).into_iter().chain(webhooks).collect()
    }

    /// A sentence for an error of the verification of this worker's certificate.
    pub(crate) fn refusal(&self, why: &str) -> String {
        format!(
            "other workers, which reach this one as {}, refuse the certificate: {why}",
            self.public_host()
        )
    }

    /// How others reach the HTTP endpoints of this worker.
    pub(crate) fn public_host(&self) -> String {
        let listen = &self.http.listen;
        if listen.is_wildcard() { self.node.address.clone() } else { listen.host.clone() }
    }

    /// Checks what a job names on this node, as [`check_node`](Self::check_node) does.
    fn check_job(&self, job: &JobConfig) -> Result<(), Problems> {
        Problems::none_of(self.faults_of(job))
    }

    fn faults_of(&self, job: &JobConfig) -> Vec<Problem> {
        let faults = job.spec.check().err();
        let problem = |fault: &SpecError| {
            Problem::on_host(origin_of(&self.shown, &fault.key), &fault.key, &fault.fault)
        };
        faults.iter().flat_map(|faults| faults.iter().map(problem)).collect()
    }

    /// A problem with the value of one key that was found when it was used.
    pub(crate) fn problem(&self, key: &str, fault: impl Into<HostFault>) -> Problems {
        problem_at(&self.shown, key, fault)
    }

    /// Checks that every job can be stopped before its lease ends.
    ///
    /// # Errors
    /// For each job that cannot, the figures and what to change.
    pub fn check_timing(&self, granted: LeaseTiming) -> Result<(), Problems> {
        let mut problems = Vec::new();
        for job in &self.jobs {
            if let Err(wrong) = timing::check(&job.spec, granted, self.watchdog.reserve()) {
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

fn problem_at(shown: &[Shown], key: &str, fault: impl Into<HostFault>) -> Problems {
    Problem::on_host(origin_of(shown, key), key, &fault.into()).into()
}

/// The configuration of an operator's command. It needs no node and no job, so that a mistake in those does not block an
/// operator.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorConfig {
    /// The worker on this node, if it has a name.
    pub node_id: Option<MemberId>,
    /// The ensemble.
    pub zookeeper: ZooKeeperConfig,
    /// The policy of every job without its own.
    pub policy: PolicyConfig,
    /// The configured jobs with their policies; can be empty.
    pub jobs: BTreeMap<String, PolicyConfig>,
    /// The jobs whose resource checks fencing tokens.
    pub fenced: BTreeSet<String>,
    /// How to verify workers, and the certificate that they ask for.
    pub tls: TlsFiles,
    shown: Vec<Shown>,
    /// All settings as they were read.
    root: Node,
    registry: Registry,
}

impl OperatorConfig {
    /// Reads and checks the configuration of an operator's command.
    ///
    /// # Errors
    /// All problems.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        Self::read(root, findings, &sources.registry).map_err(|problems| sources.explain(problems))
    }

    fn read(root: Node, mut findings: Findings, registry: &Registry) -> Result<Self, Problems> {
        let mut fenced = BTreeSet::new();
        let read = Section::read_root(&root, &mut findings, |root| {
            let node_id = root.table("node", NodeConfig::read_id_alone);
            let zookeeper = root.table("zookeeper", ZooKeeperConfig::read);
            let tls = root.table("http", http::read_for_operators);
            root.know("log");
            let probes = root.table("probes", ProbesConfig::read);
            root.know("balance");
            root.know("notify");
            root.know("watchdog");
            // A mistake in a plan must not block other commands.
            root.know("drill");
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
            Some((node_id, zookeeper?, tls, policy, jobs))
        });
        Problems::none_of(findings.problems)?;
        let (node_id, zookeeper, tls, policy, jobs) = read.ok_or_else(incomplete)?;
        Ok(Self {
            node_id,
            zookeeper,
            policy,
            jobs: jobs.into_iter().collect(),
            fenced,
            tls,
            shown: findings.shown,
            root,
            registry: registry.clone(),
        })
    }

    /// The plans of drills, by name.
    ///
    /// # Errors
    /// All problems with plans.
    pub fn drills(&self) -> Result<BTreeMap<String, DrillPlan>, Problems> {
        let mut findings = Findings::with(&self.registry);
        let plans = Section::read_root(&self.root, &mut findings, |root| {
            root.leave_rest();
            root.table("drill", |section| read_drill(section).1)
        });
        Problems::none_of(findings.problems)?;
        Ok(plans)
    }

    /// A problem with the value of one key that was found when it was used.
    pub(crate) fn problem(&self, key: &str, fault: impl Into<HostFault>) -> Problems {
        problem_at(&self.shown, key, fault)
    }

    /// The policy of a job, whether it is configured here or not.
    pub fn policy_of(&self, job: &str) -> PolicyConfig {
        self.jobs.get(job).cloned().unwrap_or_else(|| self.policy.clone().for_job(job, job::DEFAULT_LOAD))
    }

    /// A short text for the policy of a job: the same on all nodes with the same policy.
    pub fn fingerprint_of(&self, job: &str) -> String {
        self.policy_of(job).fingerprint(self.fenced.contains(job))
    }

    /// The engine's policy of a job, without the stop budget of the job.
    pub fn engine_of(&self, job: &str) -> Policy {
        self.policy_of(job).engine(std::time::Duration::ZERO, self.fenced.contains(job))
    }
}

type Worker = (
    NodeConfig,
    ZooKeeperConfig,
    HttpConfig,
    LogConfig,
    ProbesConfig,
    BalanceConfig,
    NotifyConfig,
    WatchdogConfig,
    DrillConfig,
    BTreeMap<String, DrillPlan>,
    Vec<JobConfig>,
);

fn read_worker(root: &mut Section<'_>) -> Option<Worker> {
    let node = root.table("node", NodeConfig::read);
    let zookeeper = root.table("zookeeper", ZooKeeperConfig::read);
    let http = root.table("http", HttpConfig::read);
    let log = root.table("log", LogConfig::read);
    let probes = root.table("probes", ProbesConfig::read);
    let balance = root.table("balance", BalanceConfig::read);
    let notify = root.table("notify", NotifyConfig::read);
    let watchdog = root.table("watchdog", WatchdogConfig::read);
    let (drill, drills) = root.table("drill", read_drill);
    if let Some(zookeeper) = &zookeeper
        && let Err(wrong) = watchdog.check(zookeeper.lease())
    {
        root.problem("watchdog", wrong);
    }
    let policy = read_policy(root, &probes);
    let jobs: Vec<_> = root.table("job", |jobs| {
        jobs.each_table(|name, section| {
            let job = JobConfig::read(name, section, &policy, &drill);
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
                check_timing(section, zookeeper, job, watchdog.reserve());
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
        beside::check_files(root, jobs);
    }
    Some((node?, zookeeper?, http, log, probes, balance, notify, watchdog, drill, drills, jobs?))
}

/// `[drill]`: the plans are tables in it.
fn read_drill(section: &mut Section<'_>) -> (DrillConfig, BTreeMap<String, DrillPlan>) {
    (DrillConfig::read(section), DrillPlan::read_all(section))
}

fn read_policy(root: &mut Section<'_>, probes: &ProbesConfig) -> PolicyConfig {
    let usual = PolicyConfig::measured_to(probes.publishing);
    root.table("policy", |section| PolicyConfig::read(section, &usual))
}

/// A site that is not in the order of sites is likely to be a typing error.
fn check_site(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    let (sites, forbidden) = (job.policy.who.sites(), job.policy.who.forbidden_sites());
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

/// With a target that is not measured all members would be equally far away.
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
            format!("it depends on the round trip to {name:?}, which is not in [probes.targets]; {valid}"),
        );
    }
}

/// Checks of a job that is balanced.
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

/// A limit of an attribute that no member publishes would refuse all members.
fn check_limits(section: &mut Section<'_>, node: &NodeConfig, job: &JobConfig) {
    if job.recipe != Recipe::Elector || job.spec.measure.is_some() {
        return;
    }
    let needs = job.policy.needs();
    for name in needs.limited.iter().filter(|name| !node.attributes.contains_key(*name)) {
        section.problem(
            "policy",
            format!(
                "it limits {name:?}, which no member publishes: add [job.{}.measure] with a command that prints it, or \
                 set it in node.attributes",
                job.name()
            ),
        );
    }
}

fn check_timing(section: &mut Section<'_>, zookeeper: &ZooKeeperConfig, job: &JobConfig, reserve: Duration) {
    if let Err(wrong) = timing::check(&job.spec, zookeeper.lease(), reserve) {
        section.problem("stop_timeout", wrong.to_string());
    }
}

/// Never shown: missing keys have been reported already.
fn incomplete() -> Problems {
    Problem::with_source("configuration", "it is incomplete").into()
}

#[cfg(test)]
mod tests;
