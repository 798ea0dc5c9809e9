//! One leadership of an election.
//!
//! `elected` has one version and one term for all slots, so any two decisions exclude each other. Each slot keeps the term
//! and version of the decision that it rests on; its leader, its line, its remembered tenure and the elector's timers use
//! these. So a decision about one slot leaves the others unchanged. The leader znode of slot 0 is always `leader/current`,
//! that of slot 1 `leader/current-1`, and so on: an election that grows or shrinks never has two leader znodes for one
//! leadership.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Cause, Named, Previous, RequestRef, format::exact, limits};

/// One of the leaderships of an election, in the decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Slot {
    /// The named leader; `None` while the slot is being vacated or has no candidate.
    #[serde(deserialize_with = "said")]
    pub named: Option<Named>,
    /// The decision that last changed this slot. A leader uses the term in here, so decisions about other slots do not
    /// affect it.
    pub given: Given,
    /// The line of succession, used if the leader vanishes; first in line first.
    #[serde(default, deserialize_with = "exact", skip_serializing_if = "Vec::is_empty")]
    pub succession: Vec<Named>,
    /// When it was recently decided without an operator's request, oldest first, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "limits::ms")]
    pub attempts: Vec<u64>,
    /// When it recently moved for standing orders, oldest first, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "limits::ms")]
    pub obeyed: Vec<u64>,
}

/// The field is mandatory even if no member is named: a slot without it is invalid.
fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Named>, D::Error> {
    Option::deserialize(from)
}

/// The decision about one slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Given {
    /// The term of the leadership.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// The term in which it was decided, if that is a later one: the leader goes on in its own.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::decided")]
    pub decided_in: Option<u64>,
    /// The cause.
    pub cause: Cause,
    /// The decision's sentence.
    #[serde(with = "crate::text::line")]
    pub sentence: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub decided_at_ms: u64,
    /// When the elector noticed that a decision was necessary.
    #[serde(default, with = "limits::ms")]
    pub noticed_at_ms: u64,
    /// The operator's request that it carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestRef>,
    /// The previous leader of the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

impl Given {
    /// A decision without a request, made as soon as it was noticed to be necessary.
    pub(crate) fn at_once(
        term: u64,
        cause: Cause,
        sentence: String,
        unix_ms: u64,
        previous: Option<Previous>,
    ) -> Self {
        Self {
            term,
            decided_in: None,
            cause,
            sentence,
            decided_at_ms: unix_ms,
            noticed_at_ms: unix_ms,
            request: None,
            previous,
        }
    }

    /// The term in which it was decided.
    pub fn decided_in(&self) -> u64 {
        self.decided_in.unwrap_or(self.term)
    }
}

impl Slot {
    /// A slot that was just decided, without further data.
    pub const fn new(named: Option<Named>, given: Given) -> Self {
        Self { named, given, succession: Vec::new(), attempts: Vec::new(), obeyed: Vec::new() }
    }

    /// The present leader of the slot, or the last one. It is the previous leader for the next named member.
    pub(crate) fn led_before(&self) -> Option<Previous> {
        self.named.as_ref().map(Named::as_previous).or_else(|| self.given.previous.clone())
    }
}
