//! This node.

use super::super::{
    facts::{Facts, NodeFacts},
    finding::{Check, Found, Severity},
};
use crate::config::job_key;
use job_guard::LOCKED_MEMORY_NEEDED;

/// With fewer open files a worker serves few HTTP clients.
const FEWEST_FILES: u64 = 1024;
/// A worker, its guards, its job and its hooks.
const FEWEST_PROCESSES: u64 = 256;

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "no-worker",
        severity: Severity::Unknown,
        finds: "the configuration is not that of a worker; an error if the worker of this node refuses it",
        why: "This node is not examined, and a worker with a wrong configuration does not start.",
        action: "Run it on each node, with the worker's configuration and as the worker's user; `dr-worker config check` prints all errors.",
        look: none,
    },
    Check {
        id: "not-runnable",
        severity: Severity::Error,
        finds: "a command, hook, check or directory of a job can't be used on this node",
        why: "The takeover fails on this node.",
        action: "Install what is missing, or correct the key.",
        look: |facts, found| unusable(facts, found, true),
    },
    Check {
        id: "unusable-file",
        severity: Severity::Error,
        finds: "a file of tokens, certificates, secrets or the log can't be used on this node",
        why: "The worker does not start, or notifications fail.",
        action: "Correct the file, its owner or its mode.",
        look: |facts, found| unusable(facts, found, false),
    },
    Check {
        id: "certificate",
        severity: Severity::Warning,
        finds: "the certificate of this node ends soon, or others refuse it (error)",
        why: "Other workers and clients refuse the endpoints of this node.",
        action: "Renew the certificate.",
        look: |facts, found| {
            if let Some((is_refused, what)) = node(facts).and_then(|node| node.certificate.as_ref()) {
                found.with(if *is_refused { Severity::Error } else { Severity::Warning }, what.clone());
            }
        },
    },
    Check {
        id: "readable-secret",
        severity: Severity::Error,
        finds: "other users can read ZooKeeper's credentials",
        why: "Every user of this node can change the elections.",
        action: "Give the file the worker's group (dr-worker), and run chmod 640 on it.",
        look: |facts, found| {
            if let Some(path) = node(facts).and_then(|node| node.readable_secret.as_ref()) {
                found.add(format!("other users can read {path} (zookeeper.auth.credentials_file)"));
            }
        },
    },
    Check {
        id: "plain-password",
        severity: Severity::Warning,
        finds: "the password for ZooKeeper is sent in plain text",
        why: "Everyone on the path can read it, and then change the elections.",
        action: "Set zookeeper.tls, or zookeeper.auth.scheme = \"sasl\".",
        look: |facts, found| {
            if let Some(what) = node(facts).and_then(|node| node.plain_password) {
                found.add(what.to_owned());
            }
        },
    },
    Check {
        id: "state-dir",
        severity: Severity::Error,
        finds: "node.state_dir can't be written",
        why: "The worker does not start.",
        action: "Create it for the worker's user; run this as that user.",
        look: |facts, found| {
            let Some(node) = node(facts) else { return };
            if let Some(why) = &node.not_writable {
                found.add(format!("node.state_dir {} can't be written: {why}", node.state_dir));
            }
        },
    },
    Check {
        id: "state-in-memory",
        severity: Severity::Warning,
        finds: "node.state_dir is in memory",
        why: "After a restart of the machine the last output of the jobs is lost, and what was written is missing.",
        action: "Set node.state_dir to a directory on a disk.",
        look: |facts, found| {
            if let Some(node) = node(facts).filter(|node| node.in_memory) {
                found.add(format!("node.state_dir {} is in memory", node.state_dir));
            }
        },
    },
    Check {
        id: "open-files",
        severity: Severity::Warning,
        finds: "the limit of open files is low",
        why: "With too few the worker does not start (error), or refuses HTTP clients.",
        action: "Raise the limit (LimitNOFILE in the unit).",
        look: open_files,
    },
    Check {
        id: "limits",
        severity: Severity::Warning,
        finds: "a limit of a job is not that of a cgroup",
        why: "memory then bounds the address space of each process, and processes those of the user, but not root's.",
        action: "Run the worker in a unit with Delegate=yes and DelegateSubgroup=worker (systemd 254 or newer).",
        look: |facts, found| {
            for (job, key, why) in node(facts).into_iter().flat_map(|node| &node.unmet_limits) {
                found.add(format!("{}.{key}: {why}", job_key(job)));
            }
        },
    },
    Check {
        id: "locked-memory",
        severity: Severity::Warning,
        finds: "the limit of locked memory is low",
        why: "Guards can't lock their program in memory: if its disk hangs, one may end its job too late.",
        action: "Raise the limit (LimitMEMLOCK in the unit).",
        look: locked_memory,
    },
    Check {
        id: "processes",
        severity: Severity::Warning,
        finds: "the limit of processes is low",
        why: "A guard, a hook or the job can't be started in a takeover.",
        action: "Raise the limit (TasksMax and LimitNPROC in the unit).",
        look: processes,
    },
    Check {
        id: "open-http",
        severity: Severity::Warning,
        finds: "other hosts can use the HTTP endpoints without a certificate, or send tokens in plain text",
        why: "Everyone on those hosts can read the state, or the tokens.",
        action: "Set http.access.status and http.tls, or listen on 127.0.0.1.",
        look: |facts, found| {
            for what in node(facts).into_iter().flat_map(|node| &node.exposed) {
                found.add(format!("the HTTP endpoints can be reached from other hosts: {what}"));
            }
        },
    },
    Check {
        id: "watchdog",
        severity: Severity::Warning,
        finds: "the watchdog device can't be used; an error where watchdog.mode is \"required\"",
        why: "A host that hangs is not reset. Where it is required, this node does not lead.",
        action: "Load the driver (softdog, iTCO_wdt), and let the worker's user write to watchdog.device.",
        look: |facts, found| {
            if let Some((is_required, why)) = node(facts).and_then(|node| node.watchdog.as_ref()) {
                let severity = if *is_required { Severity::Error } else { Severity::Warning };
                found.with(severity, format!("the watchdog can't be used: {why}"));
            }
        },
    },
];

fn node(facts: &Facts) -> Option<&NodeFacts> {
    facts.node.as_ref()
}

fn none(facts: &Facts, found: &mut Found) {
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

fn open_files(facts: &Facts, found: &mut Found) {
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

fn locked_memory(facts: &Facts, found: &mut Found) {
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

fn processes(facts: &Facts, found: &mut Found) {
    if let Some(most) = node(facts).and_then(|node| node.processes).filter(|most| *most < FEWEST_PROCESSES) {
        found.add(format!("the worker's user may have {most} processes"));
    }
}
