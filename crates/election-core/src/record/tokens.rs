use serde::{Deserialize, Serialize};

use super::{VERSION, limits};
use crate::text::shorten;

/// The base of the fencing tokens in an election without an elector, in `tokens`; no record means 0. It never falls. A
/// member that knows a newer token than the next one would be writes it, and so does an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenBase {
    /// Format version.
    pub v: u32,
    /// Added to the czxid of a contender's znode to make its fencing token.
    #[serde(with = "limits::base")]
    pub token_base: u64,
    /// The author: a member or an operator.
    #[serde(default)]
    #[serde(with = "crate::text::line")]
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub at_ms: u64,
}

impl TokenBase {
    /// This base.
    pub fn new(token_base: u64, by: &str, at_ms: u64) -> Self {
        let mut by = by.to_owned();
        shorten(&mut by, crate::ids::MAX_NAME);
        Self { v: VERSION, token_base, by, at_ms }
    }
}
