use serde::{Deserialize, Deserializer, Serialize};

use super::{Cause, Named, Previous, RequestRef};

/// The most slots that an election can have: with the lines of succession of all of
/// them the decision stays far below [`MAX_RECORD`](super::MAX_RECORD).
pub const MAX_SLOTS: usize = 16;

/// One of the leaderships of an election, as the decision has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Slot {
    /// Who should lead it; nobody while it is being vacated or has no candidate.
    #[serde(deserialize_with = "said")]
    pub named: Option<Named>,
    /// The decision that left it like this. A leader goes by the term in here: it is not disturbed by what
    /// happens to other slots.
    pub given: Given,
    /// Who follows, first in line first, if its leader vanishes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub succession: Vec<Named>,
    /// When decisions that nobody ordered were taken for it lately, oldest first, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<u64>,
    /// When it moved for standing orders lately, oldest first, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obeyed: Vec<u64>,
}

/// It must be said that nobody is named: a slot without a word of it is garbage.
fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Named>, D::Error> {
    Option::deserialize(from)
}

/// The decision about one slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
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

impl Slot {
    /// A slot that was just decided, and of which nothing else is known.
    pub const fn new(named: Option<Named>, given: Given) -> Self {
        Self { named, given, succession: Vec::new(), attempts: Vec::new(), obeyed: Vec::new() }
    }

    /// Who leads it now, or who led it before: to whoever is named next it is the one
    /// before.
    pub(crate) fn led_before(&self) -> Option<Previous> {
        self.named.as_ref().map(Named::as_previous).or_else(|| self.given.previous.clone())
    }
}
