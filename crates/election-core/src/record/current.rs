use serde::{Deserialize, Serialize};

use super::{is_default, limits};
use crate::ids::{Ballot, MemberId, SiteId};

/// A leader znode, `leader/current` or that of another slot. It is ephemeral and created by the leader's session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Current {
    /// Format version.
    pub v: u32,
    /// The leader.
    pub member: MemberId,
    /// Its incarnation.
    pub ballot: Ballot,
    /// Its site.
    pub site: SiteId,
    /// The slot that it leads.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::slot")]
    pub slot: usize,
    /// The term for which it was created.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// The leader's progress.
    pub status: Status,
    /// The address of the work.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub endpoint: Option<String>,
    /// The fencing token of this leadership, set when it is READY.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::token")]
    pub fencing_token: Option<u64>,
    /// When it was created, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub since_ms: u64,
    /// When it became READY, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub ready_ms: Option<u64>,
}

/// A leader's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Taking over.
    #[serde(rename = "PROGRESS")]
    Progress,
    /// Serving.
    #[serde(rename = "READY")]
    Ready,
}
