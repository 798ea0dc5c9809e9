use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Cause, Given, MAX_SLOTS, Named, Previous, RequestRef, Slot,
    format::{Record, exact, is_default},
    limits,
};
use crate::{
    ids::{Ballot, MemberId, SiteId},
    text::shorten,
    time::APART_MS,
};

/// The decision in `leader/elected`. It is written by compare-and-set only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Elected {
    /// Format version.
    pub v: u32,
    /// Grows by one with each decision.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// The named leader of each slot, the reason, and the line of succession.
    #[serde(deserialize_with = "exact")]
    pub slots: Vec<Slot>,
    /// The members that may not be named for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// Members that have failed recently, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<MemberFailure>,
    /// Sites that have failed as a whole recently, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_failures: Vec<SiteFailure>,
    /// When each site lost a leader recently, in milliseconds since the Unix epoch. Planned moves and operators'
    /// commands do not count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "limits::ms")]
    pub losses: BTreeMap<SiteId, Vec<u64>>,
    /// The time of the latest acknowledgement by an operator, in milliseconds since the Unix epoch. Failures of the job
    /// until then do not delay a takeover.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::ms")]
    pub acknowledged_at_ms: u64,
    /// The youngest member when this term began. A younger member has joined since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub youngest: Option<Ballot>,
    /// Added to the czxid to make the fencing token. Only an operator raises it, after the ensemble was restored from a
    /// copy.
    #[serde(default, with = "limits::base")]
    pub token_base: u64,
    /// The author: a member or an operator.
    #[serde(with = "crate::text::line")]
    pub decided_by: String,
    /// The czxid of the latest request that has been decided, in this term or an earlier one. A request with this czxid
    /// or a lower one is never decided again.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::zxid")]
    pub last_request: Option<i64>,
    /// The version that the parent of the ballots has had since the znode of the decision was created. If that is deleted
    /// and created again, its own versions begin at 0 again, so each write over a decision requires both.
    #[serde(default, with = "limits::count")]
    pub generation: i32,
}

/// The most that a decision may hold, so that it fits into [`MAX_RECORD`](super::MAX_RECORD) with any names and any
/// number of members and slots. A record above its limit would stop the election permanently.
pub(crate) mod most {
    /// Bytes of the sentences of all slots together, and of one.
    const SENTENCES: usize = 2560;
    const SENTENCE: usize = 500;
    /// Bytes of any other reason.
    pub(super) const REASON: usize = 100;
    /// Bytes of the author's name.
    pub(super) const NAME: usize = crate::ids::MAX_NAME;
    pub(crate) const EXCLUSIONS: usize = 14;
    pub(super) const FAILURES: usize = 15;
    pub(crate) const SITE_FAILURES: usize = 8;
    /// Sites whose losses are remembered, and times of each. More would not delay the return to a site any longer.
    pub(super) const LOSERS: usize = 8;
    pub(super) const LOSSES: usize = 8;
    /// Of all slots together, and the limit for one slot.
    const ATTEMPTS: usize = 160;
    const SLOT_ATTEMPTS: usize = 50;
    /// Moves for standing orders, of all slots together, and the limit for one slot.
    const OBEYED: usize = 80;
    const SLOT_OBEYED: usize = 10;
    /// Of one slot. More members hardly vanish at once.
    pub(crate) const LINE: usize = 8;
    /// Of all slots together, but at least two of each.
    const LINES: usize = 32;

    /// The longest sentence with this number of slots.
    pub(super) fn sentence(slots: usize) -> usize {
        (SENTENCES / slots.max(1)).min(SENTENCE)
    }

    /// The longest line of succession of each slot with this number of slots.
    pub(super) fn line(slots: usize) -> usize {
        (LINES / slots.max(1)).clamp(2, LINE)
    }

    /// How many attempts of each slot are kept with this number of slots.
    pub(crate) fn attempts(slots: usize) -> usize {
        (ATTEMPTS / slots.max(1)).min(SLOT_ATTEMPTS)
    }

    /// How many moves for standing orders of each slot are kept with this number of slots.
    pub(crate) fn obeyed(slots: usize) -> usize {
        (OBEYED / slots.max(1)).min(SLOT_OBEYED)
    }
}

/// Keeps the newest entries.
fn keep_last<T>(all: &mut Vec<T>, most: usize) {
    let surplus = all.len().saturating_sub(most);
    all.drain(..surplus);
}

/// Keeps the exclusions that began last, as many as a decision has room for.
pub(crate) fn keep_newest(exclusions: &mut Vec<Exclusion>) {
    while exclusions.len() > most::EXCLUSIONS {
        let oldest = exclusions.iter().enumerate().min_by_key(|(_, e)| e.since_ms).map(|(at, _)| at);
        oldest.map(|at| exclusions.remove(at));
    }
}

impl Record for Elected {
    const MENDED_BY: &str = "delete it, and the members write again what they remember";

    fn version(&self) -> u32 {
        self.v
    }

    // No slot is ahead of its term, and the decision is within the limits of `most`.
    fn check(&self) -> Result<(), String> {
        let slots = self.slots.len();
        if slots > MAX_SLOTS {
            return Err(format!("it has {slots} slots, more than {MAX_SLOTS}"));
        }
        if self.slots.iter().any(|slot| slot.given.term.max(slot.given.decided_in()) > self.term) {
            return Err(format!("a slot has a later term than {}", self.term));
        }
        if self.clone().bounded() != *self {
            return Err("it has more entries, or longer texts, than a decision has".to_owned());
        }
        Ok(())
    }
}

impl Elected {
    /// The same decision, shortened to the limits: the newest entries of each list, and the beginning of long texts.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        shorten(&mut self.decided_by, most::NAME);
        keep_newest(&mut self.exclusions);
        for exclusion in &mut self.exclusions {
            shorten(&mut exclusion.reason, most::REASON);
            exclusion.until_ms = exclusion.until_ms.min(limits::MAX_MS);
        }
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

    /// The member that is named for `slot`.
    pub fn named(&self, slot: usize) -> Option<&Named> {
        self.slots.get(slot)?.named.as_ref()
    }

    /// All named members, each with its slot.
    pub fn leaders(&self) -> impl Iterator<Item = (usize, &Named)> {
        self.slots.iter().enumerate().filter_map(|(slot, s)| Some((slot, s.named.as_ref()?)))
    }

    /// The slot for which `ballot` is named. There is at most one.
    pub fn slot_of(&self, ballot: &Ballot) -> Option<usize> {
        self.leaders().find(|(_, named)| named.ballot == *ballot).map(|(slot, _)| slot)
    }

    /// The term in which `slot` was decided. A leader uses this term and not the record's own term, which also grows
    /// with the decisions about other slots.
    pub fn term_of(&self, slot: usize) -> u64 {
        self.given(slot).map_or(self.term, |given| given.term)
    }

    /// The latest decision about `slot`, if the slot exists.
    pub fn given(&self, slot: usize) -> Option<&Given> {
        self.slots.get(slot).map(|slot| &slot.given)
    }

    /// The decision of this term; `None` if the term only removed slots.
    pub fn latest(&self) -> Option<&Given> {
        self.slots.iter().map(|slot| &slot.given).find(|given| given.decided_in() == self.term)
    }

    /// The cause of this term.
    pub fn cause(&self) -> Cause {
        self.latest().map_or(Cause::SlotsChanged, |given| given.cause)
    }

    /// The sentence of this term's decision.
    pub fn sentence(&self) -> String {
        let slots = self.slots.len();
        self.latest().map_or_else(|| format!("there are {slots} slots now"), |given| given.sentence.clone())
    }

    /// The slot of the latest decision for this request, unless a later decision was about the same slot.
    pub fn slot_for(&self, request: &RequestRef) -> Option<usize> {
        self.slots.iter().position(|slot| slot.given.request.as_ref() == Some(request))
    }

    /// The line of succession of `slot`, first in line first.
    pub fn line_of(&self, slot: usize) -> &[Named] {
        self.slots.get(slot).map_or(&[], |slot| &slot.succession)
    }

    /// The position of `ballot` in the line of succession of `slot`.
    pub fn place_in_line(&self, slot: usize, ballot: &Ballot) -> Option<usize> {
        self.line_of(slot).iter().position(|n| n.ballot == *ballot)
    }

    /// The members that must know this decision at once: those that it names, if `last` did not name them in the same term;
    /// and the first in each line, if it was neither named nor the first in `last`.
    pub(crate) fn called<'a>(&'a self, last: Option<&Elected>) -> (Vec<&'a Named>, Vec<&'a Named>) {
        let is_new = |slot: usize, named: &Named| {
            last.is_none_or(|last| {
                last.named(slot) != Some(named) || last.term_of(slot) != self.term_of(slot)
            })
        };
        let named =
            self.leaders().filter(|(slot, named)| is_new(*slot, named)).map(|(_, named)| named).collect();
        let knows =
            |ballot: &Ballot| last.is_some_and(|last| last.slot_of(ballot).is_some() || last.is_next(ballot));
        let mut next = Vec::<&Named>::new();
        for first in self.slots.iter().filter_map(|slot| slot.succession.first()) {
            // It can be the first in several lines.
            if !knows(&first.ballot) && !next.contains(&first) {
                next.push(first);
            }
        }
        (named, next)
    }

    /// Whether this member is the first in a line.
    pub(crate) fn is_next(&self, ballot: &Ballot) -> bool {
        (0..self.slots.len()).any(|slot| self.place_in_line(slot, ballot) == Some(0))
    }

    /// The present leader of `slot`, or the last one.
    pub(crate) fn led_before(&self, slot: usize) -> Option<Previous> {
        self.slots.get(slot).and_then(Slot::led_before)
    }

    // ---- what is remembered ----

    /// The times of all decisions that no operator requested, of all slots.
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
    /// The member.
    pub member: MemberId,
    /// Its incarnation. A repaired member that restarts is not excluded.
    pub ballot: Ballot,
    /// The beginning, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub since_ms: u64,
    /// The end, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub until_ms: u64,
    /// The reason, as text.
    #[serde(with = "crate::text::line")]
    pub reason: String,
}

impl Exclusion {
    /// This incarnation is not named until then.
    pub fn new(member: MemberId, ballot: Ballot, until_ms: u64, reason: String) -> Self {
        Self { member, ballot, since_ms: 0, until_ms, reason }
    }

    /// Whether it holds at `unix_ms`. An exclusion that begins in the future is from a wrong clock, and does not hold.
    pub fn holds_at(&self, unix_ms: u64) -> bool {
        self.since_ms <= unix_ms.saturating_add(APART_MS) && unix_ms < self.until_ms
    }
}

/// A leadership that a member could not take over or maintain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct MemberFailure {
    /// The member's id, so that a restart does not clear it.
    pub member: MemberId,
    /// When, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub at_ms: u64,
    /// The name of the [`Cause`] of the decision that followed. It is text because a later version may have more
    /// causes.
    #[serde(with = "crate::text::line")]
    pub cause: String,
    /// The term of the leadership.
    #[serde(default, with = "limits::decided")]
    pub term: u64,
}

impl MemberFailure {
    /// This member failed in that term.
    pub fn new(member: MemberId, cause: String, term: u64, at_ms: u64) -> Self {
        Self { member, at_ms, cause, term }
    }
}

/// A site that has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct SiteFailure {
    /// The site.
    pub site: SiteId,
    /// When the failure was noticed, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub at_ms: u64,
    /// The reason, as text.
    #[serde(with = "crate::text::line")]
    pub why: String,
    /// When it was noticed that the failure is over, in milliseconds since the Unix epoch. Absent while it continues.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub over_at_ms: Option<u64>,
    /// The operator who declared that the site has not failed, against its own members. It holds until they agree.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub overruled: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Remembered, VERSION};

    /// The longest name of its kind.
    fn name(number: usize) -> String {
        format!("{number:0>width$}", width = crate::ids::MAX_NAME)
    }

    fn who(number: usize) -> Named {
        let ballot = format!("{}-{number:010}", &name(number)[11..]);
        let (member, site) = (name(number).parse().unwrap(), name(number).parse().unwrap());
        Named { member, ballot: Ballot::new(ballot).unwrap(), site }
    }

    /// Sixteen slots, names of the maximum length, ten thousand members that have all failed and are all next in line,
    /// and sentences that contain all of them, in characters that JSON doubles. All of it, or a random part.
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
            term: limits::MAX_TERM,
            decided_in: Some(limits::MAX_TERM),
            cause: Cause::BetterCandidate,
            sentence: text(rng),
            decided_at_ms: limits::MAX_MS,
            noticed_at_ms: limits::MAX_MS,
            request: request.clone(),
            previous: Some(who(1).as_previous()),
        };
        let slots = size(rng, MAX_SLOTS).max(1);
        let slot = |rng: &mut fastrand::Rng| Slot {
            named: Some(who(2)),
            given: given(rng),
            succession: line(rng),
            attempts: vec![limits::MAX_MS; many],
            obeyed: vec![limits::MAX_MS; many],
        };
        let Named { member, ballot, site } = who(3);
        let exclusion = |rng: &mut fastrand::Rng| Exclusion {
            since_ms: limits::MAX_MS,
            ..Exclusion::new(member.clone(), ballot.clone(), limits::MAX_MS, text(rng))
        };
        Elected {
            v: VERSION,
            term: limits::MAX_TERM,
            slots: (0..slots).map(|_| slot(rng)).collect(),
            exclusions: (0..size(rng, many.min(100))).map(|_| exclusion(rng)).collect(),
            failures: vec![
                MemberFailure::new(member.clone(), text(rng), limits::MAX_TERM, limits::MAX_MS);
                many.min(100)
            ],
            losses: (0..many.min(100))
                .map(|n| (SiteId::new(format!("{n:064}")).unwrap(), vec![limits::MAX_MS; many]))
                .collect(),
            acknowledged_at_ms: limits::MAX_MS,
            youngest: Some(ballot.clone()),
            site_failures: vec![
                SiteFailure {
                    site: site.clone(),
                    at_ms: limits::MAX_MS,
                    why: text(rng),
                    over_at_ms: Some(limits::MAX_MS),
                    overruled: Some(text(rng)),
                };
                many.min(100)
            ],
            token_base: limits::MAX_TOKEN_BASE,
            decided_by: text(rng),
            last_request: Some(i64::MAX),
            generation: i32::MAX,
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
        // The ensemble was restored. The term was reached again, by a later transaction than the remembered one.
        let before = Elected { token_base: base - 1, ..elected.clone() };
        assert!(remembered(base).is_newer_than(&before, 6));
        assert!(!remembered(base).is_newer_than(&elected, 6));
    }
}
