use serde::{Deserialize, Serialize};

use super::{Cause, Previous};
use crate::ids::{Ballot, MemberId, SiteId};

/// One leadership, in `history/h-<seq>`; written by the leader once it is READY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// Format version.
    pub v: u32,
    /// The term.
    pub term: u64,
    /// Who leads.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stands.
    pub site: SiteId,
    /// Which slot it leads.
    #[serde(default, skip_serializing_if = "super::format::is_first")]
    pub slot: usize,
    /// The fencing token of this leadership.
    pub fencing_token: u64,
    /// Why leadership changed.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who led before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub ready_ms: u64,
    /// How long each phase took.
    #[serde(default)]
    pub phases: Phases,
}

/// How long each phase of a change took, in milliseconds; measured on up to two
/// wall clocks, so only as good as their agreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Phases {
    /// From the notice that there is something to decide to the decision.
    #[serde(default)]
    pub decide_ms: u64,
    /// From the decision until the old leader's place was free.
    #[serde(default)]
    pub release_ms: u64,
    /// From then until the new leader held it.
    #[serde(default)]
    pub acquire_ms: u64,
    /// From then until it was READY.
    #[serde(default)]
    pub takeover_ms: u64,
}
