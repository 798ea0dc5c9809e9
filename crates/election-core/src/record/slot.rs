use serde::{Deserialize, Serialize};

use super::{Cause, Elected, Named, Previous, RequestRef};
use crate::ids::{Ballot, MemberId, SiteId};

/// The most slots that an election can have: with the lines of succession of all of
/// them the decision stays far below [`MAX_RECORD`](super::MAX_RECORD).
pub const MAX_SLOTS: usize = 16;

/// One of the leaderships of an election, as it stands in the decision.
///
/// In JSON it is who is named, or `null`, and no more, as long as the decision that
/// gave it is the latest one: with one slot it always is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Option<Wire>", into = "Option<Wire>")]
pub struct Slot {
    /// Who should lead it; nobody while it is being vacated or has no candidate.
    pub named: Option<Named>,
    /// The decision that left it like this, where later ones were about other slots.
    /// A leader goes by the term in here: it is not disturbed by what happens to
    /// other slots.
    pub given: Option<Box<Given>>,
    /// Who follows in this slot, where that is not the record's own line.
    pub succession: Option<Vec<Named>>,
}

/// The part of a decision that is about one slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Given {
    /// The term in which it was decided.
    pub term: u64,
    /// Why.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// When, in milliseconds since the Unix epoch.
    pub decided_at_ms: u64,
    /// When the deciding side noticed that there was something to decide.
    #[serde(default)]
    pub noticed_at_ms: u64,
    /// The operator's request that it carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRef>,
    /// Who led the slot before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

impl From<Named> for Slot {
    fn from(named: Named) -> Self {
        Self { named: Some(named), ..Self::default() }
    }
}

/// What stands in the JSON.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    member: Option<MemberId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ballot: Option<Ballot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    site: Option<SiteId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<Box<Given>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    succession: Option<Vec<Named>>,
}

impl TryFrom<Option<Wire>> for Slot {
    type Error = &'static str;

    fn try_from(wire: Option<Wire>) -> Result<Self, Self::Error> {
        let Some(Wire { member, ballot, site, given, succession }) = wire else {
            return Ok(Self::default());
        };
        let named = match (member, ballot, site) {
            (Some(member), Some(ballot), Some(site)) => Some(Named { member, ballot, site }),
            (None, None, None) => None,
            // Never 'nobody is named': that would be another decision.
            _ => return Err("a slot needs all of member, ballot and site, or none of them"),
        };
        Ok(Self { named, given, succession })
    }
}

impl From<Slot> for Option<Wire> {
    fn from(Slot { named, given, succession }: Slot) -> Self {
        if named.is_none() && given.is_none() && succession.is_none() {
            return None;
        }
        let (member, ballot, site) = match named {
            Some(Named { member, ballot, site }) => (Some(member), Some(ballot), Some(site)),
            None => (None, None, None),
        };
        Some(Wire { member, ballot, site, given, succession })
    }
}

impl Elected {
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
        self.slots.get(slot).and_then(|s| s.given.as_ref()).map_or(self.term, |given| given.term)
    }

    /// What was decided of `slot`: now, or when a decision was about it last.
    pub fn given(&self, slot: usize) -> Given {
        match self.slots.get(slot).and_then(|s| s.given.as_deref()) {
            Some(given) => given.clone(),
            None => Given {
                term: self.term,
                cause: self.cause,
                sentence: self.sentence.clone(),
                decided_at_ms: self.decided_at_ms,
                noticed_at_ms: self.noticed_at_ms,
                request: self.request.clone(),
                previous: self.previous.clone(),
            },
        }
    }

    /// Who leads `slot` now, or who led it before: to whoever is named next it is the one
    /// before.
    pub(crate) fn led_before(&self, slot: usize) -> Option<Previous> {
        self.named(slot).map(Named::as_previous).or_else(|| self.given(slot).previous)
    }

    /// The slot that the latest decision for this request was about, unless a later one
    /// was about the same slot.
    pub fn slot_for(&self, request: &RequestRef) -> Option<usize> {
        let request_of = |slot: &Slot| match &slot.given {
            Some(given) => given.request.as_ref() == Some(request),
            None => self.request.as_ref() == Some(request),
        };
        self.slots.iter().position(request_of)
    }

    /// Who follows if the leader of `slot` vanishes, first in line first.
    pub fn line_of(&self, slot: usize) -> &[Named] {
        self.slots.get(slot).and_then(|s| s.succession.as_deref()).unwrap_or(&self.succession)
    }

    /// The place of `ballot` in the line of `slot`.
    pub fn place_in_line(&self, slot: usize, ballot: &Ballot) -> Option<usize> {
        self.line_of(slot).iter().position(|n| n.ballot == *ballot)
    }

    /// The slots as the next decision finds them: each with the decision that it rests
    /// on, so that it can be left as it is.
    pub fn carried(&self) -> Vec<Slot> {
        let carry =
            |slot: usize| Slot { given: Some(Box::new(self.given(slot))), ..self.slots[slot].clone() };
        (0..self.slots.len()).map(carry).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::record::Record as _;

    fn record(slots: &Value) -> Result<Elected, crate::record::RecordError> {
        let data = json!({
            "v": 1, "term": 7, "slots": slots, "succession": [who("c", 3)], "cause": "startup",
            "sentence": "it is so", "decided_by": "a", "decided_at_ms": 5,
        });
        Elected::decode("/elected", data.to_string().as_bytes())
    }

    fn who(member: &str, number: u32) -> Value {
        json!({ "member": member, "ballot": format!("x-{number:010}"), "site": "east" })
    }

    #[test]
    fn a_slot_that_the_latest_decision_gave_is_who_is_named_and_no_more() {
        for slots in [json!([who("a", 1)]), json!([null]), json!([who("a", 1), null])] {
            let elected = record(&slots).unwrap();
            assert_eq!(serde_json::to_value(&elected.slots).unwrap(), slots);
            assert_eq!(elected.term_of(0), 7);
        }
    }

    #[test]
    fn a_slot_that_was_left_as_it_was_keeps_its_decision() {
        let before = record(&json!([who("a", 1), null])).unwrap();
        let mut after = Elected { term: 8, cause: Cause::LeaderLost, slots: before.carried(), ..before };
        after.slots[0] = record(&json!([who("b", 2)])).unwrap().slots[0].clone();
        let read = Elected::decode("/elected", &after.encode("/elected").unwrap()).unwrap();
        assert_eq!(read, after);
        assert_eq!((read.term_of(0), read.given(0).cause), (8, Cause::LeaderLost));
        assert_eq!((read.term_of(1), read.given(1).cause), (7, Cause::Startup));
        assert_eq!(read.named(1), None);
        assert_eq!(read.leaders().count(), 1);
    }

    #[test]
    fn half_a_slot_is_garbage_and_not_an_empty_one() {
        assert!(record(&json!([{ "member": "a", "ballot": "x-0000000001" }])).is_err());
        assert!(record(&json!([{ "member": "a", "ballot": 1, "site": "east" }])).is_err());
    }

    #[test]
    fn a_slot_without_a_line_of_its_own_has_the_records() {
        let mut elected = record(&json!([who("a", 1), who("b", 2)])).unwrap();
        assert_eq!(elected.line_of(1), elected.line_of(0));
        elected.slots[1].succession = Some(Vec::new());
        assert!(elected.line_of(1).is_empty() && !elected.line_of(0).is_empty());
    }
}
