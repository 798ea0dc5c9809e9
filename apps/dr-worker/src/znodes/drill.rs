//! The records of a drill: the order, and the members' answers.

use std::time::Duration;

use election_core::{
    config::{MemberId, SiteId},
    internals::{
        record::{Record, VERSION, limits},
        text,
    },
};
use serde::{Deserialize, Serialize};

use super::{is_false, is_zero, shortened};

/// A drill under way, in `drill/order`: a practised failover of one job. At most one per election: it is created only if
/// none exists.
///
/// Everything in it ends by itself. A member forgets the order when its znode is deleted, when its wall clock has reached
/// `until_ms`, or when `until_ms - at_ms` have passed since the member first saw it, whichever comes first. So a member
/// whose wall clock is wrong obeys it for too short a time, never for longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillOrder {
    /// Format version.
    pub v: u32,
    /// The id of the run, which no other run has. Answers name it.
    #[serde(with = "text::line")]
    pub run: String,
    /// The operator.
    #[serde(default)]
    #[serde(with = "text::line")]
    pub by: String,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    pub reason: Option<String>,
    /// When it was given, in milliseconds since the Unix epoch, by the clock of the operator's machine.
    #[serde(with = "limits::ms")]
    pub at_ms: u64,
    /// When every member forgets it, by the same clock.
    #[serde(with = "limits::ms")]
    pub until_ms: u64,
    /// What is practised.
    pub mode: DrillMode,
    /// The members that carry it out: of a rehearsal and of `kill-standby` the standby members, of `kill-job` and
    /// `kill-worker` the leader, of `cut-site` all workers of the site. Of a switchover those that are to agree to it; a request moves the leadership.
    /// Other members only probe.
    #[serde(default)]
    pub members: Vec<MemberId>,
    /// Whether they carry it out now. Before that they only agree or refuse, and probe: the program that gave the order sets
    /// it once all of them have agreed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub go: bool,
    /// How long a cut lasts, in milliseconds from its beginning on each member; until the order ends if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub cut_ms: Option<u64>,
    /// Whether the job's service is probed from each site, as each member's own configuration says.
    #[serde(default, skip_serializing_if = "is_false")]
    pub probe: bool,
}

/// Declares the modes: name, word in records, commands and configuration, and what it means.
macro_rules! modes {
    ($($(#[doc = $doc:literal])* $mode:ident = $word:literal,)*) => {
        /// What a drill practises.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum DrillMode {
            $($(#[doc = $doc])* #[serde(rename = $word)] $mode,)*
            /// One that this program does not know. A member refuses it.
            #[serde(rename = "unknown", other)]
            Unknown,
        }

        impl DrillMode {
            /// All modes that this program knows.
            pub const ALL: &[Self] = &[$(Self::$mode),*];

            /// The same with their words.
            pub const WORDS: &[(&str, Self)] = &[$(($word, Self::$mode)),*];

            /// Its name in records, commands and configuration.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$mode => $word,)*
                    Self::Unknown => "unknown",
                }
            }

            /// What it means, in a sentence.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$mode => concat!($($doc),*),)*
                    Self::Unknown => "",
                }
            }
        }
    };
}

modes! {
    /// A standby member starts the job without a token and stops it again. The leader serves on.
    Rehearse = "rehearse",
    /// A request moves the leadership. The members only agree to it and probe.
    Switchover = "switchover",
    /// A member that does not lead kills the process of its standby. The leader serves on.
    KillStandby = "kill-standby",
    /// The leader kills its job's main process.
    KillJob = "kill-job",
    /// The leader's worker kills itself.
    KillWorker = "kill-worker",
    /// The workers of a site answer nothing and use no connection to ZooKeeper for a time.
    CutSite = "cut-site",
}

impl DrillMode {
    /// Whether the leader serves on: a member that does not lead carries it out alone.
    pub const fn spares_leader(self) -> bool {
        matches!(self, Self::Rehearse | Self::KillStandby)
    }

    /// Whether members cause a fault of the leader.
    pub const fn harms_leader(self) -> bool {
        matches!(self, Self::KillJob | Self::KillWorker | Self::CutSite)
    }
}

impl DrillOrder {
    /// The longest time for which an order can be valid.
    pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

    /// An order to these members to agree, valid for `valid_for` (at most [`LONGEST`](Self::LONGEST)), without probes or a
    /// time of a cut.
    pub fn new(
        run: &str,
        mode: DrillMode,
        members: Vec<MemberId>,
        by: &str,
        at_ms: u64,
        valid_for: Duration,
    ) -> Self {
        Self {
            v: VERSION,
            run: run.to_owned(),
            by: shortened(by, 500),
            reason: None,
            at_ms,
            until_ms: at_ms.saturating_add(limits::millis(valid_for.min(Self::LONGEST))),
            mode,
            members,
            go: false,
            cut_ms: None,
            probe: false,
        }
    }

    /// How long it is valid after a member has first seen it, at most.
    pub fn valid_for(&self) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(self.at_ms)).min(Self::LONGEST)
    }

    /// How long it is valid for a member that sees it first at `unix_ms`, by its wall clock.
    pub fn remaining(&self, unix_ms: u64) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(unix_ms)).min(self.valid_for())
    }

    /// Whether its time is over, by the wall clock.
    pub fn is_over(&self, unix_ms: u64) -> bool {
        self.until_ms <= unix_ms
    }

    /// Whether this member carries it out.
    pub fn concerns(&self, member: &MemberId) -> bool {
        self.members.contains(member)
    }
}

/// What a member reports about a drill, in `drill/answers/<member>`. A member writes it again at each step, every two
/// seconds while it probes, and for the last time when it has forgotten the order: it is [`closed`](Self::closed) then.
/// While a member is cut off it can't write; it does so when it is back. Who ends a drill removes the order, and then
/// waits for a while until the answers are closed.
///
/// A member that is not named in the order answers only if it probes: `accepted`, and `ended` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillAnswer {
    /// Format version.
    pub v: u32,
    /// The run of the order that is answered. An answer to another run is left over.
    #[serde(with = "text::line")]
    pub run: String,
    /// The member.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
    /// The version of its program.
    #[serde(default)]
    #[serde(with = "text::line")]
    pub version: String,
    /// When it first saw the order, in milliseconds since the Unix epoch, by its wall clock. All other times are counted
    /// from here, by its steady clock.
    #[serde(with = "limits::ms")]
    pub seen_ms: u64,
    /// Its steps, oldest first. The last one is its present state.
    #[serde(default)]
    pub steps: Vec<DrillStep>,
    /// What its probes of the job's service found, if it probes for its site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<DrillProbes>,
    /// Whether the member has forgotten the order, and writes nothing more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub closed: bool,
}

/// A step of a member in a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillStep {
    /// The step.
    pub state: DrillState,
    /// When, in milliseconds after the member first saw the order.
    #[serde(with = "limits::ms")]
    pub after_ms: u64,
    /// Why it refused or failed; with other steps what was done, such as the process that was killed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    pub reason: Option<String>,
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrillState {
    /// It carries the order out once that has [`go`](DrillOrder::go).
    Accepted,
    /// It does not carry it out. The reason says why. Final.
    Refused,
    /// It has begun: the rehearsal's job starts; the job, the worker or the connections are about to be killed or cut.
    Started,
    /// The rehearsal's job is ready, or the job or the standby that was killed is ready again.
    Ready,
    /// It has carried the order out, and everything is as before: the rehearsal's job has ended, the cut is over, the
    /// worker runs again. Final.
    Ended,
    /// It could not carry the order out. The reason says why. Final.
    Failed,
    /// One that this program does not know.
    #[serde(other)]
    Unknown,
}

impl DrillState {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Started => "started",
            Self::Ready => "ready",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Whether no step follows.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Refused | Self::Ended | Self::Failed)
    }
}

impl DrillAnswer {
    /// More steps than a member can take in one run.
    pub const MAX_STEPS: usize = 16;

    /// The answer of a member that sees the order now, without a step.
    pub fn new(order: &DrillOrder, member: MemberId, site: SiteId, version: &str, seen_ms: u64) -> Self {
        Self {
            v: VERSION,
            run: order.run.clone(),
            member,
            site,
            version: version.to_owned(),
            seen_ms,
            steps: Vec::new(),
            probes: None,
            closed: false,
        }
    }

    /// Adds a step. Nothing follows a final one.
    pub fn add(&mut self, state: DrillState, after_ms: u64, reason: Option<String>) {
        if self.steps.len() >= Self::MAX_STEPS || self.is_final() {
            return;
        }
        let reason = reason.map(|reason| shortened(&reason, 500));
        self.steps.push(DrillStep { state, after_ms, reason });
    }

    /// Its present state; `None` before its first step.
    pub fn state(&self) -> Option<DrillState> {
        self.steps.last().map(|step| step.state)
    }

    /// Whether it has ended.
    pub fn is_final(&self) -> bool {
        self.state().is_some_and(DrillState::is_final)
    }

    /// The step to this state.
    pub fn step(&self, state: DrillState) -> Option<&DrillStep> {
        self.steps.iter().find(|step| step.state == state)
    }

    /// The wall clock of the member at a time of its answer, in milliseconds since the Unix epoch.
    pub fn unix_ms(&self, after_ms: u64) -> u64 {
        self.seen_ms.saturating_add(after_ms)
    }
}

/// What the probes of one site found. Times are in milliseconds after the member first saw the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillProbes {
    /// What was probed, as text: `http://orders.example:8080/health`.
    #[serde(with = "text::line")]
    pub target: String,
    /// The time between two probes.
    #[serde(with = "limits::ms")]
    pub interval_ms: u64,
    /// When the first one began.
    #[serde(with = "limits::ms")]
    pub first_ms: u64,
    /// When the last one ended.
    #[serde(with = "limits::ms")]
    pub last_ms: u64,
    /// How many have ended.
    #[serde(with = "limits::count")]
    pub count: u64,
    /// How many of them failed.
    #[serde(with = "limits::count")]
    pub failed: u64,
    /// The longest time from the end of a success to the end of the next one; to the last probe if none followed.
    #[serde(with = "limits::ms")]
    pub longest_gap_ms: u64,
    /// The intervals in which all probes failed, oldest first: the longest [`MAX_OUTAGES`](Self::MAX_OUTAGES) of them.
    #[serde(default)]
    pub outages: Vec<DrillOutage>,
    /// How many shorter ones are left out.
    #[serde(default, skip_serializing_if = "is_zero", with = "limits::count")]
    pub omitted: u64,
    /// When the last success ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub last_success_ms: Option<u64>,
}

/// An interval in which all probes of a site failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillOutage {
    /// When the last success before it ended; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub served_until_ms: Option<u64>,
    /// When the first failed probe ended.
    #[serde(with = "limits::ms")]
    pub first_ms: u64,
    /// When the last failed probe ended.
    #[serde(with = "limits::ms")]
    pub last_ms: u64,
    /// When the success after it ended; `None` if none has come.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub served_from_ms: Option<u64>,
    /// How many probes failed.
    #[serde(with = "limits::count")]
    pub count: u64,
    /// Why the first one failed.
    #[serde(default)]
    #[serde(with = "text::line")]
    pub reason: String,
}

impl DrillOutage {
    /// From the first failure to the success after it, or to the last failure.
    pub fn length_ms(&self) -> u64 {
        self.served_from_ms.unwrap_or(self.last_ms).saturating_sub(self.first_ms)
    }
}

impl DrillProbes {
    /// How many outages are kept.
    pub const MAX_OUTAGES: usize = 50;

    /// No probe yet.
    pub fn new(target: &str, interval: Duration, first_ms: u64) -> Self {
        Self {
            target: shortened(target, 300),
            interval_ms: limits::millis(interval),
            first_ms,
            last_ms: first_ms,
            count: 0,
            failed: 0,
            longest_gap_ms: 0,
            outages: Vec::new(),
            omitted: 0,
            last_success_ms: None,
        }
    }

    /// A probe has ended `at_ms`, with this outcome. Probes are added in the order in which they end.
    pub fn add(&mut self, at_ms: u64, outcome: Result<(), &str>) {
        let open = |outage: &&mut DrillOutage| outage.served_from_ms.is_none();
        let outage = self.outages.last_mut().filter(open);
        (self.count, self.last_ms) = (self.count + 1, at_ms);
        let gap = at_ms.saturating_sub(self.last_success_ms.unwrap_or(self.first_ms));
        self.longest_gap_ms = self.longest_gap_ms.max(gap);
        match (outcome, outage) {
            (Ok(()), outage) => {
                if let Some(outage) = outage {
                    outage.served_from_ms = Some(at_ms);
                    self.keep_longest();
                }
                self.last_success_ms = Some(at_ms);
            }
            (Err(_), Some(outage)) => {
                (outage.last_ms, outage.count) = (at_ms, outage.count + 1);
                self.failed += 1;
            }
            (Err(reason), None) => {
                self.outages.push(DrillOutage {
                    served_until_ms: self.last_success_ms,
                    first_ms: at_ms,
                    last_ms: at_ms,
                    served_from_ms: None,
                    count: 1,
                    reason: shortened(reason, 200),
                });
                self.failed += 1;
            }
        }
    }

    /// Only whole outages are dropped: the present one may become the longest.
    fn keep_longest(&mut self) {
        if self.outages.len() <= Self::MAX_OUTAGES {
            return;
        }
        let lengths = self.outages.iter().map(DrillOutage::length_ms).enumerate();
        if let Some((shortest, _)) = lengths.min_by_key(|(_, length)| *length) {
            self.outages.remove(shortest);
            self.omitted += 1;
        }
    }
}

impl Record for DrillOrder {
    fn version(&self) -> u32 {
        self.v
    }
}

impl Record for DrillAnswer {
    fn version(&self) -> u32 {
        self.v
    }
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::MAX_RECORD;

    use super::*;

    fn order() -> DrillOrder {
        let members = vec!["west-1".parse().unwrap()];
        DrillOrder::new("r1", DrillMode::Rehearse, members, "alice", 1_000_000, Duration::from_secs(60))
    }

    fn answer() -> DrillAnswer {
        DrillAnswer::new(&order(), "west-1".parse().unwrap(), "west".parse().unwrap(), "1.0.0", 1_000_100)
    }

    #[test]
    fn a_wrong_wall_clock_shortens_an_order_and_never_lengthens_it() {
        let order = order();
        assert_eq!(order.remaining(1_010_000), Duration::from_secs(50));
        // The member's clock is a day late.
        assert_eq!(order.remaining(0), Duration::from_secs(60));
        assert_eq!(order.remaining(1_060_000), Duration::ZERO);
        assert!(order.is_over(1_060_000) && !order.is_over(1_059_999));
        let forever = DrillOrder { until_ms: limits::MAX_MS, ..order };
        assert_eq!(forever.remaining(0), DrillOrder::LONGEST);
    }

    #[test]
    fn unknown_modes_and_fields_are_read() {
        let text = r#"{"v":1,"run":"x","at_ms":1,"until_ms":2,"mode":"flood","more":[1]}"#;
        let order = DrillOrder::decode("/o", text.as_bytes()).unwrap();
        assert_eq!((order.mode, order.members.len(), order.probe), (DrillMode::Unknown, 0, false));
        for &mode in DrillMode::ALL {
            let text = format!("\"{}\"", mode.as_str());
            assert_eq!(serde_json::from_str::<DrillMode>(&text).unwrap(), mode);
        }
    }

    #[test]
    fn nothing_follows_a_final_step() {
        let mut answer = answer();
        answer.add(DrillState::Accepted, 1, None);
        answer.add(DrillState::Refused, 2, Some("x".repeat(1000)));
        answer.add(DrillState::Started, 3, None);
        assert_eq!((answer.state(), answer.steps.len()), (Some(DrillState::Refused), 2));
        assert!(answer.step(DrillState::Refused).unwrap().reason.as_ref().unwrap().len() <= 500);
    }

    #[test]
    fn probes_become_outages() {
        let mut probes = DrillProbes::new("tcp", Duration::from_millis(100), 10);
        for (at, passed) in [(20, true), (120, false), (220, false), (320, true), (420, true), (520, false)] {
            probes.add(at, if passed { Ok(()) } else { Err("refused") });
        }
        let [first, second] = &probes.outages[..] else { panic!("{probes:?}") };
        assert_eq!((first.served_until_ms, first.first_ms, first.last_ms), (Some(20), 120, 220));
        assert_eq!((first.served_from_ms, first.count, first.length_ms()), (Some(320), 2, 200));
        assert_eq!((second.served_until_ms, second.served_from_ms, second.count), (Some(420), None, 1));
        assert_eq!((probes.count, probes.failed, probes.longest_gap_ms), (6, 3, 300));
    }

    #[test]
    fn the_longest_outages_are_kept_and_the_record_stays_small() {
        let mut probes = DrillProbes::new(&"t".repeat(1000), Duration::from_millis(100), 0);
        let mut at = 0;
        for length in 0..200 {
            for _ in 0..=length {
                at += 100;
                probes.add(at, Err(&"why ".repeat(500)));
            }
            at += 100;
            probes.add(at, Ok(()));
        }
        assert_eq!(probes.outages.len(), DrillProbes::MAX_OUTAGES);
        assert_eq!(probes.omitted, 150);
        assert!(probes.outages.iter().all(|outage| outage.count > 150));
        let mut answer = answer();
        for _ in 0..100 {
            answer.add(DrillState::Accepted, at, Some("\\".repeat(1000)));
        }
        answer.probes = Some(probes);
        assert!(answer.encode("/a").unwrap().len() < MAX_RECORD);
    }
}
