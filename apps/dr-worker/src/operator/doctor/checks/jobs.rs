//! The elections of the jobs.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        facts::{Election, Facts, Order},
        finding::{Found, Severity},
    },
    members::of_kind,
};
use crate::wall::moment;

/// An order that is older than this may have been forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// Elections in which an elector decides, and may.
fn decided(facts: &Facts) -> impl Iterator<Item = &Election> {
    facts.elections.iter().filter(|election| election.has_elector && election.orders.mode.is_none())
}

pub(super) fn absent(facts: &Facts, found: &mut Found) {
    if facts.session.is_none() || !facts.refused.is_empty() {
        return;
    }
    for job in &facts.jobs {
        if facts.elections.iter().all(|election| election.name != job.name) {
            found.add(format!("no worker has joined the election of {} yet", job.name));
        }
    }
}

pub(super) fn no_leader(facts: &Facts, found: &mut Found) {
    for election in &facts.elections {
        let slots = election.leaders.len();
        for (slot, _) in election.leaders.iter().enumerate().filter(|(_, leader)| leader.is_none()) {
            let which = if slots > 1 { format!(" slot {slot} of") } else { String::new() };
            found.add(format!("no member leads{which} {}", election.name));
        }
    }
}

pub(super) fn no_candidate(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        let barred: Option<Vec<_>> =
            election.candidates.iter().map(|c| c.barred.as_ref().map(|why| (c, why))).collect();
        if let Some(barred) = barred {
            let each: Vec<_> =
                barred.iter().map(|(candidate, why)| format!("{}: {why}", candidate.member)).collect();
            let each = if each.is_empty() { "there are no members".to_owned() } else { each.join("; ") };
            found.add(format!("{}: no member may lead ({each})", election.name));
        }
    }
}

pub(super) fn no_other_site(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        let sites: BTreeSet<_> =
            election.sites.iter().chain(election.candidates.iter().map(|c| &c.site)).collect();
        // A job that is meant for one site ends with it.
        if sites.len() < 2 {
            continue;
        }
        for loss in election.losses.iter().filter(|loss| !loss.survives) {
            found.add(format!("{}: without site {}: {}", election.name, loss.site, loss.sentence));
        }
    }
}

/// The candidates of each site of an election's policy, or with members.
fn sites(election: &Election) -> impl Iterator<Item = (&String, Vec<&str>, Vec<String>)> {
    let sites: BTreeSet<_> =
        election.sites.iter().chain(election.candidates.iter().map(|c| &c.site)).collect();
    sites.into_iter().map(|site| {
        let here = || election.candidates.iter().filter(move |candidate| candidate.site == *site);
        let may = here().filter(|c| c.barred.is_none()).map(|c| c.member.as_str()).collect();
        let barred = here().filter_map(|c| Some(format!("{}: {}", c.member, c.barred.as_ref()?))).collect();
        (site, may, barred)
    })
}

pub(super) fn empty_site(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        let wanted = |site: &String| !election.forbidden.contains(site);
        for (site, _, barred) in sites(election).filter(|(site, may, _)| may.is_empty() && wanted(site)) {
            let why = if barred.is_empty() { "it has no member".to_owned() } else { barred.join("; ") };
            found.add(format!("{}: no member of site {site} may lead ({why})", election.name));
        }
    }
}

pub(super) fn single_candidate(facts: &Facts, found: &mut Found) {
    for election in decided(facts) {
        for (site, may, _) in sites(election) {
            if let [only] = may[..] {
                found.add(format!("{}: {only} is the only candidate of site {site}", election.name));
            }
        }
    }
}

pub(super) fn hold(facts: &Facts, found: &mut Found) {
    for election in &facts.elections {
        if let Some(hold) = &election.hold {
            found.add(format!("{}: {hold}", election.name));
        }
    }
}

/// Adds an order: as a note while it is new.
fn order(facts: &Facts, election: &Election, order: &Order, found: &mut Found) {
    let age = Duration::from_millis(facts.now_ms.saturating_sub(order.at_ms));
    let what = format!("{}: {}, since {}", election.name, order.sentence, moment(order.at_ms));
    if age > FORGOTTEN_AFTER {
        found.add(what);
    } else {
        found.with(Severity::Note, what);
    }
}

fn orders(facts: &Facts, found: &mut Found, of: impl Fn(&Election) -> Vec<&Order>) {
    for election in &facts.elections {
        for each in of(election) {
            order(facts, election, each, found);
        }
    }
}

pub(super) fn paused(facts: &Facts, found: &mut Found) {
    orders(facts, found, |election| election.orders.mode.iter().collect());
}

pub(super) fn stopped(facts: &Facts, found: &mut Found) {
    orders(facts, found, |election| election.orders.stopped.iter().collect());
}

pub(super) fn maintenance(facts: &Facts, found: &mut Found) {
    orders(facts, found, |election| election.orders.maintenance.iter().collect());
}

pub(super) fn closed_sites(facts: &Facts, found: &mut Found) {
    orders(facts, found, |election| election.orders.closed.iter().collect());
}

pub(super) fn breadcrumbs(facts: &Facts, found: &mut Found) {
    of_kind(facts, "not-fenced", found);
}

pub(super) fn ghosts(facts: &Facts, found: &mut Found) {
    of_kind(facts, "ghost", found);
}

pub(super) fn low_tokens(facts: &Facts, found: &mut Found) {
    of_kind(facts, "low-token", found);
    of_kind(facts, "old-decision", found);
}

pub(super) fn unreadable(facts: &Facts, found: &mut Found) {
    of_kind(facts, "unreadable", found);
}

pub(super) fn keeps_unfenced(facts: &Facts, found: &mut Found) {
    for job in facts.jobs.iter().filter(|job| job.keeps && !job.fenced) {
        found.add(format!("{} has on_pause = \"keep\" and is not fenced", job.name));
    }
}

pub(super) fn fast_unfenced(facts: &Facts, found: &mut Found) {
    for job in facts.jobs.iter().filter(|job| job.fast_failover && !job.fenced) {
        found.add(format!("{} has fast_failover and is not fenced: fast_failover has no effect", job.name));
    }
}

pub(super) fn beside_leader(facts: &Facts, found: &mut Found) {
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
