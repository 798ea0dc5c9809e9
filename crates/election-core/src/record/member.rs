use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Cause;
use crate::ids::{Ballot, MemberId, SiteId};

/// What a member says of itself in `nodes/<member>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
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
    /// Whether it is fit to lead.
    #[serde(default)]
    pub health: Health,
    /// Whether its whole site is fit, as far as it can tell; none if it does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_health: Option<Health>,
    /// The newest format that it reads.
    #[serde(default = "super::version", skip_serializing_if = "is_oldest")]
    pub reads: u32,
    /// The software that it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub software: String,
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
    /// Why it does not hand over as planned, if it doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// Whom this member has not reached for a while, by ballot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Unreached>,
    /// How far away others are from it.
    #[serde(default, skip_serializing_if = "RoundTrips::is_empty")]
    pub round_trips: RoundTrips,
}

/// Round trips that a member has measured, smoothed, in microseconds. What is not in here
/// has not been measured, or has not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
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

/// A leadership that a member could not take over or keep up. It is said here so
/// that the elector needn't wait for a timeout to name the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct GaveUp {
    /// The term of that leadership.
    pub term: u64,
    /// `takeover-failed` or `resigned`.
    pub cause: Cause,
    /// Why, in words.
    pub reason: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
const fn is_oldest(format: &u32) -> bool {
    *format == super::VERSION
}

fn one() -> i64 {
    1
}

/// Whether a member is fit to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// It is.
    #[default]
    Healthy,
    /// It is not.
    Unhealthy {
        /// Why, in words.
        reason: String,
    },
}
