use std::fmt;

use serde::{Deserialize, Serialize};

use super::format::{VERSION, is_zero, version};
use crate::ids::SiteId;

/// Standing orders of the operators, in `control`. Absent means: none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Control {
    /// Format version.
    #[serde(default = "version")]
    pub v: u32,
    /// Whether the elector decides on its own.
    #[serde(default)]
    pub mode: Mode,
    /// Sites that nobody is to lead from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<SiteId>,
    /// Sites that have failed, as an operator says: nobody is to lead from them, and whoever
    /// does makes room as after a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_sites: Vec<FailedSite>,
    /// A site that goes before the configured order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_site: Option<SiteId>,
    /// The sites, most preferred first, instead of the configured order; empty: as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_order: Vec<SiteId>,
    /// The mode in which a pause found the election, and which its end restores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_in: Option<Mode>,
    /// Terms whose leader is not to be followed by somebody better: until the next change of
    /// leader, that is. A slot counts by the term in which it was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stay: Vec<u64>,
    /// Moves to another site that an operator has confirmed, where the policy asks for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Confirmed>,
    /// Who gave the latest order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub changed_by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed_at_ms: u64,
}

impl Control {
    /// No orders.
    pub const NONE: Self = Self {
        v: VERSION,
        mode: Mode::Auto,
        drained: Vec::new(),
        failed_sites: Vec::new(),
        preferred_site: None,
        site_order: Vec::new(),
        paused_in: None,
        stay: Vec::new(),
        confirmed: Vec::new(),
        changed_by: String::new(),
        changed_at_ms: 0,
    };
}

impl Default for Control {
    fn default() -> Self {
        Self::NONE
    }
}

/// An operator's word that leadership may move by itself to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Confirmed {
    /// From whoever leads in this term, until the next change of leader: a slot counts by the term in which it was decided.
    pub term: u64,
    /// To which site.
    pub site: SiteId,
    /// Who said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// A site that has failed by an operator's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct FailedSite {
    /// Which.
    pub site: SiteId,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub at_ms: u64,
}

/// Whether the elector decides on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It does.
    #[default]
    Auto,
    /// Only what an operator asks for is carried out.
    Manual,
    /// Nothing is carried out; it is only said what would be.
    Observe,
}

impl Mode {
    /// The word for it in records and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Observe => "observe",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
