use serde::{Deserialize, Serialize};

use super::{
    Current, Health, MemberRecord, Status,
    format::{VERSION, is_default},
    limits,
};
use crate::ids::{Ballot, MemberId, SiteId};

/// The record in a contender's znode, in a recipe where a znode alone determines the leader: the contender's znode in
/// the queue, or the only leader znode.
///
/// It omits what the znode itself contains: the number in the queue is in the znode's name, and the fencing token is
/// its czxid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contender {
    /// Format version.
    pub v: u32,
    /// The contender.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
    /// Its progress.
    pub status: ContenderStatus,
    /// Its incarnation, unless that is the name of the znode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ballot: Option<Ballot>,
    /// The address at which others reach this node.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub address: Option<String>,
    /// The URL of its HTTP endpoints, such as `https://10.0.0.1:7080`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub http: Option<String>,
    /// The base of its fencing token, as far as it knew that when it wrote this.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::base")]
    pub token_base: u64,
    /// The software that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub software: String,
    /// The granted session timeout, in milliseconds. Another process with this id has to wait that long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub session_timeout_ms: u64,
    /// When it became a contender, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub since_ms: u64,
    /// When it became READY, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub ready_ms: Option<u64>,
}

/// A contender's progress. The first in a queue takes over even if its record is not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ContenderStatus {
    /// Waiting in the queue.
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
    /// Its incarnation, if its znode has this path.
    #[cfg(feature = "runtime")]
    pub fn ballot_at(&self, path: &str) -> Option<Ballot> {
        self.ballot.clone().or_else(|| Ballot::new(path.rsplit('/').next().unwrap_or_default()).ok())
    }

    /// This contender as the leader. Its term is its fencing token.
    pub fn to_current(&self, ballot: Ballot, czxid: i64) -> Current {
        let token = u64::try_from(czxid).ok().and_then(|czxid| czxid.checked_add(self.token_base));
        let token = token.filter(|token| *token <= limits::MAX_TOKEN);
        Current {
            slot: 0,
            v: VERSION,
            member: self.member.clone(),
            ballot,
            site: self.site.clone(),
            term: token.unwrap_or(0),
            status: match self.status {
                ContenderStatus::Ready => Status::Ready,
                ContenderStatus::Waiting | ContenderStatus::Progress => Status::Progress,
            },
            endpoint: self.address.clone(),
            fencing_token: token,
            since_ms: self.since_ms,
            ready_ms: self.ready_ms,
        }
    }

    /// This contender as a member.
    pub fn into_member(self, ballot: Ballot) -> MemberRecord {
        MemberRecord {
            v: VERSION,
            member: self.member,
            site: self.site,
            ballot,
            address: self.address,
            http: self.http,
            priority: 1,
            attributes: Default::default(),
            measured: Default::default(),
            // An unhealthy member leaves the contest.
            health: Health::Unchecked,
            site_health: None,
            policy: String::new(),
            config: None,
            software: self.software,
            // An election without an elector has no standing orders.
            orders_format: VERSION,
            session_timeout_ms: self.session_timeout_ms,
            stop_budget_ms: 0,
            joined_ms: self.since_ms,
            gave_up: None,
            called_off: None,
            withdrawn: None,
            leaving: false,
            prepared: None,
            holds: None,
            unreached: Default::default(),
            round_trips: Default::default(),
            remembers: None,
        }
    }
}
