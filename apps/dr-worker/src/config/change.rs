//! What a changed key needs in a worker that runs, and which configuration such a worker goes on with. Pure.
//!
//! A reload is done as a whole or not at all, and never touches a running job. The new configuration is read and checked
//! first, with the programs that it names and the granted lease. Keys that need a restart of the worker keep their old
//! values, and the result is checked again, so the configuration in force is always one that the reader accepts. A longer
//! `stop_timeout` counts for the lease at once, a shorter one only when the job has been started with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

use super::{
    Config, JobConfig, Problem, Problems,
    tree::{Node, Origin, Value},
};
use crate::typed::Typed;

/// What it takes until the new value of a key applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing.
    Applied,
    /// The next start of the job.
    JobRestart,
    /// A restart of the worker. Until then the old value stays in force.
    WorkerRestart,
}

/// What a change of each key takes. A name includes the keys below it, and `*` is any name that the user chooses; a job's
/// policy has the keys of `policy`. A test compares it with the keys that the reader asks for.
pub(super) const EFFECTS: &[(Effect, &[&str])] = &[
    (
        Effect::Applied,
        &[
            "node.priority",
            "node.attributes",
            "node.site_check",
            // They are read for each run of `doctor` and each evaluation of a drill.
            "zookeeper.sites",
            "zookeeper.admin",
            "http.token_file",
            "log.levels",
            "probes",
            "balance",
            "drill",
            "policy.sites",
            "policy.forbidden_sites",
            "policy.site_minimum",
            "policy.below_site_minimum",
            "policy.on_leader_failure",
            "policy.auto_moves",
            "policy.confirm",
            "policy.failback_after",
            "policy.failback_windows",
            "policy.min_tenure",
            "policy.startup_wait",
            "policy.max_takeovers",
            "policy.takeover_timeout",
            "policy.release_timeout",
            "policy.acquire_timeout",
            "policy.exclusion",
            "policy.max_exclusion",
            "policy.penalty_window",
            "policy.max_site_failures",
            "policy.spread",
            "policy.pipeline",
            "policy.pipelines",
            "policy.rules",
            "policy.strategy",
            "job.*.load",
            "job.*.restart",
            // First, because an overlay may set the others more freely.
            "job.*.exit_codes.stay_down",
            "job.*.exit_codes",
            "job.*.as_worker",
            "job.*.output",
            "job.*.hooks",
            "job.*.liveness",
            "job.*.fitness",
            "job.*.measure",
            "job.*.drill",
            "job.*.rehearsal",
        ],
    ),
    // The guard of a running job got these at its start.
    (
        Effect::JobRestart,
        &[
            "job.*.command",
            "job.*.env",
            "job.*.working_dir",
            "job.*.no_new_privileges",
            "job.*.user",
            "job.*.group",
            "job.*.limits",
            "job.*.stop_signal",
            "job.*.stop_timeout",
            "job.*.ready",
        ],
    ),
    // Who this member is, its session, and what a leadership that is under way relies on.
    (
        Effect::WorkerRestart,
        &[
            "node.id",
            "node.site",
            "node.address",
            "node.state_dir",
            "zookeeper",
            "notify",
            "watchdog",
            "http.listen",
            "http.tls",
            "http.access",
            "log.file",
            "log.max_size",
            "log.max_age",
            "log.keep",
            "policy.on_pause",
            "policy.slots",
            "policy.fast_failover",
            "policy.suspect_after",
            "policy.balance",
            "job.*.recipe",
            "job.*.fenced",
            "job.*.fence",
        ],
    ),
];

/// The names in a key.
pub(super) fn steps(key: &str) -> Vec<String> {
    let parsed = toml_edit::Key::parse(key).unwrap_or_default();
    parsed.iter().map(|key| key.get().to_owned()).collect()
}

/// The name in [`EFFECTS`] that a key belongs to, and what a change of it takes.
pub(super) fn classify(steps: &[String]) -> Option<(&'static str, Effect)> {
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let steps = match steps.as_slice() {
        ["job", _, policy @ ..] if policy.first() == Some(&"policy") => policy,
        all => all,
    };
    let is_it = |name: &str| {
        let names: Vec<_> = name.split('.').collect();
        names.len() <= steps.len() && names.iter().zip(steps).all(|(name, step)| *name == "*" || name == step)
    };
    EFFECTS.iter().find_map(|(effect, names)| {
        let name = names.iter().find(|name| is_it(name))?;
        Some((*name, *effect))
    })
}

/// A key whose value has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key; `job.NAME` for a job that is new, or that is not configured any more.
    pub key: String,
    /// The job that it belongs to.
    pub job: Option<String>,
    /// What it takes.
    pub effect: Effect,
}

impl Change {
    fn of(key: String, effect: Effect) -> Self {
        let job = match &steps(&key)[..] {
            [first, job, ..] if first == "job" => Some(job.clone()),
            _ => None,
        };
        Self { key, job, effect }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, job, effect } = self;
        match (effect, job) {
            (Effect::Applied, _) => write!(f, "{key}: applied"),
            (Effect::JobRestart, Some(job)) => {
                let restart = Typed::verb("restart").job(job);
                write!(f, "{key}: applies at the next start of the job: `{restart}`")
            }
            (Effect::JobRestart, None) => write!(f, "{key}: applies at the next start of the job"),
            (Effect::WorkerRestart, _) => {
                write!(f, "{key}: needs `dr-worker upgrade` or a restart of the worker")
            }
        }
    }
}

impl Config {
    /// What a worker that runs with `old` goes on with when this is its new configuration, and what has changed: the new
    /// values, except those that need a restart of the worker.
    ///
    /// # Errors
    /// If the new values can't be used together with the old ones that stay in force.
    pub fn taken_over_from(self, old: &Self) -> Result<(Self, Vec<Change>), Problems> {
        let changes = changes(old, &self);
        let kept: Vec<_> =
            changes.iter().filter(|change| change.effect == Effect::WorkerRestart).map(|c| &c.key).collect();
        if kept.is_empty() {
            return Ok((self, changes));
        }
        let mut root = self.root;
        for key in &kept {
            keep(&mut root, &old.root, &steps(key));
        }
        let kept: Vec<_> = kept.iter().map(|key| key.as_str()).collect();
        let message = format!(
            "these keys need a restart of the worker and keep their old values until then, which the others do not fit: {}",
            kept.join(", ")
        );
        let config = Self::of(root, &self.registry)
            .map_err(|problems| problems.and(Problem::with_source("reload", message)))?;
        Ok((config, changes))
    }
}

/// The keys with another value. A key that takes its value over from another one is left out, where that has changed too.
fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let names = |config: &Config| -> BTreeSet<String> {
        config.jobs.iter().map(JobConfig::name).map(str::to_owned).collect()
    };
    let (before, now) = (names(old), names(new));
    let other_jobs: BTreeSet<_> = before.symmetric_difference(&now).collect();
    let values = |config: &Config| -> BTreeMap<String, (u64, bool)> {
        let shown = config.shown.iter();
        shown.map(|s| (s.key.clone(), (s.identity, matches!(s.origin, Origin::Inherited(_))))).collect()
    };
    let (old, new) = (values(old), values(new));
    let differs = |key: &str| old.get(key).map(|(value, _)| value) != new.get(key).map(|(value, _)| value);
    let is_inherited = |key: &str| [&old, &new].iter().all(|all| all.get(key).is_none_or(|(_, is)| *is));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).filter(|key| differs(key)).collect();
    let jobs = other_jobs.iter().map(|job| {
        let key = toml_edit::Key::new(job.as_str());
        Change { key: format!("job.{key}"), job: Some((*job).clone()), effect: Effect::WorkerRestart }
    });
    let of_keys = keys.iter().filter_map(|key| {
        let steps = steps(key);
        let is_of_other_job = steps.first().is_some_and(|step| step == "job")
            && steps.get(1).is_some_and(|job| other_jobs.contains(job));
        if is_of_other_job || is_inherited(key) {
            return None;
        }
        // A key that is forgotten in the table is never applied by halves.
        let effect = classify(&steps).map_or(Effect::WorkerRestart, |(_, effect)| effect);
        Some(Change::of((*key).clone(), effect))
    });
    jobs.chain(of_keys).collect()
}

/// Sets a key to its value in `old`, or removes it if it has none there.
fn keep(node: &mut Node, old: &Node, steps: &[String]) {
    let Some((step, rest)) = steps.split_first() else { return };
    let found = match old.structured() {
        Value::Table(table) => table.get(step).cloned(),
        _ => None,
    };
    // A table can come as text, from a variable.
    let mut value = node.structured();
    let Value::Table(table) = &mut value else { return };
    match (found, rest) {
        (Some(found), []) => drop(table.insert(step.clone(), found)),
        (None, _) => take(table, step, rest),
        (Some(found), rest) => {
            let empty = Node { value: Value::Table(BTreeMap::new()), ..found.clone() };
            keep(table.entry(step.clone()).or_insert(empty), &found, rest);
        }
    }
    node.value = value;
}

/// Removes a key that `old` has not, and leaves the tables around it.
fn take(table: &mut BTreeMap<String, Node>, step: &str, rest: &[String]) {
    match rest.split_first() {
        None => drop(table.remove(step)),
        Some((next, rest)) => {
            let Some(node) = table.get_mut(step) else { return };
            let mut value = node.structured();
            if let Value::Table(inner) = &mut value {
                take(inner, next, rest);
            }
            node.value = value;
        }
    }
}
