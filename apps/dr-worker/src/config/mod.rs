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
mod exit_codes;
mod fence;
mod file;
mod hook;
mod http;
mod identity;
mod job;
mod key;
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
mod process;
mod programs;
mod reader;
mod runnable;
mod site_plan;
mod size;
mod spec;
mod standby;
mod table;
mod timing;
mod tokens;
mod trace;
mod tree;
mod watchdog;
mod zookeeper;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use election_core::config::{MemberId, Policy};
use nix::unistd::{Uid, User};

use strategies::{Registry, other_jobs::OtherJobs};

pub use crate::tls::{PairFiles, TlsFiles};
pub(crate) use balance::BALANCING;
pub use balance::BalanceConfig;
pub(crate) use change::FixedValues;
pub use change::KeyChange;
pub use dates::Dates;
pub use drill_orders::{DrillConfig, JobDrill, Rehearsal};
pub use drill_plan::{DrillPlan, DrillRules, Objectives};
pub use fence::{Fence, FenceCommand, FenceFailure};
pub use hook::{Hook, HookMode, HookName, Hooks};
pub use http::{ControlAccess, HostPort, HttpAccess, HttpConfig, StatusAccess};
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
pub use process::ProcessSpec;
pub(crate) use process::process_name;
pub(crate) use programs::{program_name, split_name};
pub use reader::Shown;
pub use site_plan::SitePlan;
pub(crate) use spec::{
    DR_PROCESS, DR_REHEARSAL, FENCE_VARIABLES, HOOK_VARIABLES, LEADERSHIP_VARIABLES, NOT_REHEARSED,
    STANDBY_VARIABLES,
};
pub use spec::{JobSpec, Measure};
pub use standby::{RoleChange, StandbySpec};
pub use tokens::Tokens;
pub use trace::TraceConfig;
pub use tree::Origin;
pub use watchdog::{WatchdogConfig, WatchdogMode};
pub use zookeeper::{Auth, Overlays, Scheme, ZooKeeperAccess, ZooKeeperConfig, ZooKeeperTls};
pub(crate) use zookeeper::{CREDENTIALS, unreadable};

pub use key::Effect;
pub(crate) use key::job_key;

use job_guard::own_file;
use key::{ANY, Key, Of, Reach, Shape, Terms};
use reader::{Findings, Section};
use runnable::SpecError;
use table::{ConfigField, Said, Table as _, later, nested, optional_nested, table, tables, unread};
use tree::Node;
use zk_session::LeaseTiming;

use crate::{
    host_fault::HostFault,
    tls::{Expiry, Unusable, of_authorities, of_zookeeper},
    wall::unix_ms,
};

/// The JSON Schema of a configuration file. A test generates it from the reader and compares it.
pub const SCHEMA: &str = include_str!("schema.json");

table! {
    /// The configuration of a worker.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Config {
        /// This worker.
        pub node: NodeConfig = NodeConfig::default() => nested();
        /// The ensemble and the connection to it.
        pub zookeeper: ZooKeeperConfig = ZooKeeperConfig::default() => nested().worker("the session was opened with it");
        /// The HTTP endpoints of the worker.
        pub http: HttpConfig = HttpConfig::default() => nested().applied();
        /// The worker's log. Its format: --log-format text|json, or DR_LOG_FORMAT.
        pub log: LogConfig = LogConfig::default() => nested().worker("the log is open; SIGUSR2 opens its file again");
        /// Measurement of round trips, where a policy uses them (docs/policies.md).
        pub probes: ProbesConfig = ProbesConfig::default() => nested().applied();
        /// How leaderships are spread over the nodes, for jobs with policy.balance.
        /// The share of a node is its attribute `weight`: default "1"; "0" leads nothing.
        pub balance: BalanceConfig = BalanceConfig::default() => nested().applied();
        /// Notifications of changes of leaders, of failures and of holds. One worker sends; see docs/notifications.md.
        pub notify: NotifyConfig = NotifyConfig::default() => nested().applied();
        /// Where each change of leadership is sent as a trace, by OTLP over HTTP (JSON); not set: nowhere. See docs/metrics.md.
        pub trace: Option<TraceConfig> = None => optional_nested(TraceConfig::default()).applied();
        /// A watchdog device resets this machine if worker and guard can't end a job before its lease ends. See docs/install.md.
        pub watchdog: WatchdogConfig = WatchdogConfig::default() => nested().worker("the device resets this machine if what opened it lets it go");
        /// Drills: practised failovers. See docs/drills.md.
        pub drill: DrillConfig = DrillConfig::default() => nested().applied();
        /// Plan for the loss of a site, by a name of your choice: `dr-worker drill --plan east-is-lost` practises it.
        /// See docs/evacuation.md.
        pub plans as plan: BTreeMap<String, SitePlan> = BTreeMap::new() => tables(SitePlan::default()).name("east-is-lost").applied();
        /// Where leadership should be, and when it moves. [job.NAME.policy] has the same keys and overrides these.
        /// It must be the same on all workers of a job: any of them can become the one that decides.
        pub policy: PolicyConfig = PolicyConfig::default() => later().overlay(Reach::Safe);
        /// The jobs; at least one, sorted by name.
        pub jobs as job: Vec<JobConfig> = Vec::new() => JobTables;
        /// Every value and where it came from.
        shown: Vec<Shown> = Vec::new() => unread();
        /// All settings as they were read.
        root: Node = Node::default() => unread();
        /// Stages and strategies that policies may name besides the built-in ones.
        registry: Registry = Registry::default() => unread();
    }
    check Config::read_jobs;
}

/// A job: a program that runs on the leader only. Any number of jobs, each with an election of its own.
struct JobTables;

impl ConfigField<Vec<JobConfig>> for JobTables {
    fn read(self, key: &'static str, _: &mut Vec<JobConfig>, section: &mut Section<'_>) {
        section.know(key);
    }

    fn describe(self, (name, _): Said, _: &Vec<JobConfig>, keys: &mut Vec<Key>) {
        let sentence = "A job: a program that runs on the leader only. Any number of jobs, each with an election of its own. Its \
            environment: DR_JOB, DR_MEMBER, DR_SITE, DR_SLOT, DR_TERM, DR_FENCING_TOKEN, DR_CAUSE, DR_PREVIOUS_LEADER, \
            DR_PREVIOUS_SITE.";
        let job = Of::Table { keys: JobConfig::default().keys(), shape: Shape::Always };
        let terms = Terms { name: "orders", ..Terms::default() };
        let job = Key { name: ANY, sentence, terms, of: job };
        let of = Of::Table { keys: vec![job], shape: Shape::Always };
        keys.push(Key { name, sentence: "", terms: Terms::default(), of });
    }
}

/// All keys that there are.
static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| Config::default().keys());

impl Config {
    /// Reads and checks the configuration of a worker.
    ///
    /// # Errors
    /// All problems.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        Self::checked(root, findings).map_err(|problems| sources.explain(problems))
    }

    /// Reads and checks merged settings.
    fn of(root: Node, registry: &Registry) -> Result<Self, Problems> {
        Self::checked(root, Findings::with(registry))
    }

    /// Reads merged settings, and checks how they fit together on a worker.
    fn checked(root: Node, mut findings: Findings) -> Result<Self, Problems> {
        let config = Self::read_all(root, &mut findings, Self::check_together);
        Problems::none_of(findings.problems)?;
        Ok(config)
    }

    /// Reads these sources. Problems with keys that do not matter to the caller are left out; the value of such a key is its
    /// default.
    fn read_leniently(sources: &Sources, matters: impl Fn(Option<&str>) -> bool) -> (Self, Vec<Problem>) {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        let config = Self::read_all(root, &mut findings, |_, _| ());
        findings.problems.retain(|problem| matters(problem.key.as_deref()));
        (config, findings.problems)
    }

    fn read_all(root: Node, findings: &mut Findings, check: impl FnOnce(&Self, &mut Section<'_>)) -> Self {
        let mut config = Self::default();
        Section::read_root(&root, findings, |section| {
            config.read(section);
            check(&config, section);
        });
        let (shown, registry) = (std::mem::take(&mut findings.shown), findings.registry().clone());
        Self { shown, root, registry, ..config }
    }

    /// Reads what depends on other tables: the policy, and the jobs.
    fn read_jobs(&mut self, root: &mut Section<'_>) {
        let mut policy = PolicyConfig::measured_to(self.probes.publishing);
        root.declared_table("policy", &Terms::default(), |section| policy.read(section));
        root.declared_table("job", &Terms::default(), |jobs| {
            self.jobs = jobs.each_table(|name, section| {
                let mut job = JobConfig::named(name, &policy, &self.drill);
                job.read(section);
                job
            });
        });
        self.policy = policy;
    }

    /// Every key with its sentence, where these are the jobs, for completions.
    pub(crate) fn described_keys(jobs: &[&str]) -> Vec<(String, &'static str)> {
        key::in_full(&KEYS, "", jobs)
    }

    /// The policies as they would be with these settings, each `key=value`, over all others.
    ///
    /// # Errors
    /// All problems.
    pub fn what_if(&self, sets: &[String]) -> Result<OperatorConfig, Problems> {
        let mut findings = Findings::with(&self.registry);
        let root = layers::set_over(self.root.clone(), sets, &mut findings.problems);
        OperatorConfig::read(root, findings)
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
            let files = [
                ("secret_file", webhook.secret_file.as_deref().map(Tokens::read).transpose().err()),
                ("ca_file", webhook.ca_file.as_deref().map(zookeeper::content).transpose().err()),
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
            "node.state_dir {dir} belongs to user {owner}: only a worker that runs as that user starts; check \
             as that user"
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
        let zookeeper = self.zookeeper.tls.iter();
        let zookeeper = zookeeper.flat_map(|tls| of_zookeeper(&tls.ca_file, tls.cert_file.as_deref()));
        zookeeper.chain(webhooks).collect()
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

    /// What is wrong with what a job names on this node, as of [`check_node`](Self::check_node).
    fn faults_of(&self, job: &JobConfig) -> Vec<Problem> {
        let problem = |SpecError { key, fault }: SpecError| {
            Problem::on_host(origin_of(&self.shown, &key), key.as_str(), &fault)
        };
        job.spec.faults().into_iter().map(problem).collect()
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
                let key = format!("{}.stop_timeout", job_key(job.name()));
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
    /// The jobs that each job comes after.
    pub after: BTreeMap<String, BTreeSet<String>>,
    /// How to verify workers, and the certificate that they ask for.
    pub tls: TlsFiles,
    /// Where other jobs are led, for the policies that go by it; empty before it is read.
    pub others: OtherJobs,
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
        Self::read(root, findings).map_err(|problems| sources.explain(problems))
    }

    fn read(root: Node, mut findings: Findings) -> Result<Self, Problems> {
        let config = Config::read_all(root, &mut findings, |_, _| ());
        let has_id = findings.problems.iter().all(|problem| problem.key.as_deref() != Some("node.id"));
        findings.problems.retain(|problem| problem.key.as_deref().is_none_or(matters_to_operators));
        Problems::none_of(findings.problems)?;
        let Config { node, zookeeper, http, policy, shown, root, registry, .. } = config;
        let pair = http.tls.pair.clone().filter(|_| http.presents());
        Ok(Self {
            node_id: has_id.then_some(node.id),
            zookeeper,
            policy,
            fenced: config.jobs.iter().filter(|job| job.fenced).map(|job| job.name().to_owned()).collect(),
            after: config.jobs.iter().map(follows).collect(),
            jobs: config.jobs.into_iter().map(|job| (job.name().to_owned(), job.policy)).collect(),
            tls: TlsFiles { pair, ..http.tls },
            others: OtherJobs::new(),
            shown,
            root,
            registry,
        })
    }

    /// The plans of drills, by name. A mistake in one blocks no other command.
    ///
    /// # Errors
    /// All problems with plans.
    pub fn drills(&self) -> Result<BTreeMap<String, DrillPlan>, Problems> {
        Ok(self.read_again("drill")?.drill.plans)
    }

    /// The plans for the loss of a site, by name. A mistake in one blocks no other command.
    ///
    /// # Errors
    /// All problems with plans.
    pub fn site_plans(&self) -> Result<BTreeMap<String, SitePlan>, Problems> {
        Ok(self.read_again("plan")?.plans)
    }

    /// The whole configuration. Problems outside of this table do not matter.
    fn read_again(&self, table: &str) -> Result<Config, Problems> {
        let mut findings = Findings::with(&self.registry);
        let config = Config::read_all(self.root.clone(), &mut findings, |_, _| ());
        let is_there = |key: &str| change::steps(key).first().is_some_and(|first| first == table);
        findings.problems.retain(|problem| problem.key.as_deref().is_some_and(is_there));
        Problems::none_of(findings.problems)?;
        Ok(config)
    }

    /// A problem with the value of one key that was found when it was used.
    pub(crate) fn problem(&self, key: &str, fault: impl Into<HostFault>) -> Problems {
        problem_at(&self.shown, key, fault)
    }

    /// The policy of a job, whether it is configured here or not, with what is known of other jobs.
    pub fn policy_of(&self, job: &str) -> PolicyConfig {
        let policy = self.jobs.get(job).cloned();
        let policy = policy.unwrap_or_else(|| self.policy.clone().for_job(job, job::DEFAULT_LOAD));
        policy.seeing(self.others.clone())
    }

    /// What each job moves after: the jobs that it comes after, and those beside which it must lead.
    pub fn moves_after(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut after = self.after.clone();
        for (job, policy) in &self.jobs {
            after.entry(job.clone()).or_default().extend(policy.who.required_jobs());
        }
        after
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

fn follows(job: &JobConfig) -> (String, BTreeSet<String>) {
    (job.name().to_owned(), job.spec.after.iter().cloned().collect())
}

/// Whether a problem with this key blocks an operator: one with the ensemble, or with the policy of a job.
fn matters_to_operators(key: &str) -> bool {
    let steps = change::steps(key);
    match steps.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["job", _, key, ..] => ["policy", "fenced", "load", "planned_stop_timeout"].contains(&key),
        [table, _, ..] => ["zookeeper", "probes", "policy"].contains(&table),
        // A table that is none, or that does not exist.
        [table] => {
            !["node", "http", "log", "balance", "notify", "watchdog", "drill", "plan"].contains(&table)
        }
        [] => true,
    }
}

#[cfg(test)]
mod tests;
