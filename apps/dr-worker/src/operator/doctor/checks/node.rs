//! This node.

use super::super::{
    facts::{Facts, Node},
    finding::{Found, Severity},
};
use job_guard::LOCKED_MEMORY_NEEDED;

/// With fewer open files a worker serves few HTTP clients.
const FEWEST_FILES: u64 = 1024;
/// A worker, its guards, its job and its hooks.
const FEWEST_PROCESSES: u64 = 256;

fn node(facts: &Facts) -> Option<&Node> {
    facts.node.as_ref()
}

pub(super) fn none(facts: &Facts, found: &mut Found) {
    if facts.node.is_some() {
        return;
    }
    if facts.is_operator {
        let why = "because the configuration is not that of a worker";
        found.add(format!("this node was not examined, {why}: {}", facts.no_node));
    } else {
        found.with(
            Severity::Error,
            format!("the worker of this node refuses its configuration: {}", facts.no_node),
        );
    }
}

fn unusable(facts: &Facts, found: &mut Found, of_jobs: bool) {
    let all = node(facts).into_iter().flat_map(|node| &node.unusable);
    for (key, why) in all.filter(|(key, _)| key.starts_with("job.") == of_jobs) {
        found.add(format!("{key}: {why}"));
    }
}

pub(super) fn not_runnable(facts: &Facts, found: &mut Found) {
    unusable(facts, found, true);
}

pub(super) fn unusable_file(facts: &Facts, found: &mut Found) {
    unusable(facts, found, false);
}

pub(super) fn certificate(facts: &Facts, found: &mut Found) {
    if let Some((is_refused, what)) = node(facts).and_then(|node| node.certificate.as_ref()) {
        found.with(if *is_refused { Severity::Error } else { Severity::Warning }, what.clone());
    }
}

pub(super) fn readable_secret(facts: &Facts, found: &mut Found) {
    if let Some(path) = node(facts).and_then(|node| node.readable_secret.as_ref()) {
        found.add(format!("other users can read {path} (zookeeper.auth.credentials_file)"));
    }
}

pub(super) fn plain_password(facts: &Facts, found: &mut Found) {
    if let Some(what) = node(facts).and_then(|node| node.plain_password) {
        found.add(what.to_owned());
    }
}

pub(super) fn state_dir(facts: &Facts, found: &mut Found) {
    let Some(node) = node(facts) else { return };
    if let Some(why) = &node.not_writable {
        found.add(format!("node.state_dir {} can't be written: {why}", node.state_dir));
    }
}

pub(super) fn state_in_memory(facts: &Facts, found: &mut Found) {
    if let Some(node) = node(facts).filter(|node| node.in_memory) {
        found.add(format!("node.state_dir {} is in memory", node.state_dir));
    }
}

pub(super) fn open_files(facts: &Facts, found: &mut Found) {
    let Some((most, needed)) = node(facts).and_then(|node| node.open_files) else { return };
    if most < needed {
        found.with(
            Severity::Error,
            format!("the worker may open {most} files, and needs {needed} to lead all of its jobs"),
        );
    } else if most < FEWEST_FILES {
        found.add(format!("the worker may open {most} files, of which its jobs need {needed}"));
    }
}

pub(super) fn locked_memory(facts: &Facts, found: &mut Found) {
    if let Some(most) =
        node(facts).and_then(|node| node.locked_memory).filter(|most| *most < LOCKED_MEMORY_NEEDED)
    {
        found.add(format!(
            "a guard may lock {} MiB of memory, and needs {}",
            most >> 20,
            LOCKED_MEMORY_NEEDED >> 20
        ));
    }
}

pub(super) fn unmet_limits(facts: &Facts, found: &mut Found) {
    for (job, key, why) in node(facts).into_iter().flat_map(|node| &node.unmet_limits) {
        found.add(format!("job.{job}.{key}: {why}"));
    }
}

pub(super) fn processes(facts: &Facts, found: &mut Found) {
    if let Some(most) = node(facts).and_then(|node| node.processes).filter(|most| *most < FEWEST_PROCESSES) {
        found.add(format!("the worker's user may have {most} processes"));
    }
}

pub(super) fn exposed(facts: &Facts, found: &mut Found) {
    for what in node(facts).into_iter().flat_map(|node| &node.exposed) {
        found.add(format!("the HTTP endpoints can be reached from other hosts: {what}"));
    }
}

pub(super) fn watchdog(facts: &Facts, found: &mut Found) {
    if let Some((is_required, why)) = node(facts).and_then(|node| node.watchdog.as_ref()) {
        let severity = if *is_required { Severity::Error } else { Severity::Warning };
        found.with(severity, format!("the watchdog can't be used: {why}"));
    }
}
