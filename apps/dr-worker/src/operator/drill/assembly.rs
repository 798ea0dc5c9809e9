//! Makes the report of what was seen. Pure.

use std::{collections::BTreeMap, time::Duration};

use crate::znodes::{DrillAnswer, DrillMode, DrillProbes, DrillState};
use election_core::{config::MemberId, internals::record::HistoryEntry, strategy::in_words};

use super::{
    course::{Course, LeaderChange},
    timeline::{words, works_on},
};
use crate::{
    commands::drill::report::{
        DrillMove, DrillOutcome, DrillReport, Objective, Participant, Phases, Probed, Who,
    },
    config::{DrillPlan, Objectives},
    view::Cluster,
    wall::ms,
};

/// An outage may begin this much before the clock of the conducting command has seen its cause.
const SLACK_MS: u64 = 1_000;

/// How far the clocks of members may be apart from that of the conducting command before their times are not compared with its
/// own.
const APART_MS: u64 = 10_000;

/// What was read while the drill ran, besides its course.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The newest answers.
    pub(super) answers: Vec<DrillAnswer>,
    /// The leaderships that the history has.
    pub(super) history: Vec<HistoryEntry>,
}

/// The members as the report lists them.
pub(super) fn participants(cluster: &Cluster) -> Vec<Participant> {
    let participant = |member: &crate::view::Member| Participant {
        who: Who { member: member.member.clone(), site: member.site.clone() },
        role: member.role.to_string(),
        health: member.health.to_string(),
        software: member.software.clone(),
        config_version: member.config.as_ref().map_or(0, |config| config.version),
    };
    cluster.members.iter().map(participant).collect()
}

/// The report of a drill that is over. `begun` has what was known at the beginning.
pub(super) fn assemble(
    begun: DrillReport,
    course: &Course,
    evidence: &Evidence,
    plan: &DrillPlan,
    ended_ms: u64,
) -> DrillReport {
    let (outcome, sentence) =
        course.result().cloned().unwrap_or((DrillOutcome::Running, begun.sentence.clone()));
    let probes = probes(evidence, begun.started_ms);
    let changes = &course.changes;
    let moves: Vec<_> = changes
        .iter()
        .enumerate()
        .map(|(at, change)| {
            let until = changes.get(at + 1).map(|next| ms(next.at));
            of_change(change, evidence, &probes, begun.started_ms, until)
        })
        .collect();
    let carrier = course.script.carriers.first();
    let carrier = carrier.and_then(|member| evidence.answers.iter().find(|answer| answer.member == *member));
    let phases = moves.first().map_or_else(
        || Phases { takeover_ms: carrier.and_then(started_in), ..Phases::default() },
        |first| first.phases,
    );
    let rehearsed =
        carrier.filter(|answer| plan.mode.spares_leader() && answer.step(DrillState::Started).is_some());
    let rehearsed = rehearsed.map(|answer| Who { member: answer.member.clone(), site: answer.site.clone() });
    let outage_ms = outage(plan.mode, &moves, &phases, &probes);
    let to = moves.first().map(|first| first.to.clone()).or(rehearsed);
    let mut report = DrillReport {
        ended_ms: (outcome != DrillOutcome::Running).then_some(ended_ms),
        outcome,
        sentence,
        to,
        phases,
        outage_ms,
        moves,
        probes,
        timeline: course.events.clone(),
        ..begun
    };
    report.objectives = objectives(&report, &plan.objectives, &course.lags);
    if outcome == DrillOutcome::Passed {
        let missed = report.objectives.iter().filter(|objective| !objective.passed);
        let missed = missed.map(|objective| format!("{} missed: {}", objective.name, objective.sentence));
        let unserved = report.probes.iter().filter(|probed| !probed.serves);
        let unserved = unserved.map(|Probed { who, found, .. }| match found.last_success_ms {
            None => format!("the probes of {who} never got an answer from {}", found.target),
            Some(_) => format!("the probes of {who} got no answer at the end"),
        });
        let failed: Vec<_> = missed.chain(unserved).collect();
        if !failed.is_empty() {
            report.outcome = DrillOutcome::Failed;
            report.sentence = format!("{}; {}", report.sentence, failed.join("; "));
        }
    }
    report
}

/// How long a rehearsal took until the job was ready, or what was killed until it was ready again.
fn started_in(answer: &DrillAnswer) -> Option<u64> {
    let (from, to) = (answer.step(DrillState::Started)?, answer.step(DrillState::Ready)?);
    Some(to.after_ms.saturating_sub(from.after_ms))
}

fn probes(evidence: &Evidence, started_ms: u64) -> Vec<Probed> {
    let probed = |answer: &DrillAnswer| {
        let found = answer.probes.clone()?;
        let lengths = found.outages.iter().map(|outage| {
            let from = outage.served_until_ms.unwrap_or(outage.first_ms);
            outage.served_from_ms.unwrap_or(outage.last_ms).saturating_sub(from)
        });
        Some(Probed {
            who: Who { member: answer.member.clone(), site: answer.site.clone() },
            seen_at_ms: answer.seen_ms.saturating_sub(started_ms),
            outage_ms: lengths.max().unwrap_or(0),
            serves: serves(&found),
            found,
        })
    };
    let mut all: Vec<_> = evidence.answers.iter().filter_map(probed).collect();
    all.sort_by(|a, b| (&a.who.site, &a.who.member).cmp(&(&b.who.site, &b.who.member)));
    all
}

/// Whether the last probe had an answer.
fn serves(found: &DrillProbes) -> bool {
    found.last_success_ms.is_some() && found.outages.iter().all(|outage| outage.served_from_ms.is_some())
}

fn of_change(
    change: &LeaderChange,
    evidence: &Evidence,
    probes: &[Probed],
    started_ms: u64,
    until_ms: Option<u64>,
) -> DrillMove {
    let entry = evidence.history.iter().find(|entry| entry.term == change.term);
    let mut phases = Phases::default();
    let at_ms = ms(change.at);
    if let Some(entry) = entry {
        // What the clocks of members say of the time between the two times that this command has seen itself.
        let until_ready_ms = ms(change.ready_at).saturating_sub(at_ms);
        let after = |unix_ms: u64| {
            let caused_ms = started_ms + at_ms;
            let is_plausible =
                unix_ms + APART_MS >= caused_ms && unix_ms <= caused_ms + until_ready_ms + APART_MS;
            is_plausible.then(|| unix_ms.saturating_sub(caused_ms))
        };
        let ready_ms = after(entry.ready_ms).map_or(ms(change.ready_at), |after| at_ms + after);
        let noticed_ms = change.decided.as_ref().map(|decided| decided.noticed_at_ms).filter(|at| *at > 0);
        phases = Phases {
            detect_ms: noticed_ms.and_then(after),
            decide_ms: entry.phases.decide_ms,
            release_ms: entry.phases.release_ms,
            acquire_ms: entry.phases.acquire_ms,
            takeover_ms: entry.phases.takeover_ms,
            ready_ms: served_after(ready_ms, at_ms, until_ms, probes),
        };
    }
    let decided = change.decided.as_ref();
    DrillMove {
        from: Some(change.from.clone()),
        to: change.to.clone(),
        term: change.term,
        back: change.is_back,
        cause: decided.map(|decided| decided.cause).or(entry.map(|entry| entry.cause)),
        sentence: decided.map_or_else(
            || entry.map(|entry| entry.sentence.clone()).unwrap_or_default(),
            |decided| decided.sentence.clone(),
        ),
        decided_by: decided.map(|decided| decided.by.clone()).unwrap_or_default(),
        at_ms,
        ready_at_ms: ms(change.ready_at),
        phases,
    }
}

/// How long after `ready_ms` the last site saw the service. `None` without probes.
fn served_after(ready_ms: u64, at_ms: u64, until_ms: Option<u64>, probes: &[Probed]) -> Option<u64> {
    let of = |probed: &Probed| {
        let outages = probed.found.outages.iter().filter_map(|outage| {
            let first = probed.seen_at_ms + outage.first_ms;
            let is_its = first + SLACK_MS >= at_ms && until_ms.is_none_or(|until| first < until);
            is_its.then_some(probed.seen_at_ms + outage.served_from_ms?)
        });
        outages.max().map_or(0, |served| served.saturating_sub(ready_ms))
    };
    probes.iter().map(of).max()
}

/// The longest outage: as the probes saw it, or by the records.
fn outage(mode: DrillMode, moves: &[DrillMove], phases: &Phases, probes: &[Probed]) -> Option<u64> {
    if let Some(longest) = probes.iter().map(|probed| probed.outage_ms).max() {
        return Some(longest);
    }
    match mode {
        // Nothing is known of the leader, which serves on.
        mode if mode.spares_leader() => None,
        DrillMode::KillJob if moves.is_empty() => phases.takeover_ms,
        _ => {
            let out = |change: &DrillMove| {
                let Phases { decide_ms, release_ms, acquire_ms, takeover_ms, .. } = change.phases;
                // Without one of these their sum is too short: by what this command has seen, it was no longer than this.
                let is_known = [decide_ms, release_ms, acquire_ms, takeover_ms].iter().all(Option::is_some);
                if takeover_ms.is_some() && !is_known {
                    return Some(change.ready_at_ms.saturating_sub(change.at_ms));
                }
                change.phases.sum().map(|sum| sum.saturating_sub(works_on(change, mode)))
            };
            moves.iter().filter_map(out).max()
        }
    }
}

fn objectives(
    report: &DrillReport,
    wanted: &Objectives,
    lags: &BTreeMap<MemberId, Duration>,
) -> Vec<Objective> {
    let mut all = Vec::new();
    let most = |most: Duration| format!("{} is allowed", in_words(most));
    if let Some(rto) = wanted.rto {
        let (measured_ms, what) = match (report.mode, report.probes.is_empty()) {
            (DrillMode::Rehearse, _) => (report.phases.takeover_ms, "the rehearsed start took"),
            (DrillMode::KillStandby, _) => (report.phases.takeover_ms, "the new start of the standby took"),
            (_, false) => (report.outage_ms, "the longest outage that a site saw was"),
            (_, true) => (report.outage_ms, "in the election's records the outage was"),
        };
        let passed = measured_ms.is_some_and(|measured| measured <= ms(rto));
        let sentence = match measured_ms {
            Some(measured) => format!("{what} {}, and {}", words(measured), most(rto)),
            None => "it could not be measured".to_owned(),
        };
        all.push(Objective { name: "rto".to_owned(), most_ms: ms(rto), measured_ms, passed, sentence });
    }
    if let (Some(rpo), Some(attribute)) = (wanted.rpo, &wanted.lag) {
        let lag = report.to.as_ref().and_then(|to| lags.get(&to.member)).copied();
        let sentence = match (&report.to, lag) {
            (None, _) => "no member took over".to_owned(),
            (Some(to), Some(lag)) => {
                format!("{attribute} of {} was {} before, and {}", to.member, in_words(lag), most(rpo))
            }
            (Some(to), None) => {
                format!("{} had no attribute {attribute} with a number of seconds", to.member)
            }
        };
        let passed = lag.is_some_and(|lag| lag <= rpo);
        let measured_ms = lag.map(ms);
        all.push(Objective { name: "rpo".to_owned(), most_ms: ms(rpo), measured_ms, passed, sentence });
    }
    all
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
