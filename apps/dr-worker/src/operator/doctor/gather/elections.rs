//! The elections, as their members see them.

use std::collections::{BTreeMap, BTreeSet};

use election_admin::record::Absent;
use election_admin::{Layout, ReadError, Snapshot, compare_servers};
use election_core::{
    config::SiteId,
    internals::record::{Mode, Status},
};
use zk_session::{OpError, Session};

use super::{
    super::facts::{CandidateFacts, ElectionFacts, Facts, Loss, OrderFacts, StandingOrder},
    members,
};
use crate::{
    commands::Operator,
    error::Error,
    view::{
        Explained, ProblemRow, Simulated, WhatIf, absence, diagnose, disagreement, hold_of,
        statuses::WorkerStatuses,
    },
};

pub(super) async fn elections(operator: &Operator, facts: &mut Facts) -> Result<(), Error> {
    let servers = operator.each_server().await;
    let read = read(operator, &servers, facts).await;
    Operator::close_all(servers).await;
    read
}

async fn read(operator: &Operator, servers: &[(String, Session)], facts: &mut Facts) -> Result<(), Error> {
    let observer = operator.observer().await?;
    let names = match observer.elections(operator.root()).await {
        Err(error) => return refused(error, facts),
        Ok(names) => names,
    };
    let workers = operator.workers();
    let statuses = WorkerStatuses::new(workers.clone());
    let mut all_members = BTreeMap::new();
    for name in names {
        let paths = operator.paths(&name)?;
        let snapshot = match observer.snapshot(&paths).await {
            Err(ReadError::NoElection(_)) => continue,
            Err(error) => {
                refused(error, facts)?;
                continue;
            }
            Ok(snapshot) => snapshot,
        };
        let problems = diagnose(&observer, &operator.config.zookeeper, &name, &paths, &snapshot).await;
        let problems = problems.or_else(|error| refused(error, facts).map(|()| Vec::new()))?;
        // A server that stops answering meanwhile is another finding.
        let compared = compare_servers(servers, &paths).await.unwrap_or_default();
        facts.disagreements.extend(compared.iter().map(|found| format!("{name}: {}", disagreement(found))));
        for record in &snapshot.members {
            members::add(&mut all_members, &name, record);
        }
        let hold = statuses.skipped(&name, &snapshot).await.and_then(|skipped| hold_of(&skipped, &name));
        let unreadable = snapshot.unreadable.iter().map(|e| ProblemRow {
            kind: "unreadable",
            sentence: format!("{}: {}", e.path, e.why),
            command: None,
        });
        let problems = problems.into_iter().chain(unreadable).collect();
        facts.elections.push(ElectionFacts {
            hold,
            problems,
            ..of(operator, &name, &snapshot, facts.now_ms)
        });
    }
    facts.members = members::asked(all_members, workers.as_ref()).await;
    Ok(())
}

/// What these credentials may not read is a finding.
fn refused(error: ReadError, facts: &mut Facts) -> Result<(), Error> {
    match error {
        ReadError::Session(error @ OpError::NoAuth { .. }) => {
            facts.refused.push(error.to_string());
            Ok(())
        }
        other => Err(other.into()),
    }
}

fn of(operator: &Operator, name: &str, snapshot: &Snapshot, now_ms: u64) -> ElectionFacts {
    let config = &operator.config;
    let policy = config.policy_of(name).who.site_policy;
    let explained = Explained::new(name, snapshot, config, now_ms);
    let has_elector = snapshot.layout == Layout::Elector;
    let leaders = snapshot.leader_znodes.iter().map(|leader| {
        let leader = leader.as_ref().filter(|leader| leader.record.status == Status::Ready)?;
        Some(leader.record.member.to_string())
    });
    let leaders: Vec<_> = leaders.collect();
    let absent = snapshot.absent.iter().map(|absent| {
        let Absent { member, site, .. } = absent;
        (absent.stopped, format!("{member} of site {site} is absent: {}", absence(absent, now_ms)))
    });
    let mut election = ElectionFacts {
        name: name.to_owned(),
        has_elector,
        sites: policy.sites.iter().map(ToString::to_string).collect(),
        forbidden: policy.forbidden_sites.iter().map(ToString::to_string).collect(),
        candidates: candidates(&explained, &leaders),
        absent: absent.collect(),
        leaders,
        orders: orders(snapshot),
        ..ElectionFacts::default()
    };
    if has_elector {
        let sites: BTreeSet<SiteId> = snapshot.members.iter().map(|member| member.site.clone()).collect();
        election.losses = sites
            .into_iter()
            .map(|site| {
                let what_if = WhatIf { without_sites: vec![site.clone()], ..WhatIf::default() };
                let simulated = Simulated::new(name, snapshot, what_if, config, config, now_ms);
                let lost = simulated.slots.iter().find(|slot| {
                    slot.would_lead.is_none() && slot.later.as_ref().is_none_or(|later| later.named.is_none())
                });
                Loss {
                    site: site.to_string(),
                    survives: lost.is_none(),
                    sentence: lost.map(|slot| slot.sentence.clone()).unwrap_or_default(),
                }
            })
            .collect();
    }
    election
}

/// Each member once: one that may lead any slot, or leads one, is a candidate.
fn candidates(explained: &Explained, leaders: &[Option<String>]) -> Vec<CandidateFacts> {
    let mut all: BTreeMap<String, CandidateFacts> = BTreeMap::new();
    for found in explained.slots.iter().flat_map(|slot| &slot.candidates) {
        let member = found.member.to_string();
        let may = found.rank.is_some() || leaders.contains(&Some(member.clone()));
        let barred = (!may).then(|| found.reasons.first().cloned().unwrap_or_default());
        let known = all.entry(member.clone()).or_insert_with(|| CandidateFacts {
            member,
            site: found.site.to_string(),
            barred: barred.clone(),
        });
        if barred.is_none() {
            known.barred = None;
        }
    }
    all.into_values().collect()
}

fn orders(snapshot: &Snapshot) -> OrderFacts {
    let control = &snapshot.control;
    let order = |sentence: String, at_ms| StandingOrder { sentence, at_ms };
    let changed = control.changed_at_ms;
    let drained = control.drained.iter().map(|site| order(format!("site {site} is drained"), changed));
    let failed = control.failed_sites.iter().map(|failed| {
        order(
            format!("site {} is marked as failed by {}", failed.site, failed.ordered.by),
            failed.ordered.at_ms,
        )
    });
    let job = control.stopped.iter().map(|stopped| (format!("the job is {stopped}"), stopped));
    let standbys = control.stopped_standbys.iter().map(|order| (order.to_string(), &order.stopped));
    let stopped = job.chain(standbys).map(|(sentence, stopped)| order(sentence, stopped.ordered.at_ms));
    OrderFacts {
        mode: (control.mode != Mode::Auto).then(|| {
            order(format!("the mode is {}, set by {}", control.mode.as_str(), control.changed_by), changed)
        }),
        stopped: stopped.collect(),
        maintenance: control.maintenance.iter().map(|m| order(m.to_string(), m.ordered.at_ms)).collect(),
        closed: drained.chain(failed).collect(),
    }
}
