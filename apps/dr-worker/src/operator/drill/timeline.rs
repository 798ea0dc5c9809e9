//! The timeline of a report: lanes of bars. Pure.

use std::time::Duration;

use crate::znodes::DrillMode;
use election_core::strategy::in_words;

use crate::commands::drill::report::{DrillMove, DrillReport, Probed};

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

/// What lasted from one time to another, in milliseconds after the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    /// A name for its colour.
    pub(super) class: &'static str,
    pub(super) title: String,
}

impl Bar {
    pub(super) fn new(from_ms: u64, to_ms: u64, class: &'static str, title: String) -> Self {
        Self { from_ms, to_ms: to_ms.max(from_ms), class, title }
    }
}

/// How long the drawn time is.
pub(super) fn length(report: &DrillReport) -> u64 {
    let ended = report.ended_ms.map(|ended| ended.saturating_sub(report.started_ms));
    let last = report.timeline.iter().map(|event| event.at_ms).max().unwrap_or(0);
    let probed =
        report.probes.iter().map(|probed| probed.seen_at_ms + probed.found.last_ms).max().unwrap_or(0);
    // A wrong clock must not make everything else a point.
    ended.unwrap_or(last.max(probed)).max(1)
}

/// The lanes of a report: the leader, the phases of each move, and each member that probed.
pub(super) fn lanes(report: &DrillReport) -> Vec<Lane> {
    let end = length(report);
    let mut lanes = vec![leaders(report, end)];
    lanes.extend(report.moves.iter().map(phases));
    lanes.extend(report.probes.iter().map(|probed| probes(probed, end)));
    lanes
}

fn leaders(report: &DrillReport, end: u64) -> Lane {
    let mut bars = Vec::new();
    let (mut leader, mut since) = (report.from.clone(), 0);
    let mut bar = |leader: &Option<_>, from, to| {
        if let Some(who) = leader {
            bars.push(Bar::new(from, to, "leads", format!("{who} leads")));
        }
    };
    for change in &report.moves {
        bar(&leader, since, (change.at_ms + works_on(change, report.mode)).min(change.ready_at_ms));
        (leader, since) = (Some(change.to.clone()), change.ready_at_ms);
    }
    bar(&leader, since, end);
    Lane { label: "Leader".to_owned(), bars }
}

/// How long the old leader works on: if it is asked to release, until that is decided.
pub(super) fn works_on(change: &DrillMove, mode: DrillMode) -> u64 {
    match mode == DrillMode::Switchover || change.back {
        true => change.phases.detect_ms.unwrap_or(0) + change.phases.decide_ms.unwrap_or(0),
        false => 0,
    }
}

fn phases(change: &DrillMove) -> Lane {
    let mut from = change.at_ms;
    let bars = change.phases.all().into_iter().filter_map(|(name, took)| {
        let (begun, took) = (from, took?);
        from += took;
        Some(Bar::new(begun, from, name, format!("{name}: {}", words(took))))
    });
    let label = if change.back { "Move back" } else { "Failover" };
    Lane { label: format!("{label}, to {}", change.to.member), bars: bars.collect() }
}

fn probes(probed: &Probed, end: u64) -> Lane {
    let at = |ms: u64| (probed.seen_at_ms + ms).min(end);
    let found = &probed.found;
    let served = Bar::new(at(found.first_ms), at(found.last_ms), "served", format!("{} probes", found.count));
    let outages = found.outages.iter().map(|outage| {
        let to = outage.served_from_ms.unwrap_or(outage.last_ms);
        let lasted = to.saturating_sub(outage.served_until_ms.unwrap_or(outage.first_ms));
        let title = format!("no answer for {}: {}", words(lasted), outage.reason);
        Bar::new(at(outage.first_ms), at(to), "outage", title)
    });
    let label = format!("Seen from {}, by {}", probed.who.site, probed.who.member);
    Lane { label, bars: [served].into_iter().chain(outages).collect() }
}

pub(super) fn words(ms: u64) -> String {
    in_words(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::drill::report::tests::sample;

    #[test]
    fn lanes_follow_the_report() {
        let shown: Vec<_> = lanes(&sample())
            .into_iter()
            .flat_map(|lane| {
                let bars = lane.bars.into_iter();
                bars.map(move |b| {
                    format!("{}: {} {}-{} {}", lane.label, b.class, b.from_ms, b.to_ms, b.title)
                })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Leader: leads 0-1042 east-1 of site east leads",
                "Leader: leads 2200-7242 west-1 of site west leads",
                "Leader: leads 8400-10400 east-1 of site east leads",
                "Failover, to west-1: detect 1000-1012 detect: 12ms",
                "Failover, to west-1: decide 1012-1042 decide: 30ms",
                "Failover, to west-1: release 1042-1522 release: 480ms",
                "Failover, to west-1: acquire 1522-1547 acquire: 25ms",
                "Failover, to west-1: takeover 1547-2157 takeover: 610ms",
                "Failover, to west-1: ready 2157-2247 ready: 90ms",
                "Move back, to east-1: detect 7200-7212 detect: 12ms",
                "Move back, to east-1: decide 7212-7242 decide: 30ms",
                "Move back, to east-1: release 7242-7722 release: 480ms",
                "Move back, to east-1: acquire 7722-7747 acquire: 25ms",
                "Move back, to east-1: takeover 7747-8357 takeover: 610ms",
                "Move back, to east-1: ready 8357-8447 ready: 90ms",
                "Seen from east, by east-2: served 40-9940 99 probes",
                "Seen from east, by east-2: outage 1220-2530 no answer for 1.4s: connection refused",
                "Seen from west, by west-2: served 40-9940 99 probes",
                "Seen from west, by west-2: outage 1240-2340 no answer for 1.2s: connection refused",
            ]
        );
    }
}
