use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Cause, Given, Named, Previous, RequestRef, Slot,
    format::{is_zero, shorten},
};
use crate::{
    ids::{Ballot, MemberId, SiteId},
    time::APART_MS,
};

/// The decision in `leader/elected`. Written by compare-and-set only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Elected {
    /// Format version.
    pub v: u32,
    /// Grows by one with each decision.
    pub term: u64,
    /// Who should lead each slot, why, and who follows.
    pub slots: Vec<Slot>,
    /// Who may not be named for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
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
    /// Who wrote it: a member, or an operator.
    pub decided_by: String,
    /// The creation of the latest request that has been decided, in this term or in one before:
    /// what was created at or before that is never decided a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request: Option<i64>,
}

/// What a decision may hold at the most, so that it fits into [`MAX_RECORD`](super::MAX_RECORD) whatever
/// the names and however many members and slots there are: a record that outgrew its limit would stop the
/// election for good.
pub(crate) mod most {
    /// Bytes of the sentences of all slots together, and of one.
    const SENTENCES: usize = 2560;
    const SENTENCE: usize = 500;
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
    const LINES: usize = 32;

    /// How long a sentence may be where there are so many slots.
    pub(super) fn sentence(slots: usize) -> usize {
        (SENTENCES / slots.max(1)).min(SENTENCE)
    }

    /// How many who follow are named for each of so many slots.
    pub(super) fn line(slots: usize) -> usize {
        (LINES / slots.max(1)).clamp(2, LINE)
    }

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
        for slot in &mut self.slots {
            shorten(&mut slot.given.sentence, most::sentence(slots));
            keep_last(&mut slot.attempts, most::attempts(slots));
            keep_last(&mut slot.obeyed, most::obeyed(slots));
            slot.succession.truncate(most::line(slots));
        }
        self
    }

    // ---- its slots ----

    /// Who is named for `slot`.
    pub fn named(&self, slot: usize) -> Option<&Named> {
        self.slots.get(slot)?.named.as_ref()
    }

    /// Everyone who is named, with the slot that it is named for.
    pub fn leaders(&self) -> impl Iterator<Item = (usize, &Named)> {
        self.slots.iter().enumerate().filter_map(|(slot, s)| Some((slot, s.named.as_ref()?)))
    }

    /// The slot that `ballot` is named for: one at most.
    pub fn slot_of(&self, ballot: &Ballot) -> Option<usize> {
        self.leaders().find(|(_, named)| named.ballot == *ballot).map(|(slot, _)| slot)
    }

    /// The term in which `slot` was decided. A leader goes by this, and not by the
    /// record's own term, which grows with the decisions about other slots, too.
    pub fn term_of(&self, slot: usize) -> u64 {
        self.given(slot).map_or(self.term, |given| given.term)
    }

    /// What was decided of `slot`, if there is such a slot: now, or when a decision was about it last.
    pub fn given(&self, slot: usize) -> Option<&Given> {
        self.slots.get(slot).map(|slot| &slot.given)
    }

    /// What was decided in this very term; none where that only took slots away.
    pub fn latest(&self) -> Option<&Given> {
        self.slots.iter().map(|slot| &slot.given).find(|given| given.term == self.term)
    }

    /// Why this term began.
    pub fn cause(&self) -> Cause {
        self.latest().map_or(Cause::SlotsChanged, |given| given.cause)
    }

    /// The decision of this term in words.
    pub fn sentence(&self) -> String {
        let slots = self.slots.len();
        self.latest().map_or_else(|| format!("there are {slots} slots now"), |given| given.sentence.clone())
    }

    /// The slot that the latest decision for this request was about, unless a later one
    /// was about the same slot.
    pub fn slot_for(&self, request: &RequestRef) -> Option<usize> {
        self.slots.iter().position(|slot| slot.given.request.as_ref() == Some(request))
    }

    /// Who follows if the leader of `slot` vanishes, first in line first.
    pub fn line_of(&self, slot: usize) -> &[Named] {
        self.slots.get(slot).map_or(&[], |slot| &slot.succession)
    }

    /// The place of `ballot` in the line of `slot`.
    pub fn place_in_line(&self, slot: usize, ballot: &Ballot) -> Option<usize> {
        self.line_of(slot).iter().position(|n| n.ballot == *ballot)
    }

    /// Who leads `slot` now, or who led it before.
    pub(crate) fn led_before(&self, slot: usize) -> Option<Previous> {
        self.slots.get(slot).and_then(Slot::led_before)
    }

    // ---- what is remembered ----

    /// When a decision that nobody ordered was taken, for whichever slot.
    pub fn all_attempts(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flat_map(|slot| &slot.attempts).copied()
    }

    /// Whether `ballot` is excluded at `unix_ms`.
    pub fn excluded(&self, ballot: &Ballot, unix_ms: u64) -> Option<&Exclusion> {
        self.exclusions.iter().find(|e| e.ballot == *ballot && e.holds_at(unix_ms))
    }
}

/// A ballot that may not be named for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
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
    /// This incarnation is not named until then.
    pub fn new(member: MemberId, ballot: Ballot, until_ms: u64, reason: String) -> Self {
        Self { member, ballot, since_ms: 0, until_ms, reason }
    }

    /// Whether it holds at `unix_ms`. One that begins in the future was stamped by a clock that was
    /// wrong, and does not.
    pub fn holds_at(&self, unix_ms: u64) -> bool {
        self.since_ms <= unix_ms.saturating_add(APART_MS) && unix_ms < self.until_ms
    }
}

/// A leadership that a member could not take over or keep up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
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

impl Failure {
    /// This member failed in that term.
    pub fn new(member: MemberId, cause: String, term: u64, at_ms: u64) -> Self {
        Self { member, at_ms, cause, term }
    }
}

/// A site that has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MAX_SLOTS, Record as _, Remembered, VERSION};

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
            given: given(rng),
            succession: line(rng),
            attempts: vec![u64::MAX; many],
            obeyed: vec![u64::MAX; many],
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
            v: VERSION,
            term: u64::MAX,
            slots: (0..slots).map(|_| slot(rng)).collect(),
            exclusions: (0..size(rng, many.min(100))).map(|_| exclusion(rng)).collect(),
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
            decided_by: text(rng),
            last_request: Some(i64::MAX),
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
    fn half_a_slot_is_garbage_and_not_an_empty_one() {
        let elected = as_large_as_can_be(&mut fastrand::Rng::with_seed(7), false).bounded();
        let mut json = serde_json::to_value(&elected).unwrap();
        let read = |json: &serde_json::Value| Elected::decode("/elected", json.to_string().as_bytes());
        assert_eq!(read(&json).unwrap(), elected);
        json["slots"][0]["named"] = serde_json::Value::Null;
        assert_eq!(read(&json).unwrap().named(0), None);
        json["slots"][0]["named"] = serde_json::json!({ "member": "a", "ballot": "x-0000000001" });
        assert!(read(&json).is_err(), "it has no site");
        json["slots"][0].as_object_mut().unwrap().remove("named");
        assert!(read(&json).is_err(), "nothing says that nobody is named");
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
