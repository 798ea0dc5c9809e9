//! The record of an overlay.

use election_core::internals::{
    record::{Record, VERSION, limits},
    text,
};
use serde::{Deserialize, Serialize};

use super::shortened;

/// A change of the configuration of a job that all members of its election apply, in `config`. The versions before are
/// below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Format version.
    pub v: u32,
    /// Counts the overlays of this election; 1 for the first.
    #[serde(with = "limits::count")]
    pub version: u64,
    /// The settings, as the members' configuration reads them. Empty for none.
    #[serde(with = "text::block")]
    pub text: String,
    /// The operator.
    #[serde(default)]
    #[serde(with = "text::line")]
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub at_ms: u64,
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::line")]
    pub reason: Option<String>,
    /// The earlier version whose text it is again, if it was restored; 0 for no overlay. Never a version that was itself restored.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::count")]
    pub restores: Option<u64>,
}

/// What is to become the overlay of an election.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewOverlay<'a> {
    /// The settings, as the members' configuration reads them. Empty for none.
    pub text: &'a str,
    /// The operator.
    pub by: &'a str,
    /// The operator's reason.
    pub reason: Option<&'a str>,
    /// The earlier version whose text it is again, if it is restored; 0 for no overlay.
    pub restores: Option<u64>,
}

impl Overlay {
    /// The longest text, in bytes.
    pub const MAX_TEXT: usize = 16 * 1024;

    /// The version that an operator wrote this text as: this one, or the one that it restores; 0 for no overlay.
    pub fn origin(&self) -> u64 {
        self.restores.unwrap_or(self.version)
    }

    /// The overlay of this version.
    pub fn new(version: u64, at_ms: u64, new: &NewOverlay<'_>) -> Self {
        let NewOverlay { text, by, reason, restores } = *new;
        let (by, reason) = (shortened(by, 500), reason.map(|reason| shortened(reason, 500)));
        Self { v: VERSION, version, text: text.to_owned(), by, at_ms, reason, restores }
    }
}

impl Record for Overlay {
    const MENDED_BY: &str = "delete it, and push the configuration again";

    fn version(&self) -> u32 {
        self.v
    }

    fn check(&self) -> Result<(), String> {
        let bad = self.text.chars().find(|c| !text::is_in_block(*c));
        bad.map_or(Ok(()), |c| Err(format!("its text has {c:?}, which is not allowed in lines of text")))
    }
}
