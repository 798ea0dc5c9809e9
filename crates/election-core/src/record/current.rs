use serde::{Deserialize, Serialize};

use crate::ids::{Ballot, MemberId, SiteId};

/// The leader's own place, `leader/current` or that of another slot: ephemeral, made by the leader's session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Current {
    /// Format version.
    pub v: u32,
    /// Who holds it.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stands.
    pub site: SiteId,
    /// Which slot it leads.
    #[serde(default, skip_serializing_if = "super::format::is_first")]
    pub slot: usize,
    /// The term that it was created for. A successor that has not committed yet
    /// writes the term that it is going to commit.
    pub term: u64,
    /// How far it is.
    pub status: Status,
    /// Where the work can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The fencing token of this leadership, once it is READY.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// When it was created, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it became READY, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<u64>,
}

/// How far the one in office is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Taking over.
    #[serde(rename = "PROGRESS")]
    Progress,
    /// Serving.
    #[serde(rename = "READY")]
    Ready,
}
