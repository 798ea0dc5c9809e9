use serde::{Deserialize, Serialize};

use crate::ids::{MemberId, SiteId};

/// One operator's request, in `requests/r-<seq>`, with its progress and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
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
    /// Why, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who asked.
    pub by: String,
    /// When, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// How far it is.
    pub state: RequestState,
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
}

impl RequestState {
    /// Whether nothing more will happen to it.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. })
    }
}
