use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{VERSION, format::is_false};
use crate::ids::{MemberId, SiteId};

/// Which request: a name is given out again once `requests` was deleted, a creation never.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
pub struct RequestRef {
    /// The transaction that created it.
    pub czxid: i64,
    /// Its name under `requests`.
    pub name: String,
}

/// A request, and which one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FiledRequest {
    /// Which.
    pub which: RequestRef,
    /// What it says.
    pub request: Request,
}

/// One operator's request, in `requests/r-<seq>`, with its progress and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[non_exhaustive]
pub struct Request {
    /// Format version.
    pub v: u32,
    /// Unique, made by whoever asked: it makes a lost reply recoverable.
    pub id: String,
    /// What is asked for.
    pub kind: RequestKind,
    /// Who or where should lead then.
    #[serde(default)]
    pub to: Target,
    /// Which leader it is about.
    #[serde(default, skip_serializing_if = "Outgoing::is_only")]
    pub from: Outgoing,
    /// Take leadership from a leader that won't let go. Two may then act for a
    /// moment: the resource must check tokens.
    #[serde(default)]
    pub force: bool,
    /// Name also who would lead with a loss, such as a replica that lags too far behind.
    #[serde(default, skip_serializing_if = "is_false")]
    pub accept_loss: bool,
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who asked.
    pub by: String,
    /// When, in milliseconds since the Unix epoch, by the clock of the machine that asked. For people: no
    /// decision rests on it.
    pub created_ms: u64,
    /// How long it may be begun, in milliseconds; see [`Request::valid_for`].
    #[serde(default = "usual_validity")]
    pub valid_for_ms: u64,
    /// How far it is.
    pub state: RequestState,
}

const fn usual_validity() -> u64 {
    60_000
}

impl Request {
    /// A pending request about the only leader, without force, for `by`; valid for
    /// [`USUAL_VALIDITY`](Self::USUAL_VALIDITY). `id` is unique.
    pub fn new(id: String, kind: RequestKind, to: Target, by: String, created_ms: u64) -> Self {
        Self {
            v: VERSION,
            id,
            kind,
            to,
            from: Outgoing::Only,
            force: false,
            accept_loss: false,
            reason: None,
            by,
            created_ms,
            valid_for_ms: usual_validity(),
            state: RequestState::Pending,
        }
    }

    /// How long a request is valid that does not say so.
    pub const USUAL_VALIDITY: Duration = Duration::from_millis(usual_validity());

    /// How long it may be begun. An elector counts from when it first read the request, by its own steady
    /// clock, and takes off what ZooKeeper's times show to have passed before. What was begun is
    /// brought to its end, however long that takes.
    pub const fn valid_for(&self) -> Duration {
        Duration::from_millis(self.valid_for_ms)
    }

    /// The same request, valid for this long.
    #[must_use]
    pub fn with_validity(self, valid_for: Duration) -> Self {
        Self { valid_for_ms: u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX), ..self }
    }
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// A planned move: the leader is alive and cooperates.
    Switchover,
    /// An unplanned move.
    Failover,
}

impl RequestKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Switchover => "switchover",
            Self::Failover => "failover",
        }
    }
}

/// Who or where should lead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Anyone but the present leader, as the strategy says.
    #[default]
    Any,
    /// This member.
    Member(MemberId),
    /// The best of this site.
    Site(SiteId),
}

/// Which leader is to be replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outgoing {
    /// The only one that there is; in a failover with several slots, the only one that
    /// has no READY leader.
    #[default]
    Only,
    /// The one that this member leads, or is named for.
    Member(MemberId),
    /// The leader of this slot, counted from 0.
    Slot(usize),
}

impl Outgoing {
    /// Whether it names none in particular.
    pub const fn is_only(&self) -> bool {
        matches!(self, Self::Only)
    }
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RequestState {
    /// Not looked at yet.
    Pending,
    /// Decided; the new leader is not READY yet.
    Accepted {
        /// The term that carries it out.
        term: u64,
    },
    /// Carried out.
    Done {
        /// The term that carried it out.
        term: u64,
        /// Who leads now.
        leader: MemberId,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// Not carried out, or carried out and failed.
    Failed {
        /// Why, in words.
        reason: String,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// Not begun before its validity was over, and never will be.
    Expired {
        /// How long it was valid, in words.
        reason: String,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
    /// Withdrawn before it was begun, and never will be.
    Cancelled {
        /// By whom and why, in words.
        reason: String,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
    },
}

impl RequestState {
    /// How it ended without having been carried out, or without success, in words.
    pub fn failure(&self) -> Option<String> {
        match self {
            Self::Failed { reason, .. } => Some(reason.clone()),
            Self::Expired { .. } | Self::Cancelled { .. } => Some(self.to_string()),
            Self::Pending | Self::Accepted { .. } | Self::Done { .. } => None,
        }
    }

    /// Whether nothing more will happen to it.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Done { .. } | Self::Failed { .. } | Self::Expired { .. } | Self::Cancelled { .. }
        )
    }
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("pending: no elector has begun it yet"),
            Self::Accepted { term } => write!(f, "begun in term {term}; the new leader is not ready yet"),
            Self::Done { term, leader, .. } => write!(f, "done in term {term}: {leader} leads"),
            Self::Failed { reason, .. } => write!(f, "failed: {reason}"),
            Self::Expired { reason, .. } => write!(f, "expired: {reason}"),
            Self::Cancelled { reason, .. } => write!(f, "cancelled {reason}"),
        }
    }
}
