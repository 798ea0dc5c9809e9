//! Reads what the checks of a drill need.

use std::time::Duration;

use crate::znodes::DrillMode;
use election_admin::Snapshot;
use election_core::Paths;

use super::{
    checks::{Predicted, State},
    report::Who,
    runs::Present,
};
use crate::{
    commands::{
        Operator,
        servers::{self, Quorum},
    },
    config::{DrillPlan, OperatorConfig},
    error::Error,
    view::{Simulated, WhatIf, statuses::skipped},
    wall::unix_ms,
};

/// Reads the state of the election that the plan is about, but for an evacuation.
///
/// # Errors
/// If ZooKeeper does not answer, or there is no such election.
pub(crate) async fn gather(
    operator: &Operator,
    paths: &Paths,
    plan: &DrillPlan,
) -> Result<(Snapshot, State), Error> {
    let config = &operator.config;
    let has_sites = !config.zookeeper.sites.is_empty();
    let quorum = if has_sites { Some(Quorum::of(&servers::ask(&config.zookeeper).await)) } else { None };
    let (snapshot, mut state) = gather_election(operator, paths).await?;
    state.quorum = quorum;
    state.predicted = predict(&state, &snapshot, plan, config);
    state.session_timeout = state.leader().and_then(|leader| {
        let there = snapshot.members.iter().filter(|member| member.site == leader.site);
        // Zero: it is not known.
        let known = there.map(|member| member.session_timeout_ms).filter(|timeout_ms| *timeout_ms > 0);
        known.max().map(Duration::from_millis)
    });
    Ok((snapshot, state))
}

/// The same, without what is about no election: the quorum, an evacuation, and what the drill would do.
///
/// # Errors
/// As of [`gather`].
pub(crate) async fn gather_election(operator: &Operator, paths: &Paths) -> Result<(Snapshot, State), Error> {
    let (observer, config, job) = (operator.observer().await?, &operator.config, paths.name());
    let snapshot = observer.snapshot(paths).await?;
    let present = Present::read(observer.session(), paths).await?;
    let skipped = skipped(operator.workers(), job, &snapshot).await;
    let mut state = State::new(job, snapshot.clone(), present, config, unix_ms());
    state.cluster.skipped = skipped;
    Ok((snapshot, state))
}

fn predict(
    state: &State,
    snapshot: &Snapshot,
    plan: &DrillPlan,
    config: &OperatorConfig,
) -> Option<Predicted> {
    let leader = state.leader()?;
    let what_if = match plan.mode {
        DrillMode::KillWorker => WhatIf { without: vec![leader.member.clone()], ..WhatIf::default() },
        DrillMode::CutSite => WhatIf { without_sites: vec![leader.site.clone()], ..WhatIf::default() },
        _ => return None,
    };
    let simulated = Simulated::new(&plan.job, snapshot, what_if, config, config, state.unix_ms);
    let slot = simulated.slots.into_iter().next()?;
    let leads = slot.would_lead.map(|named| Who { member: named.member, site: named.site });
    Some(Predicted { leads, sentence: slot.sentence })
}
