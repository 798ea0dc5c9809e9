use serde::{Deserialize, Serialize};

use super::{Cause, Previous, is_default, limits};
use crate::ids::{Ballot, MemberId, SiteId};

/// One leadership, in `history/h-<token>`. The leader writes it together with READY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// Format version.
    pub v: u32,
    /// The term.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// The leader.
    pub member: MemberId,
    /// Its incarnation.
    pub ballot: Ballot,
    /// Its site.
    pub site: SiteId,
    /// The slot that it leads.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::slot")]
    pub slot: usize,
    /// The fencing token of this leadership.
    #[serde(with = "limits::token")]
    pub fencing_token: u64,
    /// The cause of the change.
    pub cause: Cause,
    /// The decision's sentence.
    #[serde(with = "crate::text::line")]
    pub sentence: String,
    /// The previous leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
    /// When it became READY, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub ready_ms: u64,
    /// How long each phase took.
    #[serde(default)]
    pub phases: Phases,
}

/// How long each phase of a change took, in milliseconds. Those until the leader znode was created are taken from up to
/// two wall clocks, so they are only as accurate as these agree, and absent if it is plain that they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Phases {
    /// From the event that required a decision to the decision.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub decide_ms: Option<u64>,
    /// From the decision until the old leader's znode was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub release_ms: Option<u64>,
    /// From then until the new leader created its znode.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub acquire_ms: Option<u64>,
    /// From then until it was READY.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::ms")]
    pub takeover_ms: Option<u64>,
}
