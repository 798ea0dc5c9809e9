//! Reads what the checks of a drill need.

use crate::znodes::DrillMode;
use election_admin::{Observer, Snapshot};
use election_core::{Paths, config::Policy, strategy::Strategy};

use super::{
    checks::{Predicted, State},
    report::Who,
    runs::Present,
};
use crate::{
    commands::servers::{self, Quorum},
    config::{DrillPlan, ZooKeeperConfig},
    error::Error,
    view::{Cluster, Explained, Simulated, WhatIf, statuses::skipped},
    wall::unix_ms,
    workers::Workers,
};

/// Where an election is, and by which policy it is explained.
pub(crate) struct Subject<'a> {
    pub(crate) root: &'a str,
    pub(crate) paths: &'a Paths,
    /// To ask the servers.
    pub(crate) zookeeper: &'a ZooKeeperConfig,
    pub(crate) policy: &'a Policy,
    pub(crate) strategy: &'a dyn Strategy,
    /// To ask the elector.
    pub(crate) workers: Option<Workers>,
}

/// Reads the state of the election that the plan is about.
///
/// # Errors
/// If ZooKeeper does not answer, or there is no such election.
pub(crate) async fn gather(
    observer: &Observer,
    subject: &Subject<'_>,
    plan: &DrillPlan,
) -> Result<(Snapshot, State), Error> {
    let Subject { root, paths, zookeeper, policy, strategy, workers } = subject;
    let has_sites = !zookeeper.sites.is_empty();
    let quorum = if has_sites { Some(Quorum::of(&servers::ask(zookeeper).await)) } else { None };
    let snapshot = observer.snapshot(paths).await?;
    let present = Present::read(observer.session(), paths).await?;
    let skipped = skipped(workers.clone(), &plan.job, &snapshot).await;
    let now_ms = unix_ms();
    let explained = Explained::new(&plan.job, &snapshot, policy, *strategy, now_ms);
    let cluster = Cluster { skipped, ..Cluster::new(root, &plan.job, snapshot.clone(), now_ms) };
    let min_tenure = policy.min_tenure;
    let mut state =
        State { cluster, explained, predicted: None, quorum, present, min_tenure, unix_ms: now_ms };
    state.predicted = predict(&state, &snapshot, plan, (policy, *strategy));
    Ok((snapshot, state))
}

fn predict(
    state: &State,
    snapshot: &Snapshot,
    plan: &DrillPlan,
    by: (&Policy, &dyn Strategy),
) -> Option<Predicted> {
    let leader = state.leader()?;
    let what_if = match plan.mode {
        DrillMode::KillWorker => WhatIf { without: vec![leader.member.clone()], ..WhatIf::default() },
        DrillMode::CutSite => WhatIf { without_sites: vec![leader.site.clone()], ..WhatIf::default() },
        _ => return None,
    };
    let simulated = Simulated::new(&plan.job, snapshot, what_if, by, by, state.unix_ms);
    let slot = simulated.slots.into_iter().next()?;
    let leads = slot.would_lead.map(|named| Who { member: named.member, site: named.site });
    Some(Predicted { leads, sentence: slot.sentence })
}
