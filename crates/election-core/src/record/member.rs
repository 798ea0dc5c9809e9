use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{
    AppliedOverlay, Cause, Elected,
    format::{VERSION, is_default, version},
    limits,
};
use crate::{
    ids::{Ballot, MemberId, SiteId},
    text::shorten,
};

/// A member's record, in `nodes/<member>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct MemberRecord {
    /// Format version.
    pub v: u32,
    /// Its id. A restart keeps it.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
    /// Its ballot, which identifies this incarnation.
    pub ballot: Ballot,
    /// The address at which others reach this node.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub address: Option<String>,
    /// The URL of its HTTP endpoints, such as `https://10.0.0.1:7080`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub http: Option<String>,
    /// Higher is preferred. A member with 0 or less leads only if an operator names it.
    #[serde(default = "one")]
    pub priority: i64,
    /// Free attributes for policies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::text::long_line")]
    pub attributes: BTreeMap<String, String>,
    /// Which of these are measured and can thus fluctuate, unlike configured ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", with = "crate::text::long_line")]
    pub measured: BTreeSet<String>,
    /// Whether it is fit to lead. Omitted if nothing checks it.
    #[serde(default, skip_serializing_if = "Health::is_unchecked")]
    pub health: Health,
    /// Whether its whole site is fit, as far as it can determine; `None` if it does not check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_health: Option<Health>,
    /// A fingerprint of the policy that it applies as the elector; empty if it is not published.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub policy: String,
    /// Which overlay of its configuration it applies, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AppliedOverlay>,
    /// The software that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub software: String,
    /// The newest format of standing orders that it reads. While the orders have a newer one it is not named, because it
    /// would overlook an order.
    #[serde(default = "version", skip_serializing_if = "is_first_format")]
    pub orders_format: u32,
    /// The granted session timeout, in milliseconds. Another process with this id has to wait that long.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::ms")]
    pub session_timeout_ms: u64,
    /// How long its work may need to end, in milliseconds. A forced failover waits that long before it takes the leader
    /// znode.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::ms")]
    pub stop_budget_ms: u64,
    /// When this incarnation joined, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub joined_ms: u64,
    /// The last leadership that it could not take over or maintain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<GaveUp>,
    /// The planned move that it has called off, by its term: it leads on in its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_off: Option<CalledOff>,
    /// Why it is not a candidate, if it is not. It is then not named, even if no other member is left.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub withdrawn: Option<String>,
    /// Whether it is about to leave. Its leadership is handed over, and it is not named.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaving: bool,
    /// The latest term for which it has prepared while a leaving leader continued to work.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::decided")]
    pub prepared: Option<u64>,
    /// Why it blocks planned moves, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub holds: Option<String>,
    /// The members that it has not reached for a while, by ballot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Unreached>,
    /// Its round trips to others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub round_trips: RoundTrips,
    /// The latest decision that it has seen, while the decision is missing or older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembers: Option<Remembered>,
}

/// The latest decision and the newest token that a member has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Remembered {
    /// The term of the decision.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// The transaction that wrote it.
    #[serde(with = "limits::zxid")]
    pub mzxid: i64,
    /// The newest fencing token, or base of tokens.
    #[serde(with = "limits::base")]
    pub token: u64,
    /// The base of the tokens in the decision.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::base")]
    pub token_base: u64,
    /// The czxid of the latest request that was decided, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "limits::zxid")]
    pub last_request: Option<i64>,
}

impl Remembered {
    /// Whether it is newer than `elected`, which was written by the transaction `mzxid`: in a later term, or before the
    /// ensemble's transaction ids began again with tokens that would be too low. Every decision keeps the base of the
    /// tokens, so a decision with a lower base did not know this one.
    pub fn is_newer_than(&self, elected: &Elected, mzxid: i64) -> bool {
        elected.term < self.term
            || elected.token_base < self.token_base
            || (mzxid < self.mzxid && elected.token_base < self.token)
    }

    /// The later of both.
    pub(crate) fn or_newer(self, other: Self) -> Self {
        Self {
            term: self.term.max(other.term),
            mzxid: self.mzxid.max(other.mzxid),
            token: self.token.max(other.token),
            token_base: self.token_base.max(other.token_base),
            last_request: self.last_request.max(other.last_request),
        }
    }
}

/// A member's measured round trips, smoothed, in microseconds. A missing entry was not measured, or had no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct RoundTrips {
    /// To the other members.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<MemberId, u32>,
    /// To ZooKeeper, on the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zookeeper: Option<u32>,
    /// To other relevant targets, by their name in the policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::text::line")]
    pub targets: BTreeMap<String, u32>,
}

/// A member that another member can't reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Unreached {
    /// Its incarnation.
    pub ballot: Ballot,
    /// The beginning, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub since_ms: u64,
}

/// A leadership that a member could not take over or maintain, or gave up. It is published so that the elector can name
/// the next leader without waiting for a timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct GaveUp {
    /// The term of that leadership.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// `takeover-failed`, `work-failed` or `resigned`.
    pub cause: Cause,
    /// The reason, as text.
    #[serde(with = "crate::text::line")]
    pub reason: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(with = "limits::ms")]
    pub at_ms: u64,
}

/// A planned move that the leader has called off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct CalledOff {
    /// The term of the decision that names another member.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// The reason, as text.
    #[serde(with = "crate::text::line")]
    pub reason: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_first_format(format: &u32) -> bool {
    *format == VERSION
}

fn one() -> i64 {
    1
}

/// Whether a member is fit to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// Nothing checks it, so it counts as fit.
    #[default]
    Unchecked,
    /// A check or the program has found it fit.
    Healthy,
    /// It is checked, and there is no result yet. Until then it is not named, but a leader continues to lead.
    Unknown,
    /// It is not fit.
    Unhealthy {
        /// The reason, as text.
        #[serde(with = "crate::text::line")]
        reason: String,
    },
}

impl fmt::Display for Health {
    /// `unchecked`, `healthy`, `unknown`, or the reason why it is not fit (`unhealthy` if there is none).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchecked => "unchecked",
            Self::Healthy => "healthy",
            Self::Unknown => "unknown",
            Self::Unhealthy { reason } if reason.trim().is_empty() => "unhealthy",
            Self::Unhealthy { reason } => reason,
        })
    }
}

impl Health {
    /// Whether the member may be named: it was found fit, or nothing checks it.
    pub fn is_fit(&self) -> bool {
        matches!(self, Self::Healthy | Self::Unchecked)
    }

    /// Whether nothing checks it.
    pub fn is_unchecked(&self) -> bool {
        *self == Self::Unchecked
    }

    /// The same, with the reason shortened to fit into a record.
    pub(crate) fn bounded(mut self) -> Self {
        if let Self::Unhealthy { reason } = &mut self {
            shorten(reason, 500);
        }
        self
    }
}
