//! What a changed key needs in a worker that runs, and which configuration such a worker goes on with. Pure.
//!
//! A reload is done as a whole or not at all, and never touches a running job. The new configuration is read and checked
//! first, with the programs that it names and the granted lease. Keys that need a restart of the worker keep their old
//! values, and the result is checked again, so the configuration in force is always one that the reader accepts. A longer
//! `stop_timeout` counts for the lease at once, a shorter one only when the job has been started with it.
//!
//! Where the worker has to execute itself, the same holds until it has done so. If the old values of these keys do not fit
//! the new values of others, all of them wait for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use zk_session::LeaseTiming;

use super::{
    Config, JobConfig, KEYS, Problem, Problems,
    key::{Effect, FoundKey, find, job_key},
    origin_of,
    tree::{Node, Origin, Value},
};
use crate::typed::Typed;

/// The names in a key, without the positions in arrays.
pub(super) fn steps(key: &str) -> Vec<String> {
    let (mut names, mut parts) = (String::new(), key.split('['));
    names += parts.next().unwrap_or_default();
    for part in parts {
        let position = part.split_once(']').filter(|(at, _)| at.bytes().all(|digit| digit.is_ascii_digit()));
        names += &position.map_or_else(|| format!("[{part}"), |(_, rest)| rest.to_owned());
    }
    let parsed = toml_edit::Key::parse(&names).unwrap_or_default();
    parsed.iter().map(|key| key.get().to_owned()).collect()
}

/// What a change of a key takes. A key that nothing is declared of is never applied by halves.
pub(super) fn effect(steps: &[String]) -> Effect {
    find(&KEYS, steps).and_then(|found| found.effect).unwrap_or(Effect::WorkerRestart)
}

/// What is declared of this key, if it has a value.
fn declared(key: &str) -> Option<FoundKey> {
    find(&KEYS, &steps(key)).filter(|found| !found.is_table)
}

/// The job that a key belongs to.
fn job_of(key: &str) -> Option<String> {
    match &steps(key)[..] {
        [first, job, ..] if first == "job" => Some(job.clone()),
        _ => None,
    }
}

/// A key whose value has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The key; `job.NAME` for a job that is new, or that is not configured any more.
    pub key: String,
    /// The job that it belongs to.
    pub job: Option<String>,
    /// What it takes.
    pub effect: Effect,
}

impl KeyChange {
    /// A job that this worker joins, or leaves, when it executes itself.
    pub(crate) fn of_job(job: &str) -> Self {
        Self { key: job_key(job), job: Some(job.to_owned()), effect: Effect::Handover }
    }

    fn of(key: String, effect: Effect) -> Self {
        Self { job: job_of(&key), key, effect }
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, job, effect } = self;
        match (effect, job) {
            (Effect::Applied, _) => write!(f, "{key}: applied"),
            (Effect::JobRestart, Some(job)) => {
                let restart = Typed::verb("restart").job(job);
                write!(f, "{key}: applies at the next start of the job: `{restart}`")
            }
            (Effect::JobRestart, None) => write!(f, "{key}: applies at the next start of the job"),
            (Effect::Handover, _) => write!(f, "{key}: applies when the worker has re-executed itself"),
            (Effect::WorkerRestart, _) => {
                // An upgrade refuses a configuration without a job that runs.
                let (is_fixed, reason) =
                    declared(key).map_or((true, ""), |found| (found.is_fixed, found.reason));
                let upgrade = if is_fixed { "" } else { "`dr-worker upgrade` or " };
                let colon = if reason.is_empty() { "" } else { ": " };
                write!(f, "{key}: needs {upgrade}a restart of the worker{colon}{reason}")
            }
        }
    }
}

impl Config {
    /// What a worker that runs with `old` goes on with when this is its new configuration, and what has changed: the new
    /// values, except those that need a restart of the worker, or that it executes itself. It does the latter only if nothing
    /// needs a restart. Instead of the configuration there is `None` if all of it waits for that: `old` stays in force.
    ///
    /// # Errors
    /// If the new values can't be used together with the old ones that stay in force.
    pub fn taken_over_from(self, old: &Self) -> Result<(Option<Self>, Vec<KeyChange>), Problems> {
        let mut changes = changes(old, &self);
        if changes.iter().any(|change| change.effect == Effect::WorkerRestart) {
            let waits = changes.iter_mut().filter(|change| change.effect == Effect::Handover);
            waits.for_each(|change| change.effect = Effect::WorkerRestart);
        }
        let kept: Vec<_> =
            changes.iter().filter(|change| change.effect.keeps_old()).map(|c| c.key.as_str()).collect();
        if kept.is_empty() {
            return Ok((Some(self), changes));
        }
        let mut root = self.root;
        for key in &kept {
            keep(&mut root, &old.root, &steps(key));
        }
        let message = format!(
            "these keys need a restart of the worker, and other new values do not fit their old ones, which stay \
             until then: {}",
            kept.join(", ")
        );
        match Self::of(root, &self.registry) {
            Ok(config) => Ok((Some(config), changes)),
            Err(_) if changes.iter().all(|change| change.effect != Effect::WorkerRestart) => {
                changes.iter_mut().for_each(|change| change.effect = Effect::Handover);
                Ok((None, changes))
            }
            Err(problems) => Err(problems.and(Problem::with_source("reload", message))),
        }
    }

    /// Checks the timing with this lease, also of what a worker that runs with `old` goes on with when this is its new
    /// configuration.
    ///
    /// # Errors
    /// All problems, also if the new values can't be used together with the old ones that stay in force.
    pub fn check_after(&self, old: &Self, lease: Option<LeaseTiming>) -> Result<(), Problems> {
        let (in_force, _) = self.clone().taken_over_from(old)?;
        let Some(lease) = lease else { return Ok(()) };
        in_force.iter().chain([self]).try_for_each(|config| config.check_timing(lease))
    }
}

/// The values that a worker keeps as long as it runs, also through an upgrade in place, by key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FixedValues(BTreeMap<String, String>);

impl FixedValues {
    /// Those of a configuration, and of these of its jobs.
    pub(crate) fn of(config: &Config, is_of: impl Fn(&str) -> bool) -> Self {
        let is_fixed = |key: &str| declared(key).is_some_and(|found| found.is_fixed);
        let is_kept = |key: &str| is_fixed(key) && job_of(key).is_none_or(|job| is_of(&job));
        let kept = config.shown.iter().filter(|shown| is_kept(&shown.key));
        let kept = kept.map(|shown| (shown.key.clone(), shown.value.clone()));
        // A standby that runs must have an owner.
        let standbys = config.jobs.iter().filter(|job| job.spec.standby.is_some() && is_of(job.name()));
        let standbys = standbys.map(|job| (KeyChange::of_job(job.name()).key + ".standby", String::new()));
        Self(kept.chain(standbys).collect())
    }

    /// Whether a configuration has the same, and no job is missing.
    ///
    /// # Errors
    /// What has changed.
    pub(crate) fn fit(&self, config: &Config) -> Result<(), Problems> {
        let Self(present) = Self::of(config, |_| true);
        let problem = |(key, was): (&String, &String)| match present.get(key) {
            Some(is) if is == was => None,
            Some(is) => {
                let message = format!("was {was} and is {is}: restart the worker to change it");
                Some(Problem::with_key(origin_of(&config.shown, key), key.as_str(), message))
            }
            None if job_of(key).is_some_and(|job| config.jobs.iter().any(|of| of.name() == job)) => {
                let message = "it is missing: restart the worker, which ends the standby";
                Some(Problem::with_key(&Origin::BuiltIn, key.as_str(), message))
            }
            None => {
                let message = "it is missing: reload the configuration (SIGHUP) first, so that the worker leaves its \
                               election, or restart the worker";
                let key = job_of(key).map_or_else(|| key.clone(), |job| KeyChange::of_job(&job).key);
                Some(Problem::with_key(&Origin::BuiltIn, key, message))
            }
        };
        Problems::none_of(self.0.iter().filter_map(problem).collect())
    }

    /// Whether a configuration has no other job: a reload checks whether the worker can join its election.
    ///
    /// # Errors
    /// Those that are new.
    pub(crate) fn has_jobs_of(&self, config: &Config) -> Result<(), Problems> {
        let known: BTreeSet<_> = self.0.keys().filter_map(|key| job_of(key)).collect();
        let new = config.jobs.iter().filter(|job| !known.contains(job.name()));
        let message = "it is new: reload the configuration (SIGHUP) first, so that the worker joins its election, or restart the worker";
        let problem =
            |job: &JobConfig| Problem::with_key(&Origin::BuiltIn, KeyChange::of_job(job.name()).key, message);
        Problems::none_of(new.map(problem).collect())
    }
}

/// The keys with another value. A key that takes its value over from another one is left out, where that has changed too.
fn changes(old: &Config, new: &Config) -> Vec<KeyChange> {
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
    let jobs = other_jobs.iter().map(|job| KeyChange::of_job(job));
    let of_keys = keys.iter().filter_map(|key| {
        let steps = steps(key);
        let is_of_other_job = steps.first().is_some_and(|step| step == "job")
            && steps.get(1).is_some_and(|job| other_jobs.contains(job));
        if is_of_other_job || is_inherited(key) {
            return None;
        }
        Some(KeyChange::of((*key).clone(), effect(&steps)))
    });
    jobs.chain(of_keys).collect()
}

/// Sets a key to its value in `old`, or removes it if it has none there. Of a key inside an array the whole array is set.
fn keep(node: &mut Node, old: &Node, steps: &[String]) {
    let Some((step, rest)) = steps.split_first() else { return };
    let found = match old.structured() {
        Value::Table(table) => table.get(step).cloned(),
        _ => None,
    };
    // A table can come as text, from a variable.
    let mut value = node.structured();
    let Value::Table(table) = &mut value else { return };
    match found {
        None => take(table, step, rest),
        Some(found) => {
            let empty = Node { value: Value::Table(BTreeMap::new()), ..found.clone() };
            let inside = table.entry(step.clone()).or_insert(empty);
            if !rest.is_empty() && is_table(&found) && is_table(inside) {
                keep(inside, &found, rest);
            } else {
                *inside = found;
            }
        }
    }
    node.value = value;
}

fn is_table(node: &Node) -> bool {
    matches!(node.structured(), Value::Table(_))
}

/// Removes a key that `old` has not, with the tables and the array around it that `old` has not either.
fn take(table: &mut BTreeMap<String, Node>, step: &str, rest: &[String]) {
    let mut has_more = false;
    if let (Some((next, rest)), Some(node)) = (rest.split_first(), table.get_mut(step))
        && let Value::Table(mut inner) = node.structured()
    {
        take(&mut inner, next, rest);
        has_more = inner.values().any(|node| !node.outlived);
        node.value = Value::Table(inner);
    }
    if !has_more {
        table.remove(step);
    }
}
