use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{
    Cause, Elected,
    format::{is_false, is_zero, shorten},
};
use crate::ids::{Ballot, MemberId, SiteId};

/// What a member says of itself in `nodes/<member>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct MemberRecord {
    /// Format version.
    pub v: u32,
    /// Its id, the same after a restart.
    pub member: MemberId,
    /// Where it stands.
    pub site: SiteId,
    /// Its ballot: which incarnation this is.
    pub ballot: Ballot,
    /// How others reach this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where its HTTP endpoints are, as `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Higher is preferred; 0 or less never leads unless an operator names it.
    #[serde(default = "one")]
    pub priority: i64,
    /// Free attributes for policies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Which of these are measured: they waver, as what is configured doesn't.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub measured: BTreeSet<String>,
    /// Whether it is fit to lead; left out while nothing checks it.
    #[serde(default, skip_serializing_if = "Health::is_unchecked")]
    pub health: Health,
    /// Whether its whole site is fit, as far as it can tell; none if it does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_health: Option<Health>,
    /// A fingerprint of the policy that it decides by when it is the elector; empty if it doesn't say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// The software that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub software: String,
    /// The timeout that its session was granted, in milliseconds: how long another process of this id has to wait.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub session_timeout_ms: u64,
    /// When this incarnation joined, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub joined_ms: u64,
    /// The last leadership that it could not take over or keep up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<GaveUp>,
    /// Why it does not stand, if it doesn't: then it is not named, even if nobody else is
    /// left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// Whether it is about to leave: what it leads is handed over, and it is not named.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaving: bool,
    /// The latest term that it has prepared for while a leader that leaves worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<u64>,
    /// Why it does not hand over as planned, if it doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// Whom this member has not reached for a while, by ballot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Unreached>,
    /// How far away others are from it.
    #[serde(default, skip_serializing_if = "RoundTrips::is_empty")]
    pub round_trips: RoundTrips,
    /// The latest that it has seen, while the decision is missing or older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembers: Option<Remembered>,
}

/// The latest decision and the newest token that a member has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Remembered {
    /// The term of the decision.
    pub term: u64,
    /// The transaction that wrote it.
    pub mzxid: i64,
    /// The newest fencing token, or base of tokens.
    pub token: u64,
    /// The base of the tokens in the decision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token_base: u64,
    /// The creation of the latest request that was decided, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request: Option<i64>,
}

impl Remembered {
    /// Whether it was decided after `elected`, which was written by the transaction `mzxid`: in a
    /// later term, or before the ensemble's transactions began anew with tokens that would be too low.
    /// Every decision keeps the base of the tokens, so one with a lower base knew nothing of this.
    pub fn is_newer_than(&self, elected: &Elected, mzxid: i64) -> bool {
        elected.term < self.term
            || elected.token_base < self.token_base
            || (mzxid < self.mzxid && elected.token_base < self.token)
    }

    /// The latest of both.
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

/// Round trips that a member has measured, smoothed, in microseconds. What is not in here
/// has not been measured, or has not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct RoundTrips {
    /// To the other members.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<MemberId, u32>,
    /// To ZooKeeper: the session's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zookeeper: Option<u32>,
    /// To whatever else is of account, by the name that the policy has for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, u32>,
}

impl RoundTrips {
    /// Whether nothing has been measured.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.zookeeper.is_none() && self.targets.is_empty()
    }
}

/// A member that another one can't reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Unreached {
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

/// A leadership that a member could not take over or keep up, or did not want any longer. It is
/// said here so that the elector needn't wait for a timeout to name the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct GaveUp {
    /// The term of that leadership.
    pub term: u64,
    /// `takeover-failed`, `work-failed` or `resigned`.
    pub cause: Cause,
    /// Why, in words.
    pub reason: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

fn one() -> i64 {
    1
}

/// Whether a member is fit to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// Nothing checks it, and it counts as fit.
    #[default]
    Unchecked,
    /// It is: a check or the program has found so.
    Healthy,
    /// It is checked, and the first answer has not come yet. It is not named while that is so; a leader leads on.
    Unknown,
    /// It is not.
    Unhealthy {
        /// Why, in words.
        reason: String,
    },
}

impl fmt::Display for Health {
    /// `unchecked`, `healthy`, `unknown`, or the reason why it is not (`unhealthy` where it gives none).
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
    /// Whether the member may be named: it has been found fit, or nothing checks it.
    pub fn is_fit(&self) -> bool {
        matches!(self, Self::Healthy | Self::Unchecked)
    }

    /// Whether nothing checks it.
    pub fn is_unchecked(&self) -> bool {
        *self == Self::Unchecked
    }

    /// The same with a reason that fits into a record.
    pub(crate) fn bounded(mut self) -> Self {
        if let Self::Unhealthy { reason } = &mut self {
            shorten(reason, 500);
        }
        self
    }
}
