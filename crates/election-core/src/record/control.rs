use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    format::{VERSION, is_default, version},
    limits,
};
use crate::ids::{MemberId, SiteId};

/// The standing orders of the operators, in `control`. No record means no orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Control {
    /// Format version.
    #[serde(default = "version")]
    pub v: u32,
    /// Whether the elector decides without an operator.
    #[serde(default)]
    pub mode: Mode,
    /// Sites that may not have a leader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<SiteId>,
    /// Sites that an operator has declared failed. No member may lead there, and a leader there is replaced as after a
    /// failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_sites: Vec<FailedSite>,
    /// Members that are being serviced. None of them is elected, a leader among them hands over, and its loss is no
    /// failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maintenance: Vec<Maintenance>,
    /// A site that is preferred to the configured order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_site: Option<SiteId>,
    /// The sites, most preferred first, instead of the configured order; empty: as configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_order: Vec<SiteId>,
    /// The mode before a pause, restored when the pause ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_in: Option<Mode>,
    /// Terms whose leader is not replaced by a better candidate, until the next change of leader. The term of a slot is
    /// that in which it was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "limits::decided")]
    pub stay: Vec<u64>,
    /// Moves to another site that an operator has confirmed, for a policy that requires confirmation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Confirmed>,
    /// The operator's order that the job is stopped: a leader does not run it. A record with this order has the format
    /// [`WITH_STOP`](Self::WITH_STOP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedJob>,
    /// Members whose standby is stopped by an operator's order. It applies to every process of the member until it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped_standbys: Vec<StoppedStandby>,
    /// Where this election moves, or has moved. No member may be named here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<Move>,
    /// Where this election comes from. No member may be named here until the move is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<Move>,
    /// The author of the latest order.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub changed_by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "is_default", with = "limits::ms")]
    pub changed_at_ms: u64,
    /// The reason of the latest order.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub changed_reason: Option<String>,
}

impl Control {
    /// No orders.
    pub const NONE: Self = Self {
        v: VERSION,
        mode: Mode::Auto,
        drained: Vec::new(),
        failed_sites: Vec::new(),
        maintenance: Vec::new(),
        preferred_site: None,
        site_order: Vec::new(),
        paused_in: None,
        stay: Vec::new(),
        confirmed: Vec::new(),
        stopped: None,
        stopped_standbys: Vec::new(),
        moves_to: None,
        moved_from: None,
        changed_by: String::new(),
        changed_at_ms: 0,
        changed_reason: None,
    };

    /// The format of orders that stop the job. An elector that does not know such an order does not read this format,
    /// and decides nothing; and no member is named that does not read it
    /// ([`MemberRecord::orders_format`](super::MemberRecord::orders_format)).
    pub const WITH_STOP: u32 = 2;

    /// The order that this member is being serviced, if there is one.
    pub fn serviced(&self, member: &MemberId) -> Option<&Maintenance> {
        self.maintenance.iter().find(|order| order.member == *member)
    }

    /// The order that the standby of this member is stopped, if there is one.
    pub fn stopped_standby(&self, member: &MemberId) -> Option<&StoppedStandby> {
        self.stopped_standbys.iter().find(|order| order.member == *member)
    }

    /// Why no member may be named, whatever its state is: the election moves to another place, or comes from one. `None` if
    /// members may be named.
    pub fn closed(&self) -> Option<String> {
        match (&self.moves_to, &self.moved_from) {
            (Some(to), _) if to.done => Some(format!("the election has moved to {}", to.place)),
            (Some(to), _) => Some(format!("the election moves to {}", to.place)),
            (None, Some(from)) if !from.done => {
                Some(format!("the election moves here from {}, and is not open yet", from.place))
            }
            (None, _) => None,
        }
    }

    /// Whether no member may be named: see [`closed`](Self::closed).
    pub fn is_closed(&self) -> bool {
        self.closed().is_some()
    }

    /// The format that these orders need.
    pub const fn format(&self) -> u32 {
        if self.stopped.is_some() { Self::WITH_STOP } else { VERSION }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::NONE
    }
}

/// An operator's confirmation that leadership may move to a site automatically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Confirmed {
    /// From the leader of this term, until the next change of leader. The term of a slot is that in which it was
    /// decided.
    #[serde(with = "limits::decided")]
    pub term: u64,
    /// The site.
    pub site: SiteId,
    /// The author of the confirmation.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub by: String,
}

/// Why, by whom and when an order was given. It is part of the order's own JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct OrderedBy {
    /// The operator's reason.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::text::line")]
    pub reason: Option<String>,
    /// The operator.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "crate::text::line")]
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    #[serde(default, with = "limits::ms")]
    pub at_ms: u64,
}

/// An operator's order that a member is being serviced. It applies to every process of the member until it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Maintenance {
    /// The member.
    pub member: MemberId,
    /// Its site when the order was given, if it was a member then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteId>,
    /// Why, by whom and when.
    #[serde(flatten)]
    pub ordered: OrderedBy,
}

impl fmt::Display for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ordered.reason {
            Some(reason) => write!(f, "{} is in maintenance ({reason})", self.member),
            None => write!(f, "{} is in maintenance", self.member),
        }
    }
}

/// An operator's order that the job is stopped, from when the leader began to carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct StoppedJob {
    /// Why, by whom and when.
    #[serde(flatten)]
    pub ordered: OrderedBy,
}

impl fmt::Display for StoppedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderedBy { reason, by, .. } = &self.ordered;
        match reason {
            Some(reason) => write!(f, "stopped by {by} ({reason})"),
            None => write!(f, "stopped by {by}"),
        }
    }
}

/// An operator's order that the standby of a member is stopped, from when the member began to carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct StoppedStandby {
    /// The member.
    pub member: MemberId,
    /// Why, by whom and when.
    #[serde(flatten)]
    pub stopped: StoppedJob,
}

impl fmt::Display for StoppedStandby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the standby of {} is {}", self.member, self.stopped)
    }
}

/// A site that an operator has declared failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct FailedSite {
    /// The site.
    pub site: SiteId,
    /// Why, by whom and when.
    #[serde(flatten)]
    pub ordered: OrderedBy,
}

/// A move of an election to another ensemble or another root, as each of the two sides knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Move {
    /// The election on the other side.
    pub place: Place,
    /// Whether it is done: members may lead at the new place, and never again at the old one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub done: bool,
    /// Why, by whom and when.
    #[serde(flatten)]
    pub ordered: OrderedBy,
}

/// Where an election is, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Place {
    /// The servers of its ensemble, as the operator has named them. It has no part in the identity.
    #[serde(with = "crate::text::line")]
    pub servers: String,
    /// Its path there.
    #[serde(with = "crate::text::line")]
    pub path: String,
    /// The transaction that created it: another one after it was removed and created again.
    #[serde(with = "limits::zxid")]
    pub czxid: i64,
    /// When that was, in milliseconds since the Unix epoch, by the clock of a server.
    #[serde(with = "limits::ms")]
    pub created_ms: u64,
}

impl Place {
    /// Whether both are the same election, however its servers are named.
    pub fn is_same(&self, other: &Self) -> bool {
        let identity = |place: &Self| (place.czxid, place.created_ms);
        self.path == other.path && identity(self) == identity(other)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.path, self.servers)
    }
}

/// Whether the elector decides without an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The elector decides.
    #[default]
    Auto,
    /// Only operators' requests are carried out.
    Manual,
    /// Nothing is carried out. The elector only reports what it would decide.
    Observe,
}

impl Mode {
    /// Its name in records and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Observe => "observe",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
