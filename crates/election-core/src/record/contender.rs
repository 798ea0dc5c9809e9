use serde::{Deserialize, Serialize};

use super::{Current, Status, format::VERSION};
use crate::ids::{Ballot, MemberId, SiteId};

/// What a contender says of itself in its znode, where a znode alone settles who
/// leads: in the queue, or in the one place that there is.
///
/// What the znode says already does not stand here a second time: its number in the
/// queue is in its name, and its czxid is the fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contender {
    /// Format version.
    pub v: u32,
    /// Who stands here.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// How far it is.
    pub status: ContenderStatus,
    /// How others reach this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where its HTTP endpoints are, as `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// The software that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub software: String,
    /// Since when it stands here, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it became READY, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<u64>,
}

/// How far a contender is. The first in a queue takes over, whether or not it has
/// come to say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContenderStatus {
    /// Standing in line.
    #[serde(rename = "WAITING")]
    Waiting,
    /// Taking over.
    #[serde(rename = "PROGRESS")]
    Progress,
    /// Serving.
    #[serde(rename = "READY")]
    Ready,
}

impl Contender {
    /// This contender as the leader: its term is its fencing token.
    pub fn to_current(&self, ballot: Ballot, czxid: i64) -> Current {
        Current {
            slot: 0,
            v: VERSION,
            member: self.member.clone(),
            ballot,
            site: self.site.clone(),
            term: u64::try_from(czxid).unwrap_or(0),
            status: match self.status {
                ContenderStatus::Ready => Status::Ready,
                ContenderStatus::Waiting | ContenderStatus::Progress => Status::Progress,
            },
            endpoint: self.address.clone(),
            fencing_token: u64::try_from(czxid).ok(),
            since_ms: self.since_ms,
            ready_ms: self.ready_ms,
        }
    }
}
