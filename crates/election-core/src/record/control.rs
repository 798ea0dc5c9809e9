use serde::{Deserialize, Serialize};

use crate::ids::SiteId;

/// Standing orders of the operators, in `control`. Absent means: none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Control {
    /// Format version.
    #[serde(default = "super::version")]
    pub v: u32,
    /// Whether the elector decides on its own.
    #[serde(default)]
    pub mode: Mode,
    /// Sites that nobody is to lead from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<SiteId>,
    /// A site that goes before the configured order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_site: Option<SiteId>,
}

impl Default for Control {
    fn default() -> Self {
        Self { v: super::VERSION, mode: Mode::Auto, drained: Vec::new(), preferred_site: None }
    }
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
