//! The members.

use std::collections::{BTreeMap, BTreeSet};

use job_guard::ProcessState;

use super::{
    super::{
        facts::Facts,
        finding::{Check, Found, Severity},
    },
    servers::apart,
};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "member-unreachable",
        severity: Severity::Warning,
        finds: "the HTTP endpoints of a member can't be reached from this node",
        why: "Other members can't confirm that it lives, and load balancers do not find it.",
        action: "Check http.listen and node.address of that member, and the firewall.",
        look: unreachable,
    },
    Check {
        id: "member-absent",
        severity: Severity::Warning,
        finds: "a member of the last day does not take part; a note if it has stopped by itself",
        why: "A crash, a lost host or a cut network: it can't take over.",
        action: "Start its worker again. A member that was removed for good is forgotten after a day.",
        look: |facts, found| {
            for election in &facts.elections {
                for (stopped, sentence) in &election.absent {
                    let severity = if *stopped { Severity::Note } else { Severity::Warning };
                    found.with(severity, format!("{}: {sentence}", election.name));
                }
            }
        },
    },
    Check {
        id: "member-mistaken",
        severity: Severity::Error,
        finds: "at the URL of a member another member answers",
        why: "Members suspect or trust the wrong one; clients go to the wrong node.",
        action: "Correct node.address and http.listen on these nodes.",
        look: |facts, found| {
            for member in &facts.members {
                if let Some(other) = member.answers_as.as_ref().filter(|other| **other != member.member) {
                    found.add(format!("at the URL of {} answers {other}", member.member));
                }
            }
        },
    },
    Check {
        id: "member-state-dir",
        severity: Severity::Error,
        finds: "the disk of a member's node.state_dir hangs",
        why: "The member starts no job, and a leader there can't start its job again.",
        action: "Repair the disk or the file server of this directory.",
        look: |facts, found| {
            for member in &facts.members {
                if let Some(why) = &member.problem {
                    found.add(format!("{}: {why}", member.member));
                }
            }
        },
    },
    Check {
        id: "few-standbys",
        severity: Severity::Warning,
        finds: "of the standbys of a job one is ready, or none",
        why: "If that one is lost as well, nothing is left that could be promoted.",
        action: "`dr-worker list` shows their states, `dr-worker logs --job JOB --standby --node MEMBER` the output of one.",
        look: few_standbys,
    },
    Check {
        id: "member-clock",
        severity: Severity::Warning,
        finds: "the clock of a member differs",
        why: "Exclusions, planned switchovers and windows for moves begin and end at the wrong time there.",
        action: "Synchronize the clocks (chrony, systemd-timesyncd).",
        look: |facts, found| {
            for member in &facts.members {
                if let Some(apart) = apart(member.clock) {
                    found.add(format!("the clock of {} is {apart}", member.member));
                }
            }
        },
    },
    Check {
        id: "member-versions",
        severity: Severity::Warning,
        finds: "the members have different versions",
        why: "A rolling upgrade that was not finished; after a failover another version decides.",
        action: "Finish the upgrade: `dr-worker upgrade` on each node.",
        look: versions,
    },
    Check {
        id: "member-config",
        severity: Severity::Warning,
        finds: "the members apply different versions of the job's overlay",
        why: "After a failover the job runs with other settings.",
        action: "`dr-worker config history --job JOB` shows who refuses it and why; correct it, or revert with `dr-worker config revert --job JOB`.",
        look: overlays,
    },
    Check {
        id: "member-policy",
        severity: Severity::Warning,
        finds: "a member has another policy than the elector",
        why: "As the elector it decides differently.",
        action: "Compare `dr-worker config show` on these nodes.",
        look: |facts, found| of_kind(facts, "other-policy", found),
    },
    Check {
        id: "duplicate-id",
        severity: Severity::Error,
        finds: "two workers have the same id",
        why: "The second one can't start, and orders for one reach the other.",
        action: "Give each node its own node.id.",
        look: duplicates,
    },
];

fn unreachable(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if let Some(why) = &member.unreachable {
            found.add(format!(
                "the HTTP endpoints of {} of site {} can't be reached from here: {why}",
                member.member, member.site
            ));
        }
    }
}

fn few_standbys(facts: &Facts, found: &mut Found) {
    let mut by_job = BTreeMap::<&str, Vec<(&str, &str)>>::new();
    for member in &facts.members {
        for (job, state) in &member.standbys {
            by_job.entry(job).or_default().push((&member.member, state));
        }
    }
    for (job, standbys) in by_job {
        let (ready, others): (Vec<_>, Vec<_>) =
            standbys.into_iter().partition(|(_, state)| *state == ProcessState::Running.to_string());
        let others: Vec<_> = others.iter().map(|(member, state)| format!("{member}: {state}")).collect();
        let others = others.join(", ");
        match ready[..] {
            [] => found.add(format!("no standby of {job} is ready ({others})")),
            [(member, _)] if !others.is_empty() => {
                found.add(format!("the only ready standby of {job} is that of {member} ({others})"));
            }
            _ => {}
        }
    }
}

fn versions(facts: &Facts, found: &mut Found) {
    let all: BTreeSet<_> = facts.members.iter().flat_map(|member| &member.software).collect();
    if all.len() > 1 {
        let each = facts
            .members
            .iter()
            .flat_map(|m| m.software.iter().map(move |s| format!("{} has {s}", m.member)));
        found.add(format!("the members have different versions: {}", each.collect::<Vec<_>>().join(", ")));
    }
}

fn overlays(facts: &Facts, found: &mut Found) {
    for election in &facts.elections {
        let of = facts.members.iter().filter_map(|m| Some((&m.member, *m.overlays.get(&election.name)?)));
        let versions: BTreeSet<_> = of.clone().map(|(_, version)| version).collect();
        if versions.len() > 1 {
            let each: Vec<_> = of.map(|(member, version)| format!("{member} applies {version}")).collect();
            found.add(format!(
                "{}: members apply different versions of what `config push` has set: {}",
                election.name,
                each.join(", ")
            ));
        }
    }
    of_kind(facts, "refused-config", found);
}

/// The problems of this kind that the view of each election has found.
pub(super) fn of_kind(facts: &Facts, kind: &str, found: &mut Found) {
    for election in &facts.elections {
        for problem in election.problems.iter().filter(|problem| problem.kind == kind) {
            found.add(format!("{}: {}", election.name, problem.sentence));
        }
    }
}

fn duplicates(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if member.places.len() > 1 {
            let places: Vec<_> =
                member.places.iter().map(|(address, http)| format!("{address} ({http})")).collect();
            found.add(format!("workers at {} have the id {}", places.join(" and "), member.member));
        }
        let Some(node) = facts.node.as_ref().filter(|node| node.id == member.member) else { continue };
        if let Some((address, _)) = member.places.iter().find(|(address, _)| *address != node.address) {
            found.add(format!(
                "this node has the id {} and the address {}, and a worker at {address} has that id",
                node.id, node.address
            ));
        }
    }
}
