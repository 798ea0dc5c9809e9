//! The elections of the jobs.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        facts::{ElectionFacts, Facts, OrderFacts, StandingOrder},
        finding::{Check, Found, Severity},
    },
    members::of_kind,
};
use crate::wall::moment;

/// An order that is older than this may have been forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "no-election",
        severity: Severity::Note,
        finds: "a configured job has no election",
        why: "No worker runs it yet.",
        action: "Start the workers; check zookeeper.root.",
        look: absent,
    },
    Check {
        id: "no-leader",
        severity: Severity::Error,
        finds: "no member leads a job",
        why: "The job does not run.",
        action: "`dr-worker explain` shows the reason. For a job that no worker runs: `dr-worker forget JOB`.",
        look: no_leader,
    },
    Check {
        id: "no-candidate",
        severity: Severity::Error,
        finds: "no member may lead a job",
        why: "Without its leader the job is lost.",
        action: "Correct the policy or what makes the members unfit; `dr-worker explain` shows each member's reason.",
        look: no_candidate,
    },
    Check {
        id: "no-other-site",
        severity: Severity::Error,
        finds: "no member leads if a site is lost",
        why: "The other site does not take over: there is no disaster recovery.",
        action: "`dr-worker simulate --without-site SITE` shows why; add members elsewhere, or correct the policy.",
        look: no_other_site,
    },
    Check {
        id: "empty-site",
        severity: Severity::Warning,
        finds: "no member of a site may lead",
        why: "Leadership can't move there.",
        action: "Start a worker there, or correct what makes its members unfit.",
        look: empty_site,
    },
    Check {
        id: "single-candidate",
        severity: Severity::Warning,
        finds: "a site has one candidate only",
        why: "The loss of one node moves the job to another site, or ends it.",
        action: "Run a second worker in the site.",
        look: single_candidate,
    },
    Check {
        id: "hold",
        severity: Severity::Error,
        finds: "an election is on hold",
        why: "No leader is elected after too many takeovers.",
        action: "Find out why the takeovers failed (`dr-worker history --job JOB`), then `dr-worker ack --job JOB`.",
        look: |facts, found| {
            for election in &facts.elections {
                if let Some(hold) = &election.hold {
                    found.add(format!("{}: {hold}", election.name));
                }
            }
        },
    },
    Check {
        id: "paused",
        severity: Severity::Warning,
        finds: "automatic decisions are suspended; a note during the first hour",
        why: "No failover happens.",
        action: "`dr-worker resume --job JOB`, or `dr-worker mode auto --job JOB`.",
        look: |facts, found| orders(facts, found, |orders| orders.mode.as_slice()),
    },
    Check {
        id: "stopped",
        severity: Severity::Warning,
        finds: "an operator has stopped the job, or a standby; a note during the first hour",
        why: "It does not run.",
        action: "`dr-worker start --job JOB` when the reason is gone, for a standby with `--standby MEMBER`.",
        look: |facts, found| orders(facts, found, |orders| &orders.stopped),
    },
    Check {
        id: "maintenance",
        severity: Severity::Warning,
        finds: "a member is in maintenance; a note during the first hour",
        why: "It is not elected.",
        action: "`dr-worker maintenance MEMBER --off`.",
        look: |facts, found| orders(facts, found, |orders| &orders.maintenance),
    },
    Check {
        id: "closed-site",
        severity: Severity::Warning,
        finds: "a site is drained or marked as failed; a note during the first hour",
        why: "No member there is elected.",
        action: "`dr-worker drain SITE --off --job JOB`, or `dr-worker fail-site SITE --off --job JOB`.",
        look: |facts, found| orders(facts, found, |orders| &orders.closed),
    },
    Check {
        id: "breadcrumb",
        severity: Severity::Warning,
        finds: "a former leader has not reported that its job has ended",
        why: "Its job may still run; it is fenced before the job starts elsewhere, which takes time or fails.",
        action: "Make sure that it is off, then `dr-worker ack --fenced --job JOB`.",
        look: |facts, found| of_kind(facts, "not-fenced", found),
    },
    Check {
        id: "ghost",
        severity: Severity::Warning,
        finds: "znodes of an ended session are left",
        why: "They block an id or the leadership.",
        action: "`dr-worker remove-ghosts --yes`.",
        look: |facts, found| of_kind(facts, "ghost", found),
    },
    Check {
        id: "low-token",
        severity: Severity::Error,
        finds: "a fencing token is older than one that was given before",
        why: "The resource refuses the leader.",
        action: "`dr-worker raise-token --job JOB --above TOKEN`.",
        look: |facts, found| {
            of_kind(facts, "low-token", found);
            of_kind(facts, "old-decision", found);
        },
    },
    Check {
        id: "unreadable-znode",
        severity: Severity::Warning,
        finds: "a znode has content that can't be used",
        why: "It is ignored; the elector may decide nothing.",
        action: "Delete it, or write it again with the command that made it.",
        look: |facts, found| of_kind(facts, "unreadable", found),
    },
    Check {
        id: "keep-unfenced",
        severity: Severity::Error,
        finds: "a job with on_pause = \"keep\" is not fenced",
        why: "While ZooKeeper is away two leaders can work, and nothing refuses the older one.",
        action: "Check fencing tokens in the resource and set fenced = true, or set on_pause = \"stop\".",
        look: |facts, found| {
            for job in facts.jobs.iter().filter(|job| job.keeps && !job.fenced) {
                found.add(format!("{} has on_pause = \"keep\" and is not fenced", job.name));
            }
        },
    },
    Check {
        id: "fast-unfenced",
        severity: Severity::Warning,
        finds: "a job with fast_failover is not fenced",
        why: "A lost leader is replaced only after its session has ended.",
        action: "Check fencing tokens in the resource and set fenced = true, or remove fast_failover.",
        look: fast_unfenced,
    },
    Check {
        id: "fast-alone",
        severity: Severity::Warning,
        finds: "with fast_failover, too few others could notice that a leader is lost",
        why: "This leader is replaced only after its session has ended.",
        action: "Run another worker in its site, or workers in two other sites.",
        look: fast_alone,
    },
    Check {
        id: "beside-zookeeper-leader",
        severity: Severity::Warning,
        finds: "with fast_failover, the leader of a job is on the host of the ensemble's leader",
        why: "If that host is lost, the servers elect first, and the failover is not fast.",
        action: "Run the servers on other hosts than the job, or prefer another server as the ensemble's leader.",
        look: beside_leader,
    },
];

/// Elections in which an elector decides, and may.
fn decided(facts: &Facts) -> impl Iterator<Item = &ElectionFacts> {
    facts.elections.iter().filter(|election| election.has_elector && election.orders.mode.is_none())
}

fn absent(facts: &Facts, found: &mut Found) {
    if facts.session.is_none() || !facts.refused.is_empty() {
        return;
    }
    for job in &facts.jobs {
        if facts.elections.iter().all(|election| election.name != job.name) {
            found.add(format!("no worker has joined the election of {} yet", job.name));
        }
    }
}

fn no_leader(facts: &Facts, found: &mut Found) {
    for election in &facts.elections {
        let slots = election.leaders.len();
        for (slot, _) in election.leaders.iter().enumerate().filter(|(_, leader)| leader.is_none()) {
            let which = if slots > 1 { format!(" slot {slot} of") } else { String::new() };
            found.add(format!("no member leads{which} {}", election.name));
        }
    }
}

fn no_candidate(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        let barred =
            election.candidates.iter().map(|c| Some(format!("{}: {}", c.member, c.barred.as_ref()?)));
        if let Some(each) = barred.collect::<Option<Vec<_>>>() {
            let each = if each.is_empty() { "there are no members".to_owned() } else { each.join("; ") };
            found.add(format!("{}: no member may lead ({each})", election.name));
        }
    }
}

fn no_other_site(facts: &Facts, found: &mut Found) {
    // A job that is meant for one site ends with it.
    for election in decided(facts).filter(|election| sites(election).count() > 1) {
        for loss in election.losses.iter().filter(|loss| !loss.survives) {
            found.add(format!("{}: without site {}: {}", election.name, loss.site, loss.sentence));
        }
    }
}

/// The candidates of each site of an election's policy, or with members.
fn sites(election: &ElectionFacts) -> impl Iterator<Item = (&String, Vec<&str>, Vec<String>)> {
    let sites: BTreeSet<_> =
        election.sites.iter().chain(election.candidates.iter().map(|c| &c.site)).collect();
    sites.into_iter().map(|site| {
        let here = || election.candidates.iter().filter(move |candidate| candidate.site == *site);
        let may = here().filter(|c| c.barred.is_none()).map(|c| c.member.as_str()).collect();
        let barred = here().filter_map(|c| Some(format!("{}: {}", c.member, c.barred.as_ref()?))).collect();
        (site, may, barred)
    })
}

fn empty_site(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        let wanted = |site: &String| !election.forbidden.contains(site);
        for (site, _, barred) in sites(election).filter(|(site, may, _)| may.is_empty() && wanted(site)) {
            let why = if barred.is_empty() { "it has no member".to_owned() } else { barred.join("; ") };
            found.add(format!("{}: no member of site {site} may lead ({why})", election.name));
        }
    }
}

fn single_candidate(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        for (site, may, _) in sites(election) {
            if let [only] = may[..] {
                found.add(format!("{}: {only} is the only candidate of site {site}", election.name));
            }
        }
    }
}

/// Adds these orders: each as a note while it is new.
fn orders(facts: &Facts, found: &mut Found, of: fn(&OrderFacts) -> &[StandingOrder]) {
    for election in &facts.elections {
        for order in of(&election.orders) {
            let age = Duration::from_millis(facts.now_ms.saturating_sub(order.at_ms));
            let what = format!("{}: {}, since {}", election.name, order.sentence, moment(order.at_ms));
            if age > FORGOTTEN_AFTER { found.add(what) } else { found.with(Severity::Note, what) }
        }
    }
}

fn fast_unfenced(facts: &Facts, found: &mut Found) {
    for job in facts.jobs.iter().filter(|job| job.fast_failover && !job.fenced) {
        found.add(format!("{} has fast_failover and is not fenced: fast_failover has no effect", job.name));
    }
}

/// The engine has the same rule: `witnesses` in election-core.
fn fast_alone(facts: &Facts, found: &mut Found) {
    let is_fast =
        |name: &str| facts.jobs.iter().any(|job| job.name == name && job.fast_failover && job.fenced);
    for election in decided(facts).filter(|election| is_fast(&election.name)) {
        for leader in election.candidates.iter().filter(|candidate| candidate.barred.is_none()) {
            let others = || election.candidates.iter().filter(|other| other.member != leader.member);
            let seen_from: BTreeSet<_> = others().map(|other| &other.site).collect();
            let is_one_site = seen_from.iter().all(|site| **site == leader.site);
            if others().count() < 2 || seen_from.len() < 2 && !is_one_site {
                found.add(format!(
                    "{}: if {} leads, fast_failover has no effect: the others are fewer than two, or all in one other site",
                    election.name, leader.member
                ));
            }
        }
    }
}

fn beside_leader(facts: &Facts, found: &mut Found) {
    let Some(server) = facts.servers.iter().find(|server| server.role() == Some("leader")) else { return };
    for job in facts.jobs.iter().filter(|job| job.fast_failover && job.fenced) {
        let leaders =
            facts.elections.iter().filter(|e| e.name == job.name).flat_map(|e| e.leaders.iter().flatten());
        for leader in leaders {
            let member = facts.members.iter().find(|member| member.member == *leader);
            if member.is_some_and(|member| !member.addresses.is_disjoint(&server.addresses)) {
                found.add(format!(
                    "{leader} leads {} on the host of {}, which leads the ensemble",
                    job.name, server.name
                ));
            }
        }
    }
}
