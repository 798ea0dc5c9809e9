//! The report of a drill, as it is kept in ZooKeeper and printed as JSON.

use std::fmt;

use crate::znodes::{DrillMode, DrillProbes};
use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::Cause,
        text::{cut, shown},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The report of one run.
///
/// The fields are in the order of the JSON. Times ending with `_ms` are in milliseconds; those named `at_ms` are counted
/// from `started_ms`, which is since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrillReport {
    /// Format version.
    pub(crate) v: u32,
    /// The id of the run.
    pub(crate) run: String,
    /// The job.
    pub(crate) job: String,
    /// The plan, if there was one.
    pub(crate) plan: Option<String>,
    /// What was practised.
    pub(crate) mode: DrillMode,
    /// Who was to take over, as text.
    pub(crate) target: String,
    /// The operator.
    pub(crate) by: String,
    /// The operator's reason.
    pub(crate) reason: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub(crate) started_ms: u64,
    /// When it ended.
    pub(crate) ended_ms: Option<u64>,
    /// The outcome.
    pub(crate) outcome: DrillOutcome,
    /// The outcome in one sentence.
    pub(crate) sentence: String,
    /// The leader at the beginning.
    pub(crate) from: Option<Who>,
    /// The member that took over or rehearsed, or whose standby was killed.
    pub(crate) to: Option<Who>,
    /// How long each phase of the practised failover took.
    pub(crate) phases: Phases,
    /// The longest outage that a site saw; by the records of the election without probes.
    pub(crate) outage_ms: Option<u64>,
    /// The objectives, and whether they were reached.
    pub(crate) objectives: Vec<Objective>,
    /// Changes of leadership, oldest first.
    pub(crate) moves: Vec<DrillMove>,
    /// What each site's probes saw.
    pub(crate) probes: Vec<Probed>,
    /// The checks before.
    pub(crate) checks: Vec<DrillCheck>,
    /// What happened.
    pub(crate) timeline: Vec<DrillEvent>,
    /// The members at the beginning.
    pub(crate) members: Vec<Participant>,
    /// The program that conducted it.
    pub(crate) software: String,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DrillOutcome {
    /// Not over yet.
    Running,
    /// As planned, with all objectives.
    Passed,
    /// To its end, and something failed, or an objective was missed.
    Failed,
    /// It left the plan, and was ended.
    Aborted,
    /// The command that conducted it was lost.
    Interrupted,
    /// One of a later release.
    #[serde(other)]
    Unknown,
}

impl DrillOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for DrillOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A member and its site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    /// The member.
    pub(crate) member: MemberId,
    /// Its site.
    pub(crate) site: SiteId,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of site {}", self.member, self.site)
    }
}

/// How long each phase took; null if it is unknown or does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phases {
    /// From the fault or the request until the elector noticed that a decision was necessary.
    pub(crate) detect_ms: Option<u64>,
    /// From then to the decision.
    pub(crate) decide_ms: Option<u64>,
    /// From the decision until the old leader's znode was deleted.
    pub(crate) release_ms: Option<u64>,
    /// From then until the new leader created its znode.
    pub(crate) acquire_ms: Option<u64>,
    /// From then until it was READY; of a rehearsal, from the start of the job until it was ready; of a
    /// killed standby, from its end until it was ready again.
    pub(crate) takeover_ms: Option<u64>,
    /// From then until the probes of each site saw the service.
    pub(crate) ready_ms: Option<u64>,
}

impl Phases {
    /// Each phase by name, in order.
    pub(crate) const fn all(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("detect", self.detect_ms),
            ("decide", self.decide_ms),
            ("release", self.release_ms),
            ("acquire", self.acquire_ms),
            ("takeover", self.takeover_ms),
            ("ready", self.ready_ms),
        ]
    }

    /// The time of all known phases.
    pub(crate) fn sum(&self) -> Option<u64> {
        let known: Vec<_> = self.all().into_iter().filter_map(|(_, ms)| ms).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }
}

/// A change of leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrillMove {
    /// The leader before.
    pub(crate) from: Option<Who>,
    /// The new leader.
    pub(crate) to: Who,
    /// The term.
    pub(crate) term: u64,
    /// Whether it is the move back.
    pub(crate) back: bool,
    /// The cause, once the decision was read.
    pub(crate) cause: Option<Cause>,
    /// The decision's sentence.
    pub(crate) sentence: String,
    /// Who decided.
    pub(crate) decided_by: String,
    /// When the fault or the request was.
    pub(crate) at_ms: u64,
    /// When the new leader was seen READY.
    pub(crate) ready_at_ms: u64,
    /// How long each phase took.
    pub(crate) phases: Phases,
}

/// What the probes of a member saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// The member that probed, and its site.
    #[serde(flatten)]
    pub(crate) who: Who,
    /// When it began, by its wall clock, counted from the beginning of the run. Its other times are counted from here.
    pub(crate) seen_at_ms: u64,
    /// The longest outage.
    pub(crate) outage_ms: u64,
    /// Whether the service answered at the end.
    pub(crate) serves: bool,
    /// The counts and outages.
    #[serde(flatten)]
    pub(crate) found: DrillProbes,
}

/// An objective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Objective {
    /// `rto` or `rpo`.
    pub(crate) name: String,
    /// The most that is allowed.
    pub(crate) most_ms: u64,
    /// What was measured; null if it could not be.
    pub(crate) measured_ms: Option<u64>,
    /// Whether it was reached.
    pub(crate) passed: bool,
    /// A sentence.
    pub(crate) sentence: String,
}

/// A check before a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DrillCheck {
    /// Its name.
    pub(crate) name: String,
    /// Whether the drill may run as far as this is concerned.
    pub(crate) passed: bool,
    /// A sentence.
    pub(crate) sentence: String,
}

impl DrillCheck {
    /// What was found, or why the drill may not run.
    pub(crate) fn new(name: &str, found: Result<String, String>) -> Self {
        let passed = found.is_ok();
        let (Ok(sentence) | Err(sentence)) = found;
        Self { name: name.to_owned(), passed, sentence }
    }
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DrillEvent {
    /// When.
    pub(crate) at_ms: u64,
    /// Who did it, or where it was seen: a member, `election` or `drill`.
    pub(crate) who: String,
    /// What.
    pub(crate) what: String,
}

/// A member at the beginning of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Participant {
    /// The member and its site.
    #[serde(flatten)]
    pub(crate) who: Who,
    /// Its role.
    pub(crate) role: String,
    /// Its health.
    pub(crate) health: String,
    /// Its software.
    pub(crate) software: String,
    /// The version of the configuration that was pushed to ZooKeeper and is in force there; 0 for none.
    pub(crate) config_version: u64,
}

/// How many events a report has.
pub(crate) const MAX_EVENTS: usize = 80;
/// How many outages of each site a report has.
const MAX_OUTAGES: usize = 5;
/// How many members are reported, and probe.
const MAX_MEMBERS: usize = 24;
/// The longest text, and the longest name, in bytes.
const MAX_TEXT: usize = 240;
const MAX_NAME: usize = 60;

impl DrillReport {
    /// The format of this release.
    pub(crate) const VERSION: u32 = 1;

    /// The same report, shortened to what ZooKeeper keeps, and with text that controls no terminal.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        self.timeline.sort_by_key(|event| event.at_ms);
        if self.timeline.len() > MAX_EVENTS {
            let dropped = self.timeline.len() - MAX_EVENTS + 1;
            // The beginning and the end say most.
            let at_ms = self.timeline[MAX_EVENTS / 2].at_ms;
            let what = format!("{dropped} events are left out");
            let event = DrillEvent { at_ms, who: "drill".to_owned(), what };
            self.timeline.splice(MAX_EVENTS / 2..MAX_EVENTS / 2 + dropped, [event]);
        }
        self.members.truncate(MAX_MEMBERS);
        self.probes.truncate(MAX_MEMBERS);
        for probed in &mut self.probes {
            let found = &mut probed.found;
            while found.outages.len() > MAX_OUTAGES {
                let lengths = found.outages.iter().map(|outage| outage.length_ms()).enumerate();
                if let Some((shortest, _)) = lengths.min_by_key(|(_, length)| *length) {
                    found.outages.remove(shortest);
                    found.omitted += 1;
                }
            }
            clean(&mut found.target, MAX_TEXT);
            found.outages.iter_mut().for_each(|outage| clean(&mut outage.reason, MAX_TEXT));
        }
        let texts = [&mut self.target, &mut self.by, &mut self.sentence, &mut self.software];
        texts.into_iter().chain(&mut self.reason).for_each(|text| clean(text, MAX_TEXT));
        for check in &mut self.checks {
            clean(&mut check.sentence, MAX_TEXT);
        }
        for event in &mut self.timeline {
            clean(&mut event.who, MAX_NAME);
            clean(&mut event.what, MAX_TEXT);
        }
        for change in &mut self.moves {
            clean(&mut change.sentence, MAX_TEXT);
            clean(&mut change.decided_by, MAX_NAME);
        }
        for member in &mut self.members {
            let texts = [&mut member.role, &mut member.health, &mut member.software];
            texts.into_iter().for_each(|text| clean(text, MAX_TEXT));
        }
        self
    }
}

/// Masks passwords and control characters, and shortens.
fn clean(text: &mut String, most: usize) {
    *text = shown(&crate::mask::mask(text)).into_owned();
    cut(text, most);
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use serde_json::json;

    use super::*;

    /// A report with something in each part.
    pub(crate) fn sample() -> DrillReport {
        let who = |member: &str, site: &str| json!({ "member": member, "site": site });
        let participant = |member: &str, site: &str, role: &str| {
            json!({ "member": member, "site": site, "role": role, "health": "healthy", "software": "dr-worker 0.1.0",
                    "config_version": 3 })
        };
        let probed = |member: &str, site: &str, first: u64, served: Option<u64>| {
            json!({
                "member": member, "site": site, "seen_at_ms": 40, "outage_ms": served.unwrap_or(9_900) - first,
                "serves": served.is_some(), "target": "http://orders.example:8080/health", "interval_ms": 100,
                "first_ms": 0, "last_ms": 9_900, "count": 99, "failed": 12, "longest_gap_ms": 1_400,
                "outages": [{ "served_until_ms": first - 90, "first_ms": first, "last_ms": first + 1_100,
                              "served_from_ms": served, "count": 12, "reason": "connection refused" }],
                "last_success_ms": 9_900,
            })
        };
        let (east, west) = (who("east-1", "east"), who("west-1", "west"));
        let change = |from: &serde_json::Value, to: &serde_json::Value, term: u64, back: bool, at_ms: u64| {
            json!({
                "from": from, "to": to, "term": term, "back": back, "cause": "switchover",
                "sentence": format!("{} follows {}, on request", to["member"], from["member"]), "decided_by": "east-2",
                "at_ms": at_ms, "ready_at_ms": at_ms + 1_200,
                "phases": { "detect_ms": 12, "decide_ms": 30, "release_ms": 480, "acquire_ms": 25, "takeover_ms": 610,
                            "ready_ms": 90 },
            })
        };
        serde_json::from_value(json!({
            "v": 1, "run": "d-20261126T021500Z", "job": "orders", "plan": "quarterly", "mode": "switchover",
            "target": "site west", "by": "ann@desk", "reason": "quarterly <practice>", "started_ms": 1_795_659_300_000_u64,
            "ended_ms": 1_795_659_310_400_u64, "outcome": "passed",
            "sentence": "west-1 of site west took over from east-1 of site east, and the job was moved back",
            "from": east, "to": west,
            "phases": { "detect_ms": 12, "decide_ms": 30, "release_ms": 480, "acquire_ms": 25, "takeover_ms": 610,
                        "ready_ms": 90 },
            "outage_ms": 1_310,
            "objectives": [
                { "name": "rto", "most_ms": 30_000, "measured_ms": 1_310, "passed": true,
                  "sentence": "the longest outage was 1.310 s, and 30 s are allowed" },
                { "name": "rpo", "most_ms": 5_000, "measured_ms": null, "passed": false,
                  "sentence": "west-1 has no attribute lag" },
            ],
            "moves": [change(&east, &west, 4, false, 1_000), change(&west, &east, 5, true, 7_200)],
            "probes": [probed("east-2", "east", 1_180, Some(2_490)), probed("west-2", "west", 1_200, None)],
            "checks": [
                { "name": "leader", "passed": true, "sentence": "east-1 of site east is READY in term 3" },
                { "name": "hold", "passed": true, "sentence": "the election is not on hold" },
            ],
            "timeline": [
                { "at_ms": 0, "who": "drill", "what": "began: switchover to site west" },
                { "at_ms": 1_000, "who": "drill", "what": "requested a switchover to site west" },
                { "at_ms": 1_042, "who": "election", "what": "decided term 4: west-1 follows east-1, on request" },
                { "at_ms": 2_200, "who": "west-1", "what": "is READY in term 4" },
                { "at_ms": 10_400, "who": "drill", "what": "ended" },
            ],
            "members": [participant("east-1", "east", "leader"), participant("east-2", "east", "standby"),
                        participant("west-1", "west", "standby"), participant("west-2", "west", "standby")],
            "software": "dr-worker 0.1.0",
        }))
        .unwrap()
    }

    #[test]
    fn a_report_is_kept_as_it_is_and_bounded() {
        let report = sample();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<DrillReport>(&text).unwrap(), report);
        assert_eq!(report.clone().bounded(), report);

        let mut large = report;
        let event =
            DrillEvent { at_ms: 5, who: "x\u{1b}".repeat(900), what: "postgres://u:p@h/ \u{7}".repeat(900) };
        large.timeline = vec![event; 900];
        large.members = vec![large.members[0].clone(); 900];
        let mut probed = large.probes[0].clone();
        probed.found.outages = vec![probed.found.outages[0].clone(); 900];
        large.probes = vec![probed; 900];
        large.reason = Some("\u{1b}[2J".to_owned());
        let bounded = large.bounded();
        let text = serde_json::to_vec(&bounded).unwrap();
        assert!(text.len() < 100_000, "{}", text.len());
        assert_eq!(bounded.timeline.len(), MAX_EVENTS);
        assert!(bounded.timeline.iter().any(|event| event.what.contains("821 events are left out")));
        assert_eq!(bounded.reason.as_deref(), Some("\\u{1b}[2J"));
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("u:p") && !text.contains("\\u001b"));
    }

    #[test]
    fn an_outcome_of_a_later_release_is_read() {
        assert_eq!(serde_json::from_str::<DrillOutcome>("\"adjourned\"").unwrap(), DrillOutcome::Unknown);
        assert_eq!(serde_json::to_string(&DrillOutcome::Passed).unwrap(), "\"passed\"");
    }
}
