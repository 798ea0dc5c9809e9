//! Overlays: settings of one job that an operator has written to ZooKeeper, between the files and the environment.
//!
//! They are input from outside this node: everyone who can write to the election's znodes can push one. So a node accepts
//! only keys that can't make it run another program, unless `zookeeper.overlay` says otherwise. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use crate::znodes::Overlay;
use serde::Serialize;

use super::{
    Config, KEYS, OperatorConfig, Problem, Problems, Sources,
    beside::check_timing,
    change,
    key::{Effect, Reach, find, job_key},
    layers::{self, Text},
    parse::Parse as _,
    reader::Findings,
    tree::{Node, Origin, Value},
    zookeeper::Overlays,
};
use crate::mask::mask;

/// How long after the last change members apply overlays: several pushes cost one restart of the job at most.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);

/// Why an overlay can't change the key at `steps`, if it can't.
pub(super) fn refusal(steps: &[String], overlays: Overlays) -> Option<String> {
    // An unknown key is the reader's to report.
    let found = find(&KEYS, steps)?;
    let what = match found.reach {
        _ if found.effect == Some(Effect::WorkerRestart) => {
            let why =
                "an overlay can't change it, because it needs a restart of the worker; set it in a file";
            return Some(why.to_owned());
        }
        _ if found.effect == Some(Effect::Handover) => {
            let why =
                "an overlay can't change it, because the worker has to re-execute itself; set it in a file";
            return Some(why.to_owned());
        }
        Reach::Node => {
            let why = "an overlay can't change it: each node decides that; set it in a file";
            return Some(why.to_owned());
        }
        Reach::Safe => return None,
        _ if overlays == Overlays::All => return None,
        Reach::StayDown => "keep the job down while its member leads",
        Reach::Program => "make the node run another program",
    };
    Some(format!("it can {what}: an overlay may change it only where zookeeper.overlay is \"all\""))
}

/// Reports what an overlay of `job` can't change.
fn check_keys(node: &Node, steps: &mut Vec<String>, overlays: Overlays, problems: &mut Vec<Problem>) {
    if let Value::Table(table) = &node.value
        && find(&KEYS, steps).is_some_and(|found| found.is_table)
    {
        for (key, inner) in table {
            steps.push(key.clone());
            check_keys(inner, steps, overlays, problems);
            steps.pop();
        }
        return;
    }
    if let Some(why) = refusal(steps, overlays) {
        let steps: Vec<_> = steps.iter().map(|step| toml_edit::Key::new(step).to_string()).collect();
        problems.push(Problem::with_key(&node.key_origin, steps.join("."), why));
    }
}

/// Puts an overlay over values of files, and under those of the environment and the command line.
fn lay(under: &mut Node, over: Node) {
    let is_nearer = |origin: &Origin| matches!(origin, Origin::Variable { .. } | Origin::Set { .. });
    layers::put_over(under, over, is_nearer);
}

/// The settings of an overlay, checked for keys that it can't change.
fn read(job: &str, text: &Text<'_>, overlays: Overlays) -> Result<Node, Problems> {
    let node = layers::of_job(job, text)?;
    let mut problems = Vec::new();
    if overlays == Overlays::Off {
        problems
            .push(Problem::with_source("zookeeper.overlay", "it is \"off\": this node takes no overlays"));
    }
    check_keys(&node, &mut Vec::new(), overlays, &mut problems);
    Problems::none_of(problems)?;
    Ok(node)
}

impl Config {
    /// This configuration, which has no overlays, with these, by job. Those of other jobs have no effect.
    ///
    /// # Errors
    /// All problems of the overlays, and of the values together.
    pub fn with_overlays(&self, overlays: &BTreeMap<String, Overlay>) -> Result<Self, Problems> {
        self.with_known_overlays(overlays, &BTreeMap::new())
    }

    /// The same where these are known: what they name on this host is not checked again.
    fn with_known_overlays(
        &self,
        overlays: &BTreeMap<String, Overlay>,
        known: &BTreeMap<String, Overlay>,
    ) -> Result<Self, Problems> {
        let mut root = self.root.clone();
        let mut is_changed = false;
        for job in &self.jobs {
            let Some(overlay) = overlays.get(job.name()).filter(|overlay| !overlay.text.is_empty()) else {
                continue;
            };
            let text = Text::Overlay { version: overlay.version, text: &overlay.text };
            lay(&mut root, read(job.name(), &text, self.zookeeper.overlay)?);
            is_changed = true;
        }
        if !is_changed {
            return Ok(self.clone());
        }
        let config = Self::of(root, &self.registry)?;
        let is_new = |job: &str| overlays.contains_key(job) && overlays.get(job) != known.get(job);
        for job in config.jobs.iter().filter(|job| is_new(job.name())) {
            Problems::none_of(config.faults_of(job))?;
        }
        Ok(config)
    }

    /// The overlays that this configuration can have, and why it can't have the others. Of a job whose newest overlay can't
    /// be used, the one in `former` is taken. What the overlays in `former` name on this host is not checked again: a program
    /// that is missing now costs no overlay that is in force.
    pub fn with_usable_overlays(
        &self,
        newest: &BTreeMap<String, Overlay>,
        former: &BTreeMap<String, Overlay>,
        check: impl Fn(&Self) -> Result<(), Problems>,
    ) -> Usable {
        let tried = |overlays: &BTreeMap<String, Overlay>| {
            let config = self.with_known_overlays(overlays, former)?;
            check(&config).map(|()| config)
        };
        if let Ok(config) = tried(newest) {
            return Usable { config, used: newest.clone(), refused: BTreeMap::new() };
        }
        let mut usable = Usable { config: self.clone(), used: BTreeMap::new(), refused: BTreeMap::new() };
        for (job, overlay) in newest {
            let mut attempt = |overlay: &Overlay| {
                let mut overlays = usable.used.clone();
                overlays.insert(job.clone(), overlay.clone());
                usable.config = tried(&overlays)?;
                usable.used = overlays;
                Ok::<_, Problems>(())
            };
            if let Err(problems) = attempt(overlay) {
                if let Some(former) = former.get(job).filter(|former| former.version != overlay.version) {
                    // One that does not fit any more is dropped too.
                    let _ = attempt(former);
                }
                usable.refused.insert(job.clone(), problems);
            }
        }
        usable
    }
}

/// A configuration with the overlays that it can have.
pub struct Usable {
    /// The configuration.
    pub config: Config,
    /// Its overlays, by job.
    pub used: BTreeMap<String, Overlay>,
    /// Why newer ones are not used.
    pub refused: BTreeMap<String, Problems>,
}

impl OperatorConfig {
    /// The same with the text of an overlay of a job.
    ///
    /// # Errors
    /// All problems.
    pub fn with_overlay(&self, job: &str, version: u64, text: &str) -> Result<Self, Problems> {
        let text = Text::Overlay { version, text };
        let mut root = self.root.clone();
        lay(&mut root, read(job, &text, Overlays::All)?);
        let others = self.others.clone();
        Ok(Self { others, ..Self::read(root, Findings::with(&self.registry))? })
    }
}

/// What these settings have at this key.
fn at(root: &Node, key: &[&str]) -> Option<Node> {
    let inside = |node: Node, step: &&str| match node.structured() {
        Value::Table(mut table) => table.remove(*step),
        _ => None,
    };
    key.iter().try_fold(root.clone(), inside)
}

/// Whether these settings of a job have its program, or its processes.
fn has_programs(root: &Node, job: &str) -> bool {
    ["command", "process"].into_iter().any(|key| at(root, &["job", job, key]).is_some())
}

/// Checks a file that is to become the overlay of a job, with all other settings of these sources, and as a worker does if they
/// are those of one with this job. Nodes may have others, so each checks it again.
///
/// # Errors
/// All problems.
pub fn check_overlay(sources: &Sources, job: &str, path: &Path, text: &str) -> Result<(), Problems> {
    let mut findings = Findings::with(&sources.registry);
    let mut root = layers::merge(sources, &mut findings.problems);
    Problems::none_of(std::mem::take(&mut findings.problems))?;
    let mut ignored = Findings::with(&sources.registry);
    let overlays = Config::read_all(root.clone(), &mut ignored, |_, _| ()).zookeeper.overlay;
    // The others may take it.
    let overlays = if overlays == Overlays::Off { Overlays::Safe } else { overlays };
    let is_of_worker = at(&root, &["node", "site"]).is_some() && at(&root, &["job", job]).is_some();
    let node = read(job, &Text::File { path: Arc::from(path), text }, overlays)?;
    lay(&mut root, node);
    // An operator's own configuration may not have the job.
    if !has_programs(&root, job) {
        let command = Text::Overlay { version: 0, text: "command = [\"true\"]" };
        let mut with_command = layers::of_job(job, &command)?;
        lay(&mut with_command, root);
        root = with_command;
    }
    // Nothing but this job, with the policy that it takes over.
    let table = job_key(job);
    let matters =
        |key: &str| key.strip_prefix(&table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let config = Config::read_all(root, &mut findings, |config, root| {
        let Some(found) = config.jobs.iter().find(|found| found.name() == job) else { return };
        if is_of_worker {
            return config.check_job_together(root, found);
        }
        root.again("job", |jobs| {
            jobs.again(job, |section| {
                check_timing(section, &config.zookeeper, found, config.watchdog.reserve());
            });
        });
    });
    drop(config);
    findings.problems.retain(|problem| {
        let key = problem.key.as_deref();
        key.is_none_or(|key| {
            matters(key)
                || ["policy", "probes", "watchdog"].contains(&key.split('.').next().unwrap_or_default())
        })
    });
    Problems::none_of(findings.problems)
}

/// The keys of an overlay of a job with their values, for a comparison.
///
/// # Errors
/// If it is not valid TOML.
pub fn overlay_values(job: &str, text: &str) -> Result<BTreeMap<String, String>, Problems> {
    fn collect(node: &Node, path: &str, all: &mut BTreeMap<String, String>) {
        match &node.value {
            Value::Table(table) if !table.is_empty() => {
                for (key, inner) in table {
                    let key = toml_edit::Key::new(key);
                    let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                    collect(inner, &path, all);
                }
            }
            _ => {
                let value = node.plain().show();
                all.insert(path.to_owned(), mask(&value).into_owned());
            }
        }
    }
    let node = layers::of_job(job, &Text::Overlay { version: 0, text })?;
    let mut all = BTreeMap::new();
    if let Value::Table(root) = &node.value
        && let Some(Value::Table(jobs)) = root.get("job").map(|node| &node.value)
        && let Some(values) = jobs.get(job)
    {
        collect(values, "", &mut all);
    }
    all.remove("");
    Ok(all)
}

/// A key of an overlay that another text of it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverlayChange {
    /// Below `job.NAME`.
    pub key: String,
    /// The value before.
    pub from: Option<String>,
    /// The value after.
    pub to: Option<String>,
    /// What it takes until the new value applies on a member that takes it from the overlay.
    pub effect: Effect,
}

/// The keys that differ between two overlays, with [their values](overlay_values).
pub fn overlay_changes(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Vec<OverlayChange> {
    let keys: BTreeSet<_> =
        from.keys().chain(to.keys()).filter(|key| from.get(*key) != to.get(*key)).collect();
    let change = |key: &String| {
        let steps = [vec!["job".to_owned(), "NAME".to_owned()], change::steps(key)].concat();
        OverlayChange {
            key: key.clone(),
            from: from.get(key).cloned(),
            to: to.get(key).cloned(),
            // An overlay that no member can apply is refused first.
            effect: change::effect(&steps),
        }
    };
    keys.into_iter().map(change).collect()
}
