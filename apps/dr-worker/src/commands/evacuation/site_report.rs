//! The report of a drill of a whole site: what each job did, what it waited for, and what was predicted. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_core::{config::MemberId, internals::record::HistoryEntry, strategy::in_words};
use serde::{Deserialize, Serialize};

use super::{course::SLACK_MS, gather::JobNote, order::Follows};
use crate::{
    commands::drill::report::{DrillCheck, DrillOutcome, DrillReport, Objective},
    config::{Objectives, SitePlan},
    wall::ms,
    znodes::{Evacuation, EvacuationLeader, EvacuationState, EvacuationStep},
};

/// The report of one run. Times ending with `_ms` are in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteDrillReport {
    /// Format version.
    pub(crate) v: u32,
    /// The plan.
    pub(crate) plan: String,
    /// The site that was emptied.
    pub(crate) site: String,
    /// The operator.
    pub(crate) by: String,
    /// The operator's reason.
    pub(crate) reason: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub(crate) started_ms: u64,
    /// When its last move ended.
    pub(crate) ended_ms: Option<u64>,
    /// The end of the last drill of the plan before this one that passed.
    #[serde(default)]
    pub(crate) last_success_ms: Option<u64>,
    /// The outcome.
    pub(crate) outcome: DrillOutcome,
    /// The outcome in one sentence.
    pub(crate) sentence: String,
    /// From the first move to the last READY leader.
    pub(crate) took_ms: u64,
    /// The longest chain of the outages that were predicted; null if one is unknown.
    pub(crate) predicted_ms: Option<u64>,
    /// The jobs that determined how long it took: each one waited for the one before.
    pub(crate) longest_chain: Vec<String>,
    /// The longest outage of a job.
    pub(crate) longest_outage_ms: Option<u64>,
    /// How long the move back took.
    pub(crate) back_ms: Option<u64>,
    /// The objectives of the whole.
    pub(crate) objectives: Vec<Objective>,
    /// The jobs, in their order.
    pub(crate) jobs: Vec<JobInDrill>,
    /// The jobs that were left out.
    pub(crate) left_out: Vec<JobNote>,
    /// The checks before.
    pub(crate) checks: Vec<DrillCheck>,
}

/// One job of a drill of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobInDrill {
    /// The job.
    pub(crate) job: String,
    /// What it waited for.
    pub(crate) after: Vec<String>,
    /// How long it waited, from the beginning of the first move.
    pub(crate) waited_ms: Option<u64>,
    /// Who led before.
    pub(crate) from: Option<EvacuationLeader>,
    /// Who was expected to lead.
    pub(crate) predicted: Option<EvacuationLeader>,
    /// Who led then.
    pub(crate) leader: Option<EvacuationLeader>,
    /// How long its move took.
    pub(crate) took_ms: Option<u64>,
    /// How long it did not serve: until its new leader was READY.
    pub(crate) outage_ms: Option<u64>,
    /// The same by the last moves before.
    pub(crate) predicted_outage_ms: Option<u64>,
    /// How long it did not serve in the move back.
    pub(crate) back_outage_ms: Option<u64>,
    /// What it did, as text.
    pub(crate) sentence: String,
    /// Its objectives.
    pub(crate) objectives: Vec<Objective>,
}

/// What is read of a job for the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobEvidence {
    /// The leaderships that its history has.
    pub(crate) history: Vec<HistoryEntry>,
    /// The time whose data each member would have lost before.
    pub(crate) lags: BTreeMap<MemberId, Duration>,
}

/// A drill that is over.
pub(crate) struct SiteDrill<'a> {
    pub(crate) name: &'a str,
    pub(crate) plan: &'a SitePlan,
    /// The evacuation as it was read last.
    pub(crate) away: &'a Evacuation,
    /// The same of the move back, if there was one.
    pub(crate) back: Option<&'a Evacuation>,
    /// Why it is over although they may go on.
    pub(crate) cut_short: Option<String>,
    /// When it was over.
    pub(crate) unix_ms: u64,
    /// The jobs that each one comes after by its configuration: it does not run while one of them moves.
    pub(crate) stops_with: &'a Follows,
    pub(crate) evidence: &'a BTreeMap<String, JobEvidence>,
    /// The end of the last drill of the plan before this one that passed.
    pub(crate) last_success_ms: Option<u64>,
}

impl SiteDrillReport {
    /// The end of the last drill of the plan that passed, as this report has it.
    pub(crate) fn proved_ms(&self) -> Option<u64> {
        self.ended_ms.filter(|_| self.outcome == DrillOutcome::Passed).or(self.last_success_ms)
    }
}

/// The report.
pub(crate) fn assemble(
    drill: &SiteDrill<'_>,
    checks: Vec<DrillCheck>,
    left_out: Vec<JobNote>,
) -> SiteDrillReport {
    let SiteDrill { name, plan, away, back, unix_ms, .. } = *drill;
    let jobs = jobs(drill);
    let took_ms = ms(away.took(unix_ms));
    // Of one job that has moved it may be unknown, so it is of the whole.
    let lost = away.steps.iter().filter(|step| step.has_moved()).map(|step| drill.lost(step));
    let lost_ms = lost.collect::<Option<Vec<_>>>().and_then(|lost| lost.into_iter().max());
    let objectives = objectives(&plan.objectives, Some(took_ms), lost_ms);
    let wrong = wrong(drill, &objectives, &jobs);
    let moved = away.steps.iter().filter(|step| step.has_moved()).count();
    let took = in_words(Duration::from_millis(took_ms));
    let (outcome, sentence) = match wrong.is_empty() {
        true => (DrillOutcome::Passed, format!("{moved} jobs moved out of site {} in {took}", plan.site)),
        false => (DrillOutcome::Failed, wrong.join("; ")),
    };
    SiteDrillReport {
        v: DrillReport::VERSION,
        plan: name.to_owned(),
        site: plan.site.clone(),
        by: away.by.clone(),
        reason: away.reason.clone(),
        started_ms: away.at_ms,
        ended_ms: back.unwrap_or(away).steps.iter().filter_map(|step| step.ended_ms).max(),
        last_success_ms: drill.last_success_ms,
        outcome,
        sentence,
        took_ms,
        predicted_ms: drill.predicted(|step| &step.after).into_values().max().flatten(),
        longest_chain: longest_chain(away),
        longest_outage_ms: jobs.iter().filter_map(JobInDrill::longest_outage).max(),
        back_ms: back.map(|back| ms(back.took(unix_ms))),
        objectives,
        jobs,
        left_out,
        checks,
    }
}

impl JobInDrill {
    /// The longer outage of its two moves.
    pub(crate) fn longest_outage(&self) -> Option<u64> {
        self.outage_ms.max(self.back_outage_ms)
    }
}

impl EvacuationStep {
    /// Whether this evacuation has moved the job away.
    fn has_moved(&self) -> bool {
        self.tries > 0 && self.is_away()
    }
}

impl SiteDrill<'_> {
    fn history(&self, step: &EvacuationStep) -> &[HistoryEntry] {
        self.evidence.get(&step.job).map_or(&[], |evidence| &evidence.history)
    }

    /// The time whose data the new leader of a step has lost.
    fn lost(&self, step: &EvacuationStep) -> Option<u64> {
        let leader = step.leader.as_ref().filter(|_| step.has_moved())?;
        self.evidence.get(&step.job)?.lags.get(&leader.member).copied().map(ms)
    }

    /// The jobs of this drill that this one comes after by its configuration.
    fn stops_with<'a>(&'a self, step: &EvacuationStep) -> &'a BTreeSet<String> {
        const NONE: &BTreeSet<String> = &BTreeSet::new();
        self.stops_with.get(&step.job).unwrap_or(NONE)
    }

    /// When each job is READY after the beginning, if each move takes as long as the last one before and begins after those
    /// that it waits for. `None` if one of them is unknown.
    fn predicted<'a>(
        &'a self,
        after: impl Fn(&'a EvacuationStep) -> &'a BTreeSet<String>,
    ) -> BTreeMap<&'a str, Option<u64>> {
        let mut ends: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        // The steps are in an order in which each is after those that it waits for.
        for step in self.away.steps.iter().filter(|step| step.predicted.is_some()) {
            let before = |entry: &&HistoryEntry| {
                step.begun_ms.is_none_or(|begun| entry.ready_ms.saturating_add(SLACK_MS) < begun)
            };
            let own = self.history(step).iter().rev().filter(before).find_map(without_leader);
            let begins = after(step).iter().filter_map(|job| ends.get(job.as_str()));
            let begins = begins.copied().try_fold(0, |latest, end| Some(end?.max(latest)));
            ends.insert(&step.job, begins.zip(own).map(|(begins, own)| begins + own));
        }
        ends
    }

    /// How long each job did not serve in these moves. A job that comes after another one does not run while that one moves,
    /// which its own history does not show.
    fn outages<'a>(&'a self, moves: &'a Evacuation) -> BTreeMap<&'a str, u64> {
        let mut first: BTreeMap<&str, u64> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for step in moves.steps.iter().filter(|step| step.back == moves.undo) {
            let (Some(begun), Some(ended), Some(leader)) = (step.begun_ms, step.ended_ms, &step.leader)
            else {
                continue;
            };
            let is_it = |entry: &&HistoryEntry| {
                entry.ready_ms.saturating_add(SLACK_MS) >= begun && entry.member == leader.member
            };
            let own = self.history(step).iter().find(is_it).and_then(without_leader);
            let stopped = self.stops_with(step).iter().filter_map(|job| first.get(job.as_str())).min();
            let stopped = stopped.copied();
            first.insert(&step.job, stopped.unwrap_or(begun).min(begun));
            found.extend(
                stopped.map(|at| ended.saturating_sub(at)).max(own).map(|outage| (step.job.as_str(), outage)),
            );
        }
        found
    }
}

fn jobs(drill: &SiteDrill<'_>) -> Vec<JobInDrill> {
    let away = drill.outages(drill.away);
    let back = drill.back.map(|back| drill.outages(back)).unwrap_or_default();
    let predicted = drill.predicted(|step| drill.stops_with(step));
    let begun = drill.away.steps.iter().filter_map(|step| step.begun_ms).min();
    let of = |step: &EvacuationStep| {
        let mut job = JobInDrill {
            job: step.job.clone(),
            after: step.after.iter().cloned().collect(),
            waited_ms: step.begun_ms.zip(begun).map(|(at, begun)| at.saturating_sub(begun)),
            from: step.from.clone(),
            predicted: step.predicted.clone(),
            leader: step.leader.clone(),
            took_ms: step.took().map(ms),
            outage_ms: away.get(step.job.as_str()).copied(),
            predicted_outage_ms: predicted.get(step.job.as_str()).copied().flatten(),
            back_outage_ms: back.get(step.job.as_str()).copied(),
            sentence: step.progress(),
            objectives: Vec::new(),
        };
        if let Some(own) = drill.plan.each.get(&step.job).filter(|_| step.predicted.is_some()) {
            job.objectives = objectives(own, job.longest_outage(), drill.lost(step));
        }
        job
    };
    drill.away.steps.iter().map(of).collect()
}

/// How long no leader was READY before this one.
fn without_leader(entry: &HistoryEntry) -> Option<u64> {
    let parts = [entry.phases.release_ms, entry.phases.acquire_ms, entry.phases.takeover_ms];
    parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum())
}

/// What failed, or was missed.
fn wrong(drill: &SiteDrill<'_>, objectives: &[Objective], jobs: &[JobInDrill]) -> Vec<String> {
    let SiteDrill { away, back, cut_short, .. } = drill;
    let undone =
        |step: &&EvacuationStep| !matches!(step.state, EvacuationState::Done | EvacuationState::Skipped);
    let failed = away.steps.iter().filter(undone).map(|step| format!("{}: {}", step.job, step.progress()));
    let returned = back.iter().flat_map(|back| &back.steps).filter(undone);
    let stayed = returned.map(|step| format!("{} did not move back: {}", step.job, step.progress()));
    let all = jobs.iter().flat_map(|job| job.objectives.iter().map(|own| (job.job.as_str(), own)));
    let missed = objectives.iter().map(|objective| ("the whole", objective)).chain(all);
    let missed = missed.filter(|(_, objective)| !objective.passed);
    let missed =
        missed.map(|(of, objective)| format!("{} of {of} missed: {}", objective.name, objective.sentence));
    failed.chain(stayed).chain(cut_short.clone()).chain(missed).collect()
}

/// Back from the step that ended last, each time to the last one that it waited for.
fn longest_chain(away: &Evacuation) -> Vec<String> {
    let mut chain = Vec::new();
    let mut last = away.steps.iter().max_by_key(|step| step.ended_ms);
    while let Some(step) = last {
        chain.insert(0, step.job.clone());
        let before = away.steps.iter().filter(|other| step.after.contains(&other.job));
        last = before.max_by_key(|other| other.ended_ms);
    }
    chain
}

fn objectives(most: &Objectives, took_ms: Option<u64>, lost_ms: Option<u64>) -> Vec<Objective> {
    let objective = |name: &str, most: Duration, measured_ms: Option<u64>| {
        let (most_ms, words) = (ms(most), in_words(most));
        let sentence = match measured_ms {
            Some(measured) => {
                format!("it was {}, and {words} is allowed", in_words(Duration::from_millis(measured)))
            }
            None => format!("it could not be measured, and {words} is allowed"),
        };
        let passed = measured_ms.is_some_and(|measured| measured <= most_ms);
        Objective { name: name.to_owned(), most_ms, measured_ms, passed, sentence }
    };
    let rto = most.rto.map(|most| objective("rto", most, took_ms));
    let rpo = most.rpo.map(|most| objective("rpo", most, lost_ms));
    rto.into_iter().chain(rpo).collect()
}

#[cfg(test)]
#[path = "site_report_tests.rs"]
pub(crate) mod tests;
