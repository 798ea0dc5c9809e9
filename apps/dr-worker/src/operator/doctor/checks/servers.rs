//! The servers of the ensemble: which there are, where, and what they run with.

use std::{collections::BTreeSet, time::Duration};

use election_core::strategy::in_words;

use super::super::{
    facts::{Answer, Facts, Server},
    finding::{Found, Severity},
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
pub(super) const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Names, as in a sentence.
pub(super) fn names<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    all.into_iter().collect::<Vec<_>>().join(", ")
}

fn living(facts: &Facts) -> impl Iterator<Item = &Server> {
    facts.servers.iter().filter(|server| server.unreachable.is_none())
}

pub(super) fn session(facts: &Facts, found: &mut Found) {
    if facts.session.is_none() {
        found.add(format!("no session with ZooKeeper: {}", facts.no_session));
    }
}

pub(super) fn disagreements(facts: &Facts, found: &mut Found) {
    facts.disagreements.iter().for_each(|sentence| found.add(sentence.clone()));
}

pub(super) fn unreachable(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(why) = &server.unreachable {
            found.add(format!("{} can't be reached: {why}", server.name));
        }
    }
}

pub(super) fn not_serving(facts: &Facts, found: &mut Found) {
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

pub(super) fn no_words(facts: &Facts, found: &mut Found) {
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

pub(super) fn no_properties(facts: &Facts, found: &mut Found) {
    let silent: Vec<_> =
        living(facts).filter_map(|s| Some((s.name.as_str(), s.properties.missing.as_deref()?))).collect();
    if let Some((_, why)) = silent.first() {
        found.add(format!(
            "forceSync, skipACL, enableEagerACLCheck, snapCount and the clock of {} are not known: {why}",
            names(silent.iter().map(|(name, _)| *name))
        ));
    }
}

pub(super) fn alone(facts: &Facts, found: &mut Found) {
    if let [Some(only)] = facts.voters()[..] {
        found.add(format!("{} is the only server with a vote", only.name));
    }
}

pub(super) fn even(facts: &Facts, found: &mut Found) {
    let count = facts.voters().len();
    if count > 0 && count.is_multiple_of(2) {
        let observers = facts.servers.iter().filter(|server| server.role() == Some("observer")).count();
        let not_counted = match observers {
            0 => String::new(),
            1 => ", one observer not counted".to_owned(),
            more => format!(", {more} observers not counted"),
        };
        found.add(format!(
            "{count} servers have a vote{not_counted}: they need {} for a quorum, as {} would",
            count / 2 + 1,
            count + 1
        ));
    }
}

pub(super) fn no_sites(facts: &Facts, found: &mut Found) {
    let sites: BTreeSet<_> = facts.elections.iter().flat_map(|e| &e.sites).collect();
    let sites: BTreeSet<_> = facts.members.iter().map(|member| &member.site).chain(sites).collect();
    if facts.servers.len() < 2 || sites.len() < 2 {
        return;
    }
    let apart = facts.servers.iter().filter(|server| server.site.is_none());
    let apart = names(apart.map(|server| server.name.as_str()));
    if !apart.is_empty() {
        found.add(format!(
            "the sites of {apart} are not known, and so whether the loss of a site loses the quorum: zookeeper.sites \
             does not name them"
        ));
    }
}

pub(super) fn site_quorum(facts: &Facts, found: &mut Found) {
    let quorum = Quorum::of(&facts.servers);
    // A server alone is another finding.
    if facts.asked.has_sites && quorum.voters > 1 {
        quorum.lost.iter().for_each(|lost| found.add(lost.to_string()));
    }
}

pub(super) fn unlisted(facts: &Facts, found: &mut Found) {
    let unlisted = facts.voters().iter().filter(|voter| voter.is_none()).count();
    if unlisted > 0 {
        found.add(format!(
            "the ensemble has {} voting servers, and {unlisted} of them are not in zookeeper.connect",
            facts.voters().len()
        ));
    }
}

pub(super) fn versions(facts: &Facts, found: &mut Found) {
    let versions: BTreeSet<_> = facts.servers.iter().filter_map(Server::version).collect();
    if versions.len() > 1 {
        let each = facts.servers.iter().filter_map(|s| Some(format!("{} has {}", s.name, s.version()?)));
        found.add(format!("the servers have different versions: {}", each.collect::<Vec<_>>().join(", ")));
    }
}

/// Whether a property that is off by default is on.
fn is_on(properties: &Answer, name: &str) -> bool {
    matches!(properties.get(&format!("zookeeper.{name}")), Some("yes" | "true"))
}

pub(super) fn force_sync(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if server.properties.get("zookeeper.forceSync") == Some("no") {
            found.add(format!("{} runs with forceSync=no", server.name));
        }
    }
}

pub(super) fn skip_acl(facts: &Facts, found: &mut Found) {
    for server in facts.servers.iter().filter(|server| is_on(&server.properties, "skipACL")) {
        found.add(format!("{} runs with skipACL=yes", server.name));
    }
    if facts.session.as_ref().and_then(|held| held.ignores_access_lists) == Some(true) {
        found.add("a client without credentials has read a znode whose access list forbids it");
    }
}

pub(super) fn no_access_lists(facts: &Facts, found: &mut Found) {
    if facts.asked.is_open {
        found.add("zookeeper.acl is \"open\"");
    }
}

pub(super) fn eager_acl(facts: &Facts, found: &mut Found) {
    for server in facts.servers.iter().filter(|server| is_on(&server.properties, "enableEagerACLCheck")) {
        found.add(format!("{} runs with enableEagerACLCheck=true", server.name));
    }
}

pub(super) fn snap_count(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(count) =
            server.properties.number("zookeeper.snapCount").filter(|c| *c < FEWEST_BETWEEN_SNAPSHOTS)
        {
            found.add(format!("{} runs with snapCount={count}", server.name));
        }
    }
}

pub(super) fn disk_growth(facts: &Facts, found: &mut Found) {
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

pub(super) fn disk_space(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        let Some(disk) = server.disk else { continue };
        if disk.free < 1 << 30 || disk.free < disk.size / 20 {
            let free = disk.free >> 20;
            found.add(format!("the disk of {} has {free} MiB left of {} MiB", server.name, disk.size >> 20));
        }
    }
}

pub(super) fn slow_fsync(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        let mean = server.metrics.number("zk_avg_fsynctime").unwrap_or(0.0);
        if mean > SLOWEST_FSYNC.as_secs_f64() * 1000.0 {
            found.add(format!("{} takes {mean:.0} ms on average to write to its disk", server.name));
        }
    }
}

pub(super) fn outstanding(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        let waiting = server.metrics.number("zk_outstanding_requests").unwrap_or(0.0);
        if waiting > MOST_OUTSTANDING {
            found.add(format!("{waiting} requests wait at {}", server.name));
        }
    }
}

pub(super) fn large(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        for (key, what, most) in MOST {
            if let Some(count) = server.metrics.number(key).filter(|count| *count > most) {
                found.add(format!("{} has {count} {what}", server.name));
            }
        }
    }
}

pub(super) fn clocks(facts: &Facts, found: &mut Found) {
    for server in &facts.servers {
        if let Some(clock) = server.clock.filter(|clock| clock.apart() > CLOCKS_APART) {
            let apart = in_words(Duration::from_millis(clock.ahead_ms.unsigned_abs()));
            let side = if clock.ahead_ms > 0 { "ahead of" } else { "behind" };
            found.add(format!("the clock of {} is {apart} {side} that of this machine", server.name));
        }
    }
}

pub(super) fn refused(facts: &Facts, found: &mut Found) {
    for refused in &facts.refused {
        found.add(refused.clone());
    }
}

pub(super) fn open(facts: &Facts, found: &mut Found) {
    let of_access =
        |e: &super::super::facts::Election| e.problems.iter().find(|p| p.kind == "access").cloned();
    // The root and what is below it have the same cause.
    if let Some(problem) = facts.elections.iter().find_map(of_access) {
        found.with(Severity::Warning, problem.sentence);
    }
}
