//! The members.

use std::{collections::BTreeSet, time::Duration};

use election_core::strategy::in_words;

use super::{
    super::{
        facts::Facts,
        finding::{Found, Severity},
    },
    servers::CLOCKS_APART,
};

pub(super) fn unreachable(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if let Some(why) = &member.unreachable {
            found.add(format!(
                "the HTTP endpoints of {} of site {} can't be reached from here: {why}",
                member.member, member.site
            ));
        }
    }
}

pub(super) fn absent(facts: &Facts, found: &mut Found) {
    for election in &facts.elections {
        for (stopped, sentence) in &election.absent {
            let severity = if *stopped { Severity::Note } else { Severity::Warning };
            found.with(severity, format!("{}: {sentence}", election.name));
        }
    }
}

pub(super) fn mistaken(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if let Some(other) = member.answers_as.as_ref().filter(|other| **other != member.member) {
            found.add(format!("at the URL of {} answers {other}", member.member));
        }
    }
}

pub(super) fn start_no_job(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if let Some(why) = &member.problem {
            found.add(format!("{}: {why}", member.member));
        }
    }
}

pub(super) fn clocks(facts: &Facts, found: &mut Found) {
    for member in &facts.members {
        if let Some(clock) = member.clock.filter(|clock| clock.apart() > CLOCKS_APART) {
            let apart = in_words(Duration::from_millis(clock.ahead_ms.unsigned_abs()));
            let side = if clock.ahead_ms > 0 { "ahead of" } else { "behind" };
            found.add(format!("the clock of {} is {apart} {side} that of this machine", member.member));
        }
    }
}

pub(super) fn versions(facts: &Facts, found: &mut Found) {
    let all: BTreeSet<_> = facts.members.iter().flat_map(|member| &member.software).collect();
    if all.len() > 1 {
        let each = facts
            .members
            .iter()
            .flat_map(|m| m.software.iter().map(move |s| format!("{} has {s}", m.member)));
        found.add(format!("the members have different versions: {}", each.collect::<Vec<_>>().join(", ")));
    }
}

pub(super) fn overlays(facts: &Facts, found: &mut Found) {
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

pub(super) fn policies(facts: &Facts, found: &mut Found) {
    of_kind(facts, "other-policy", found);
}

/// The problems of this kind that the view of each election has found.
pub(super) fn of_kind(facts: &Facts, kind: &str, found: &mut Found) {
    for election in &facts.elections {
        for problem in election.problems.iter().filter(|problem| problem.kind == kind) {
            found.add(format!("{}: {}", election.name, problem.sentence));
        }
    }
}

pub(super) fn duplicates(facts: &Facts, found: &mut Found) {
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
