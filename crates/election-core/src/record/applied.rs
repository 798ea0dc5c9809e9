use serde::{Deserialize, Serialize};

use super::limits;
use crate::text::shorten;

/// Which overlay a member applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct AppliedOverlay {
    /// Its version; 0 for none.
    #[serde(with = "limits::count")]
    pub version: u64,
    /// A newer one that this member can't apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedOverlay>,
}

/// An overlay that a member can't apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct RefusedOverlay {
    /// Its version.
    #[serde(with = "limits::count")]
    pub version: u64,
    /// Why.
    #[serde(with = "crate::text::line")]
    pub reason: String,
}

impl AppliedOverlay {
    /// The same with a reason of bounded length.
    pub(crate) fn bounded(mut self) -> Self {
        if let Some(refused) = &mut self.refused {
            shorten(&mut refused.reason, 500);
        }
        self
    }
}
