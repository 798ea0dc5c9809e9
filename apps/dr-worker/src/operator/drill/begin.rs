//! A drill that may run: its script, its order, and the report with which it begins.

use std::time::Duration;

use crate::znodes::{DrillMode, DrillOrder};
use election_core::Paths;

use super::{assembly::participants, script::Script, seen::Leader};
use crate::{
    commands::{
        Operator, asker,
        drill::{
            checks::{State, target},
            report::{DrillCheck, DrillOutcome, DrillReport, Phases, Who},
        },
    },
    config::DrillPlan,
    wall::{ms, unix_ms},
};

/// When something happens at the earliest: the probes run before.
const BASELINE: Duration = Duration::from_millis(1_500);

/// How long members may take to agree.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// How much longer than the drill the order is valid, for the move back after an abort.
pub(super) const MARGIN: Duration = Duration::from_secs(90);

/// A drill that may run.
pub(super) struct Drill<'a> {
    pub(super) operator: &'a Operator,
    pub(super) paths: &'a Paths,
    pub(super) plan: &'a DrillPlan,
    /// The name of the plan.
    pub(super) name: Option<&'a str>,
    pub(super) reason: Option<String>,
    pub(super) checks: Vec<DrillCheck>,
    pub(super) state: State,
}

impl Drill<'_> {
    pub(super) fn script(&self) -> Option<Script> {
        let Self { plan, state, .. } = self;
        let leader = state.leader()?;
        let slot = state.cluster.slots.first()?.leader.as_ref()?;
        let first = || state.candidates(plan).first().map(|candidate| candidate.member.clone());
        let carriers = match plan.mode {
            DrillMode::Rehearse => vec![first()?],
            DrillMode::KillStandby => vec![(*state.ready_standbys(plan).first()?).clone()],
            DrillMode::Switchover => vec![leader.member.clone(), first()?],
            DrillMode::CutSite => {
                let of_site = state.cluster.members.iter().filter(|member| member.site == leader.site);
                of_site.map(|member| member.member.clone()).collect()
            }
            _ => vec![leader.member.clone()],
        };
        Some(Script {
            job: plan.job.clone(),
            mode: plan.mode,
            to: plan.to.clone(),
            from: Leader {
                who: Who { member: leader.member.clone(), site: leader.site.clone() },
                ballot: slot.ballot.clone(),
                term: slot.term,
                is_ready: true,
            },
            carriers,
            back: plan.back,
            stay: if plan.mode.spares_leader() { Duration::ZERO } else { plan.rules.stay },
            limit: plan.longest(),
            agree_within: AGREE_WITHIN,
            baseline: BASELINE,
            started_ms: unix_ms(),
        })
    }

    pub(super) fn order(&self, begun: &DrillReport, script: &Script) -> DrillOrder {
        let valid_for = self.plan.longest() + MARGIN;
        let carriers = script.carriers.clone();
        let mut order =
            DrillOrder::new(&begun.run, self.plan.mode, carriers, &begun.by, script.started_ms, valid_for);
        order.reason = begun.reason.clone();
        order.cut_ms = (self.plan.mode == DrillMode::CutSite).then(|| ms(self.plan.cut_for));
        order.probe = true;
        order
    }

    pub(super) fn begun(&self, run: String, script: &Script) -> DrillReport {
        let Self { plan, name, checks, state, .. } = self;
        DrillReport {
            v: DrillReport::VERSION,
            run,
            job: plan.job.clone(),
            plan: name.map(str::to_owned),
            mode: plan.mode,
            target: target(&plan.to),
            by: asker(),
            reason: self.reason.clone().or_else(|| plan.rules.reason.clone()),
            started_ms: script.started_ms,
            ended_ms: None,
            outcome: DrillOutcome::Running,
            sentence: "it has not ended".to_owned(),
            from: Some(script.from.who.clone()),
            to: None,
            phases: Phases::default(),
            outage_ms: None,
            objectives: Vec::new(),
            moves: Vec::new(),
            probes: Vec::new(),
            checks: checks.clone(),
            timeline: Vec::new(),
            members: participants(&state.cluster),
            software: concat!("dr-worker ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    pub(super) fn reason_of(&self, run: &str) -> String {
        let reason = self.reason.as_ref().or(self.plan.rules.reason.as_ref());
        reason.map_or_else(|| format!("drill {run}"), |reason| format!("drill {run}: {reason}"))
    }
}
