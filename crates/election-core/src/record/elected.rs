use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{RequestRef, Slot, is_zero, shorten};
use crate::{
    ids::{Ballot, MemberId, SiteId},
    time::APART_MS,
};

/// The decision in `leader/elected`. Written by compare-and-set only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Elected {
    /// Format version.
    pub v: u32,
    /// Grows by one with each decision.
    pub term: u64,
    /// Who should lead each slot.
    pub slots: Vec<Slot>,
    /// Who follows, first in line first, if a leader vanishes; a slot can have a line
    /// of its own.
    #[serde(default)]
    pub succession: Vec<Named>,
    /// Who may not be named for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// When decisions that nobody ordered were taken lately for the first slot, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<u64>,
    /// The same for the other slots, by slot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slot_attempts: BTreeMap<usize, Vec<u64>>,
    /// When leadership moved for standing orders lately, by slot, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub obeyed: BTreeMap<usize, Vec<u64>>,
    /// Which members have failed lately, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Which sites have failed as a whole lately, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_failures: Vec<SiteFailure>,
    /// When each site lost a leader lately, by site, in milliseconds since the Unix epoch: not where that was planned or an
    /// operator's doing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<SiteId, Vec<u64>>,
    /// Up to when an operator has looked at what went wrong, in milliseconds since the Unix epoch: failures of the job until
    /// then hold up no takeover.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub acknowledged_at_ms: u64,
    /// The youngest member when this term began: one that is younger has joined since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub youngest: Option<Ballot>,
    /// Added to the czxid to make the fencing token. Only an operator raises it, after
    /// the ensemble was restored from a copy.
    #[serde(default)]
    pub token_base: u64,
    /// Why this term began.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who wrote it: a member, or an operator.
    pub decided_by: String,
    /// When, in milliseconds since the Unix epoch.
    pub decided_at_ms: u64,
    /// When the deciding side noticed that there was something to decide.
    #[serde(default)]
    pub noticed_at_ms: u64,
    /// The operator's request that this term carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRef>,
    /// The creation of the latest request that has been decided, in this term or in one before:
    /// what was created at or before that is never decided a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request: Option<i64>,
    /// Who led before this term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// What a decision may hold at the most, so that it fits into [`MAX_RECORD`](super::MAX_RECORD) whatever
/// the names and however many members and slots there are: a record that outgrew its limit would stop the
/// election for good.
pub(crate) mod most {
    /// Bytes of the sentence of the decision, and of one of a slot's own.
    pub(super) const SENTENCE: usize = 500;
    pub(super) const SLOT_SENTENCE: usize = 160;
    /// Bytes of any other reason.
    pub(super) const REASON: usize = 100;
    /// Bytes of the name of whoever decided.
    pub(super) const NAME: usize = crate::ids::MAX_NAME;
    pub(super) const EXCLUSIONS: usize = 14;
    pub(super) const FAILURES: usize = 15;
    pub(crate) const SITE_FAILURES: usize = 8;
    /// Sites whose losses are remembered, and times of each: more make the patience with it no longer.
    pub(super) const LOSERS: usize = 8;
    pub(super) const LOSSES: usize = 8;
    /// Of all slots together, but no more than this of one.
    const ATTEMPTS: usize = 160;
    const SLOT_ATTEMPTS: usize = 50;
    /// Moves for standing orders: of all slots together, but no more than this of one.
    const OBEYED: usize = 80;
    const SLOT_OBEYED: usize = 10;
    /// Of one slot: more can hardly vanish at once.
    pub(crate) const LINE: usize = 8;
    /// Of all slots together, but at least two of each.
    pub(super) const LINES: usize = 32;

    /// How many attempts are kept of each of so many slots.
    pub(crate) fn attempts(slots: usize) -> usize {
        (ATTEMPTS / slots.max(1)).min(SLOT_ATTEMPTS)
    }

    /// How many moves for standing orders are kept of each of so many slots.
    pub(crate) fn obeyed(slots: usize) -> usize {
        (OBEYED / slots.max(1)).min(SLOT_OBEYED)
    }
}

/// Keeps the newest.
fn keep_last<T>(all: &mut Vec<T>, most: usize) {
    let surplus = all.len().saturating_sub(most);
    all.drain(..surplus);
}

impl Elected {
    /// The same, no larger than a decision may be: the newest of everything, the rest of what is long left out.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        shorten(&mut self.sentence, most::SENTENCE);
        shorten(&mut self.decided_by, most::NAME);
        keep_last(&mut self.exclusions, most::EXCLUSIONS);
        self.exclusions.iter_mut().for_each(|e| shorten(&mut e.reason, most::REASON));
        keep_last(&mut self.failures, most::FAILURES);
        self.failures.iter_mut().for_each(|f| shorten(&mut f.cause, most::REASON));
        keep_last(&mut self.site_failures, most::SITE_FAILURES);
        for failure in &mut self.site_failures {
            shorten(&mut failure.why, most::REASON);
            failure.overruled.iter_mut().for_each(|by| shorten(by, most::NAME));
        }
        self.losses.values_mut().for_each(|times| keep_last(times, most::LOSSES));
        while self.losses.len() > most::LOSERS {
            let oldest =
                self.losses.iter().min_by_key(|(_, times)| times.last()).map(|(site, _)| site.clone());
            oldest.map(|site| self.losses.remove(&site));
        }
        let slots = self.slots.len();
        self.slot_attempts.retain(|slot, attempts| (1..slots).contains(slot) && !attempts.is_empty());
        let of_others = self.slot_attempts.values_mut();
        of_others.chain([&mut self.attempts]).for_each(|attempts| keep_last(attempts, most::attempts(slots)));
        self.obeyed.retain(|slot, moves| *slot < slots && !moves.is_empty());
        self.obeyed.values_mut().for_each(|moves| keep_last(moves, most::obeyed(slots)));
        let line = (most::LINES / self.slots.len().max(1)).clamp(2, most::LINE);
        self.succession.truncate(line);
        for slot in &mut self.slots {
            if let Some(given) = &mut slot.given {
                shorten(&mut given.sentence, most::SLOT_SENTENCE);
            }
            if let Some(succession) = &mut slot.succession {
                succession.truncate(line);
            }
        }
        self
    }

    /// The same, as a program reads it that knows this format.
    #[must_use]
    pub(crate) fn in_format(self, format: u32) -> Self {
        Self { v: format, cause: self.cause.in_format(format), ..self }
    }

    /// When decisions that nobody ordered were taken lately for this slot, oldest first.
    pub fn attempts_of(&self, slot: usize) -> &[u64] {
        match slot {
            0 => &self.attempts,
            _ => self.slot_attempts.get(&slot).map_or(&[], Vec::as_slice),
        }
    }

    /// The same, with other attempts for this slot.
    #[must_use]
    pub(crate) fn with_attempts(mut self, slot: usize, attempts: Vec<u64>) -> Self {
        match slot {
            0 => self.attempts = attempts,
            _ if attempts.is_empty() => _ = self.slot_attempts.remove(&slot),
            _ => _ = self.slot_attempts.insert(slot, attempts),
        }
        self
    }

    /// When this slot moved for standing orders lately, oldest first.
    pub fn obeyed_of(&self, slot: usize) -> &[u64] {
        self.obeyed.get(&slot).map_or(&[], Vec::as_slice)
    }

    /// The same, with other moves of this slot for standing orders.
    #[must_use]
    pub(crate) fn with_obeyed(mut self, slot: usize, moves: Vec<u64>) -> Self {
        match moves.is_empty() {
            true => _ = self.obeyed.remove(&slot),
            false => _ = self.obeyed.insert(slot, moves),
        }
        self
    }

    /// When a decision that nobody ordered was taken, for whichever slot.
    pub fn all_attempts(&self) -> impl Iterator<Item = u64> {
        self.attempts.iter().chain(self.slot_attempts.values().flatten()).copied()
    }

    /// Whether `ballot` is excluded at `unix_ms`.
    pub fn excluded(&self, ballot: &Ballot, unix_ms: u64) -> Option<&Exclusion> {
        self.exclusions.iter().find(|e| e.ballot == *ballot && e.holds_at(unix_ms))
    }
}

/// A member that is named, by its ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stands.
    pub site: SiteId,
}

/// A ballot that may not be named for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Exclusion {
    /// Whose.
    pub member: MemberId,
    /// Which incarnation: a repaired restart is somebody else.
    pub ballot: Ballot,
    /// Since when, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub since_ms: u64,
    /// Until when, in milliseconds since the Unix epoch.
    pub until_ms: u64,
    /// Why, in words.
    pub reason: String,
}

impl Exclusion {
    /// Whether it holds at `unix_ms`. One that begins in the future was stamped by a clock that was
    /// wrong, and does not.
    pub fn holds_at(&self, unix_ms: u64) -> bool {
        self.since_ms <= unix_ms.saturating_add(APART_MS) && unix_ms < self.until_ms
    }
}

/// A leadership that a member could not take over or keep up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Failure {
    /// Whose: the id, so that a restart does not forget it.
    pub member: MemberId,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The word for the [`Cause`] of the decision that followed; any text, for a later program
    /// may know more of them.
    pub cause: String,
    /// The term that it could not take over or keep up.
    #[serde(default)]
    pub term: u64,
}

/// A site that has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct SiteFailure {
    /// Which.
    pub site: SiteId,
    /// When that was noticed, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Why, in words.
    pub why: String,
    /// Whether it is over.
    #[serde(default)]
    pub over: bool,
    /// Who has said against the members of the site that it has not failed: that holds until they agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
}

/// The leader before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Previous {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stood.
    pub site: SiteId,
}

/// Why a decision is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// Nobody has been named yet.
    Startup,
    /// A candidate appeared where there was none.
    MemberJoined,
    /// The one who was named has vanished.
    LeaderLost,
    /// The one who was named is not fit any more.
    Unhealthy,
    /// The site of the one who was named has failed as a whole: an operator says so, or most of its
    /// own members.
    SiteFailed,
    /// Enough members have lost the one who was in office; the resource is fenced.
    Suspected,
    /// The one who was named did not take over in time, or failed to.
    TakeoverFailed,
    /// The work of the leader could not be kept running.
    WorkFailed,
    /// The leader gave up by its own wish, or its work was finished.
    Resigned,
    /// The leader was asked to leave, as by a signal to its process.
    LeaderShutdown,
    /// An operator planned it.
    Switchover,
    /// An operator forced it.
    Failover,
    /// Somebody else is better by enough, for long enough.
    BetterCandidate,
    /// An operator has raised the base of the tokens; whoever leads takes its office up
    /// anew.
    TokensRaised,
    /// The number of slots has been changed.
    SlotsChanged,
    /// An operator's standing order, or the configuration, says that the one who was
    /// named is not to lead.
    StandingOrder,
}

impl Cause {
    /// The same, as far as a program can say it that reads up to this format.
    pub(crate) const fn in_format(self, format: u32) -> Self {
        match self {
            Self::Suspected if format < 2 => Self::LeaderLost,
            Self::SiteFailed if format < 3 => Self::Unhealthy,
            Self::WorkFailed if format < 3 => Self::Resigned,
            Self::LeaderShutdown if format < 3 => Self::Resigned,
            Self::TokensRaised if format < 2 => Self::Switchover,
            Self::SlotsChanged if format < 2 => Self::MemberJoined,
            Self::StandingOrder if format < 3 => Self::BetterCandidate,
            cause => cause,
        }
    }

    /// Every cause, in the order of its definition.
    pub const ALL: [Self; 16] = [
        Self::Startup,
        Self::MemberJoined,
        Self::LeaderLost,
        Self::Unhealthy,
        Self::SiteFailed,
        Self::Suspected,
        Self::TakeoverFailed,
        Self::WorkFailed,
        Self::Resigned,
        Self::LeaderShutdown,
        Self::Switchover,
        Self::Failover,
        Self::BetterCandidate,
        Self::TokensRaised,
        Self::SlotsChanged,
        Self::StandingOrder,
    ];

    /// The word for it in records, metrics and the job's environment.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::MemberJoined => "member-joined",
            Self::LeaderLost => "leader-lost",
            Self::Unhealthy => "unhealthy",
            Self::SiteFailed => "site-failed",
            Self::Suspected => "suspected",
            Self::TakeoverFailed => "takeover-failed",
            Self::WorkFailed => "work-failed",
            Self::Resigned => "resigned",
            Self::LeaderShutdown => "leader-shutdown",
            Self::Switchover => "switchover",
            Self::Failover => "failover",
            Self::BetterCandidate => "better-candidate",
            Self::TokensRaised => "tokens-raised",
            Self::SlotsChanged => "slots-changed",
            Self::StandingOrder => "standing-order",
        }
    }

    /// Whether the leader before is to be counted as failed, so that a policy of
    /// 'another site than the failed leader's' applies.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::LeaderLost
                | Self::Unhealthy
                | Self::SiteFailed
                | Self::Suspected
                | Self::TakeoverFailed
                | Self::WorkFailed
                | Self::Failover
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Given, MAX_SLOTS, Record as _, Remembered};

    /// The longest name of its kind.
    fn name(number: usize) -> String {
        format!("{number:0>width$}", width = crate::ids::MAX_NAME)
    }

    fn who(number: usize) -> Named {
        let ballot = format!("{}-{number:010}", &name(number)[11..]);
        let (member, site) = (name(number).parse().unwrap(), name(number).parse().unwrap());
        Named { member, ballot: Ballot::new(ballot).unwrap(), site }
    }

    /// Sixteen slots, names as long as they can be, ten thousand members who have all failed and are all next in line,
    /// and sentences that tell all of that, in characters that JSON doubles.
    /// All of it, or as the dice say.
    fn as_large_as_can_be(rng: &mut fastrand::Rng, all: bool) -> Elected {
        let many = if all { 10_000 } else { rng.usize(0..=10_000) };
        let size = |rng: &mut fastrand::Rng, most: usize| if all { most } else { rng.usize(0..=most) };
        let text = |rng: &mut fastrand::Rng| {
            let letter = if all { "\"" } else { ["\"", "\\", "x", "ü", "€", "\u{1}"][rng.usize(..6)] };
            letter.repeat(size(rng, many))
        };
        let line = |rng: &mut fastrand::Rng| (0..size(rng, many.min(200))).map(who).collect::<Vec<_>>();
        let request = Some(RequestRef { czxid: i64::MAX, name: "r-2147483647".to_owned() });
        let given = |rng: &mut fastrand::Rng| Given {
            term: u64::MAX,
            cause: Cause::BetterCandidate,
            sentence: text(rng),
            decided_at_ms: u64::MAX,
            noticed_at_ms: u64::MAX,
            request: request.clone(),
            previous: Some(who(1).as_previous()),
        };
        let slots = size(rng, MAX_SLOTS).max(1);
        let slot = |rng: &mut fastrand::Rng| Slot {
            named: Some(who(2)),
            given: Some(Box::new(given(rng))),
            succession: Some(line(rng)),
        };
        let Named { member, ballot, site } = who(3);
        let exclusion = |rng: &mut fastrand::Rng| Exclusion {
            member: member.clone(),
            ballot: ballot.clone(),
            since_ms: u64::MAX,
            until_ms: u64::MAX,
            reason: text(rng),
        };
        Elected {
            v: super::super::NEWEST,
            term: u64::MAX,
            slots: (0..slots).map(|_| slot(rng)).collect(),
            succession: line(rng),
            exclusions: (0..size(rng, many.min(100))).map(|_| exclusion(rng)).collect(),
            attempts: vec![u64::MAX; many],
            slot_attempts: (0..2 * MAX_SLOTS).map(|slot| (slot, vec![u64::MAX; many])).collect(),
            obeyed: (0..2 * MAX_SLOTS).map(|slot| (slot, vec![u64::MAX; many])).collect(),
            failures: vec![
                Failure {
                    member: member.clone(),
                    at_ms: u64::MAX,
                    cause: text(rng),
                    term: u64::MAX
                };
                many.min(100)
            ],
            losses: (0..many.min(100))
                .map(|n| (SiteId::new(format!("{n:064}")).unwrap(), vec![u64::MAX; many]))
                .collect(),
            acknowledged_at_ms: u64::MAX,
            youngest: Some(ballot.clone()),
            site_failures: vec![
                SiteFailure {
                    site: site.clone(),
                    at_ms: u64::MAX,
                    why: text(rng),
                    over: false,
                    overruled: Some(text(rng)),
                };
                many.min(100)
            ],
            token_base: u64::MAX,
            cause: Cause::BetterCandidate,
            sentence: text(rng),
            decided_by: text(rng),
            decided_at_ms: u64::MAX,
            noticed_at_ms: u64::MAX,
            request: request.clone(),
            last_request: Some(i64::MAX),
            previous: Some(who(1).as_previous()),
        }
    }

    #[test]
    fn every_decision_fits_into_its_record() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let bounded = as_large_as_can_be(&mut rng, seed == 0).bounded();
            bounded.encode("/leader/elected").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(bounded.clone().bounded(), bounded, "seed {seed}: once is enough");
        }
    }

    #[test]
    fn the_word_for_a_cause_is_its_json() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{cause}\""));
        }
    }

    #[test]
    fn a_decision_with_a_lower_base_of_tokens_knew_nothing_of_what_is_remembered() {
        let elected = as_large_as_can_be(&mut fastrand::Rng::with_seed(1), true);
        let base = elected.token_base;
        let remembered = |token_base| Remembered {
            term: elected.term,
            mzxid: 5,
            token: base,
            token_base,
            last_request: None,
        };
        // The ensemble was restored, the term was reached again, and written later than what is remembered.
        let before = Elected { token_base: base - 1, ..elected.clone() };
        assert!(remembered(base).is_newer_than(&before, 6));
        assert!(!remembered(base).is_newer_than(&elected, 6));
    }
}
