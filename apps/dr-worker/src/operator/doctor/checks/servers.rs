//! The servers of the ensemble: which there are, where, and what they run with.

use std::{collections::BTreeSet, time::Duration};

use election_core::strategy::in_words;

use super::super::{
    facts::{Clock, Facts, Server, ServerAnswer},
    finding::{Check, Found, Severity},
};
use crate::commands::servers::Quorum;

/// Above these an ensemble takes long to restart, to elect and to clean up.
const MOST: [(&str, &str, f64); 3] = [
    ("zk_znode_count", "znodes", 1e6),
    ("zk_watch_count", "watches", 2e5),
    ("zk_approximate_data_size", "bytes of data", 5e8),
];
const MOST_OUTSTANDING: f64 = 100.0;
/// Transactions between two snapshots; the default is 100,000.
const FEWEST_BETWEEN_SNAPSHOTS: f64 = 10_000.0;
const SLOWEST_FSYNC: Duration = Duration::from_millis(100);
const GIB: f64 = 1_073_741_824.0;
/// Clocks of servers and members.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "zookeeper-session",
        severity: Severity::Error,
        finds: "no session with ZooKeeper could be made",
        why: "Without a session no worker leads, and no leader is elected.",
        action: "Start the servers that are down; check zookeeper.connect, the network and the credentials.",
        look: |facts, found| {
            if facts.session.is_none() {
                found.add(format!("no session with ZooKeeper: {}", facts.no_session));
            }
        },
    },
    Check {
        id: "server-unreachable",
        severity: Severity::Warning,
        finds: "a server of zookeeper.connect accepts no connection",
        why: "Each server that is down reduces the number of faults that the ensemble survives.",
        action: "Start the server, or correct zookeeper.connect or the firewall.",
        look: |facts, found| {
            for server in &facts.servers {
                if let Some(why) = &server.unreachable {
                    found.add(format!("{} can't be reached: {why}", server.name));
                }
            }
        },
    },
    Check {
        id: "server-not-serving",
        severity: Severity::Warning,
        finds: "a server runs and has no quorum",
        why: "Clients of this server must find another one.",
        action: "Read the server's log; check that it reaches the other servers on their ports for peers.",
        look: not_serving,
    },
    Check {
        id: "server-disagrees",
        severity: Severity::Error,
        finds: "a server shows a znode of an election that the quorum has deleted, or lacks one that the quorum has",
        why: "Members that use this server wait for a member that is gone, or do not see one that is there. Workers find out within eight session timeouts and leave the server.",
        action: "Stop the server, delete its data directory (not its myid), and start it: it copies the leader's data.",
        look: |facts, found| facts.disagreements.iter().for_each(|sentence| found.add(sentence.clone())),
    },
    Check {
        id: "server-silent",
        severity: Severity::Unknown,
        finds: "a server does not answer srvr, conf or mntr, by its four-letter words or its AdminServer",
        why: "The settings and the state of this server are not checked.",
        action: "Set 4lw.commands.whitelist=srvr,conf,mntr in its zoo.cfg, or give the address of its AdminServer in zookeeper.admin.",
        look: no_words,
    },
    Check {
        id: "server-properties",
        severity: Severity::Unknown,
        finds: "the AdminServer of a server can't be read",
        why: "forceSync, skipACL, enableEagerACLCheck, snapCount and the servers' clocks are not checked; only the AdminServer shows them.",
        action: "Set admin.enableServer=true in zoo.cfg, for this host only if others must not read it, and its address in zookeeper.admin.",
        look: no_properties,
    },
    Check {
        id: "server-alone",
        severity: Severity::Error,
        finds: "only one server has a vote",
        why: "With this server all elections are lost, and perhaps their data.",
        action: "Run three servers in three sites.",
        look: |facts, found| {
            if let [Some(only)] = facts.voters()[..] {
                found.add(format!("{} is the only server with a vote", only.name));
            }
        },
    },
    Check {
        id: "servers-even",
        severity: Severity::Warning,
        finds: "the number of servers with a vote is even",
        why: "One more server would survive one more fault.",
        action: "Add a server or make one an observer, so that an odd number has a vote.",
        look: even,
    },
    Check {
        id: "site-quorum",
        severity: Severity::Error,
        finds: "the loss of one site loses the quorum",
        why: "The other site can't take over if that site is lost: nothing elects a leader.",
        action: "Distribute the voting servers over three sites, so that each has fewer than half of them.",
        look: |facts, found| {
            let quorum = Quorum::of(&facts.servers);
            // A server alone is another finding.
            if facts.asked.has_sites && quorum.voters > 1 {
                quorum.lost.iter().for_each(|lost| found.add(lost.to_string()));
            }
        },
    },
    Check {
        id: "server-sites",
        severity: Severity::Unknown,
        finds: "the sites of the servers are not configured",
        why: "It is not checked whether the loss of a site loses the quorum.",
        action: "Set zookeeper.sites, such as sites = { east = [\"zk1:2181\"], west = [\"zk2:2181\"], third = [\"zk3:2181\"] }.",
        look: no_sites,
    },
    Check {
        id: "server-unlisted",
        severity: Severity::Warning,
        finds: "a server with a vote is not in zookeeper.connect",
        why: "Workers do not use it when the others are lost, and its site is not known here.",
        action: "Add it to zookeeper.connect on all nodes.",
        look: unlisted,
    },
    Check {
        id: "server-versions",
        severity: Severity::Warning,
        finds: "the servers have different versions",
        why: "A rolling upgrade that was not finished; the versions may differ in what they write.",
        action: "Finish the upgrade.",
        look: versions,
    },
    Check {
        id: "force-sync",
        severity: Severity::Error,
        finds: "a server runs with forceSync=no",
        why: "A server that loses power forgets decisions that it has acknowledged; two members can be elected for one term.",
        action: "Remove forceSync from the server's settings.",
        look: |facts, found| {
            for server in &facts.servers {
                if server.properties.get("zookeeper.forceSync") == Some("no") {
                    found.add(format!("{} runs with forceSync=no", server.name));
                }
            }
        },
    },
    Check {
        id: "skip-acl",
        severity: Severity::Error,
        finds: "a server ignores access lists",
        why: "Every client that reaches the servers can change elections and stop jobs.",
        action: "Remove skipACL from the servers' settings.",
        look: |facts, found| {
            for server in facts.servers.iter().filter(|server| is_on(&server.properties, "skipACL")) {
                found.add(format!("{} runs with skipACL=yes", server.name));
            }
            if facts.session.as_ref().and_then(|held| held.ignores_access_lists) == Some(true) {
                found.add("a client without credentials has read a znode whose access list forbids it");
            }
        },
    },
    Check {
        id: "no-access-lists",
        severity: Severity::Note,
        finds: "the znodes of the elections have no access lists",
        why: "Every client that reaches the servers can move and stop jobs.",
        action: "Set [zookeeper.auth] on all nodes, if not only trusted hosts reach the servers.",
        look: |facts, found| {
            if facts.asked.is_open {
                found.add("zookeeper.acl is \"open\"");
            }
        },
    },
    Check {
        id: "eager-acl",
        severity: Severity::Note,
        finds: "a server checks access lists before it asks the ensemble",
        why: "A server without a quorum refuses requests for the access list, so errors of access may be out of date. Leases do not rely on it.",
        action: "Nothing, if that is wanted.",
        look: eager_acl,
    },
    Check {
        id: "snap-count",
        severity: Severity::Warning,
        finds: "a server writes a snapshot after few transactions",
        why: "It writes all data again and again, which delays requests.",
        action: "Remove snapCount from the server's settings; its default is 100,000.",
        look: snap_count,
    },
    Check {
        id: "disk-growth",
        severity: Severity::Warning,
        finds: "a server keeps many old logs and snapshots",
        why: "Its disk fills up, and a server with a full disk stops.",
        action: "Set autopurge.purgeInterval=24 in zoo.cfg.",
        look: disk_growth,
    },
    Check {
        id: "disk-space",
        severity: Severity::Warning,
        finds: "the disk of a server on this node is nearly full",
        why: "A server with a full disk stops.",
        action: "Free space, and set autopurge.purgeInterval in zoo.cfg.",
        look: disk_space,
    },
    Check {
        id: "slow-fsync",
        severity: Severity::Warning,
        finds: "a server takes long to write to its disk",
        why: "Each decision and each heartbeat waits for the disks of a majority.",
        action: "Give dataLogDir a disk of its own.",
        look: |facts, found| {
            for server in &facts.servers {
                let mean = server.metrics.number("zk_avg_fsynctime").unwrap_or(0.0);
                if mean > SLOWEST_FSYNC.as_secs_f64() * 1000.0 {
                    found.add(format!("{} takes {mean:.0} ms on average to write to its disk", server.name));
                }
            }
        },
    },
    Check {
        id: "outstanding-requests",
        severity: Severity::Warning,
        finds: "many requests wait at a server",
        why: "Heartbeats wait with them, and leases end.",
        action: "Find the client that sends them (`cons`), or use an ensemble for the elections alone.",
        look: |facts, found| {
            for server in &facts.servers {
                let waiting = server.metrics.number("zk_outstanding_requests").unwrap_or(0.0);
                if waiting > MOST_OUTSTANDING {
                    found.add(format!("{waiting} requests wait at {}", server.name));
                }
            }
        },
    },
    Check {
        id: "large-ensemble",
        severity: Severity::Warning,
        finds: "a server has a very large number of znodes, watches or bytes",
        why: "Restarts and elections of the servers take long, and jobs stop meanwhile.",
        action: "Find out which client creates them (`wchs`, `dump`), or use an ensemble for the elections alone.",
        look: large,
    },
    Check {
        id: "server-clock",
        severity: Severity::Warning,
        finds: "the clock of a server differs",
        why: "Times in logs can't be compared after an incident.",
        action: "Synchronize the clocks (chrony, systemd-timesyncd).",
        look: |facts, found| {
            for server in &facts.servers {
                if let Some(apart) = apart(server.clock) {
                    found.add(format!("the clock of {} is {apart}", server.name));
                }
            }
        },
    },
];

/// Names, as in a sentence.
pub(super) fn names<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    all.into_iter().collect::<Vec<_>>().join(", ")
}

fn living(facts: &Facts) -> impl Iterator<Item = &Server> {
    facts.servers.iter().filter(|server| server.unreachable.is_none())
}

fn not_serving(facts: &Facts, found: &mut Found) {
    for server in living(facts) {
        match server.role() {
            Some("read-only") => found.add(format!("{} serves reads only: it has no quorum", server.name)),
            Some(_) => {}
            // Without `srvr` its role is not known.
            None if server.stats.missing.is_none() => {
                found.add(format!("{} does not serve: it has no quorum, or is starting", server.name));
            }
            None => {}
        }
    }
}

fn no_words(facts: &Facts, found: &mut Found) {
    for server in living(facts) {
        let parts = [
            ("srvr", &server.stats, "its role and version"),
            ("conf", &server.settings, "its tickTime, limits, session timeouts and list of servers"),
            ("mntr", &server.metrics, "its load and the latency of its disk"),
        ];
        let missing =
            parts.iter().filter_map(|(word, answer, what)| Some((word, answer.missing.as_ref()?, what)));
        let missing: Vec<_> = missing.map(|(word, why, what)| format!("{what} ({word}: {why})")).collect();
        if !missing.is_empty() {
            found.add(format!("{} does not report {}", server.name, missing.join(", ")));
        }
    }
}

fn no_properties(facts: &Facts, found: &mut Found) {
    let silent: Vec<_> =
        living(facts).filter_map(|s| Some((s.name.as_str(), s.properties.missing.as_deref()?))).collect();
    if let Some((_, why)) = silent.first() {
        found.add(format!(
            "forceSync, skipACL, enableEagerACLCheck, snapCount and the clock of {} are not known: {why}",
            names(silent.iter().map(|(name, _)| *name))
        ));
    }
}

fn even(facts: &Facts, found: &mut Found) {
    let count = facts.voters().len();
    if count > 0 && count.is_multiple_of(2) {
        let observers = facts.servers.iter().filter(|server| server.role() == Some("observer")).count();
        let not_counted = match observers {
            0 => String::new(),
            1 => ", one observer not counted".to_owned(),
            more => format!(", {more} observers not counted"),
        };
        found.add(format!(
            "{count} servers have a vote{not_counted}: they need {} for a quorum, as {} servers would",
            count / 2 + 1,
            count + 1
        ));
    }
}

fn no_sites(facts: &Facts, found: &mut Found) {
    let sites: BTreeSet<_> = facts.elections.iter().flat_map(|e| &e.sites).collect();
    let sites: BTreeSet<_> = facts.members.iter().map(|member| &member.site).chain(sites).collect();
    if facts.servers.len() < 2 || sites.len() < 2 {
        return;
    }
    let apart = facts.servers.iter().filter(|server| server.site.is_none());
    let apart = names(apart.map(|server| server.name.as_str()));
    if !apart.is_empty() {
        found.add(format!(
            "the sites of {apart} are not known, so it is not known whether the loss of a site loses the quorum: \
             zookeeper.sites does not name them"
        ));
    }
}

fn unlisted(facts: &Facts, found: &mut Found) {
    let unlisted = facts.voters().iter().filter(|voter| voter.is_none()).count();
    if unlisted > 0 {
        found.add(format!(
            "the ensemble has {} voting servers, and {unlisted} of them are not in zookeeper.connect",
            facts.voters().len()
        ));
    }
}

fn versions(facts: &Facts, found: &mut Found) {
    let versions: BTreeSet<_> = facts.servers.iter().filter_map(Server::version).collect();
    if versions.len() > 1 {
        let each = facts.servers.iter().filter_map(|s| Some(format!("{} has {}", s.name, s.version()?)));
        found.add(format!("the servers have different versions: {}", each.collect::<Vec<_>>().join(", ")));
    }
}

/// Whether a property that is off by default is on.
fn is_on(properties: &ServerAnswer, name: &str) -> bool {
    matches!(properties.get(&format!("zookeeper.{name}")), Some("yes" | "true"))
}

fn eager_acl(facts: &Facts, found: &mut Found) {
    for server in facts.servers.iter().filter(|server| is_on(&server.properties, "enableEagerACLCheck")) {
        found.add(format!("{} runs with enableEagerACLCheck=true", server.name));
    }
}

fn snap_count(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(count) =
            server.properties.number("zookeeper.snapCount").filter(|c| *c < FEWEST_BETWEEN_SNAPSHOTS)
        {
            found.add(format!("{} runs with snapCount={count}", server.name));
        }
    }
}

fn disk_growth(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        let size = |key| server.settings.number(key).unwrap_or(0.0);
        let is_one = server.settings.get("dataDir") == server.settings.get("dataLogDir");
        let used = size("dataDirSize") + if is_one { 0.0 } else { size("dataLogSize") };
        let data = server.metrics.number("zk_approximate_data_size").unwrap_or(0.0);
        if used > GIB && used > 100.0 * data {
            found.add(format!(
                "the files of {} have {:.1} GiB, and its data {:.1} MiB",
                server.name,
                used / GIB,
                data / 1_048_576.0
            ));
        }
    }
}

fn disk_space(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        let Some(disk) = server.disk else { continue };
        if disk.free < 1 << 30 || disk.free < disk.size / 20 {
            let free = disk.free >> 20;
            found.add(format!("the disk of {} has {free} MiB left of {} MiB", server.name, disk.size >> 20));
        }
    }
}

fn large(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        for (key, what, most) in MOST {
            if let Some(count) = server.metrics.number(key).filter(|count| *count > most) {
                found.add(format!("{} has {count} {what}", server.name));
            }
        }
    }
}

/// How far a clock is from that of this machine, if that matters.
pub(super) fn apart(clock: Option<Clock>) -> Option<String> {
    let clock = clock.filter(|clock| clock.apart() > CLOCKS_APART)?;
    let apart = in_words(Duration::from_millis(clock.ahead_ms.unsigned_abs()));
    let side = if clock.ahead_ms > 0 { "ahead of" } else { "behind" };
    Some(format!("{apart} {side} that of this machine"))
}
