use std::fmt;

use serde::{Deserialize, Serialize};

use super::Slot;
use crate::ids::{Ballot, MemberId, SiteId};

/// The decision in `leader/elected`. Written by compare-and-set only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Elected {
    /// Format version.
    pub v: u32,
    /// Grows by one with each decision.
    pub term: u64,
    /// Who should lead each slot.
    pub slots: Vec<Slot>,
    /// Who follows, first in line first, if a leader vanishes; a slot can have a line
    /// of its own.
    #[serde(default)]
    pub succession: Vec<Named>,
    /// Who may not be named for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusions: Vec<Exclusion>,
    /// When decisions that nobody ordered were taken lately, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<u64>,
    /// Which members have failed lately, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Which sites have failed as a whole lately, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site_failures: Vec<SiteFailure>,
    /// Added to the czxid to make the fencing token. Only an operator raises it, after
    /// the ensemble was restored from a copy.
    #[serde(default)]
    pub token_base: u64,
    /// Why this term began.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who wrote it: a member, or an operator.
    pub decided_by: String,
    /// When, in milliseconds since the Unix epoch.
    pub decided_at_ms: u64,
    /// When the deciding side noticed that there was something to decide.
    #[serde(default)]
    pub noticed_at_ms: u64,
    /// The operator's request that this term carries out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The latest request that has been decided, in this term or in one before:
    /// what stands at or before it is never decided a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request: Option<String>,
    /// Who led before this term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

impl Elected {
    /// The same, as a program reads it that knows this format.
    #[must_use]
    pub(crate) fn in_format(self, format: u32) -> Self {
        Self { v: format, cause: self.cause.in_format(format), ..self }
    }

    /// Whether `ballot` is excluded at `unix_ms`.
    pub fn excluded(&self, ballot: &Ballot, unix_ms: u64) -> Option<&Exclusion> {
        self.exclusions.iter().find(|e| e.ballot == *ballot && e.until_ms > unix_ms)
    }
}

/// A member that is named, by its ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stands.
    pub site: SiteId,
}

/// A ballot that may not be named for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Exclusion {
    /// Whose.
    pub member: MemberId,
    /// Which incarnation: a repaired restart is somebody else.
    pub ballot: Ballot,
    /// Until when, in milliseconds since the Unix epoch.
    pub until_ms: u64,
    /// Why, in words.
    pub reason: String,
}

/// A leadership that a member could not take over or keep up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Failure {
    /// Whose: the id, so that a restart does not forget it.
    pub member: MemberId,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The word for the [`Cause`] of the decision that followed; any text, for a later program
    /// may know more of them.
    pub cause: String,
}

/// A site that has failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct SiteFailure {
    /// Which.
    pub site: SiteId,
    /// When that was noticed, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Why, in words.
    pub why: String,
    /// Whether it is over.
    #[serde(default)]
    pub over: bool,
}

/// The leader before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Previous {
    /// Its id.
    pub member: MemberId,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// Where it stood.
    pub site: SiteId,
}

/// Why a decision is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// Nobody has been named yet.
    Startup,
    /// A candidate appeared where there was none.
    MemberJoined,
    /// The one who was named has vanished.
    LeaderLost,
    /// The one who was named is not fit any more.
    Unhealthy,
    /// The site of the one who was named has failed as a whole: an operator says so, or most of its
    /// own members.
    SiteFailed,
    /// Enough members have lost the one who was in office; the resource is fenced.
    Suspected,
    /// The one who was named did not take over in time, or failed to.
    TakeoverFailed,
    /// The leader gave up, for its work could not be kept running.
    Resigned,
    /// An operator planned it.
    Switchover,
    /// An operator forced it.
    Failover,
    /// Somebody else is better by enough, for long enough.
    BetterCandidate,
    /// An operator has raised the base of the tokens; whoever leads takes its office up
    /// anew.
    TokensRaised,
    /// The number of slots has been changed.
    SlotsChanged,
    /// An operator's standing order, or the configuration, says that the one who was
    /// named is not to lead.
    StandingOrder,
}

impl Cause {
    /// The same, as far as a program can say it that reads up to this format.
    pub(crate) const fn in_format(self, format: u32) -> Self {
        match self {
            Self::Suspected if format < 2 => Self::LeaderLost,
            Self::SiteFailed if format < 3 => Self::Unhealthy,
            Self::TokensRaised if format < 2 => Self::Switchover,
            Self::SlotsChanged if format < 2 => Self::MemberJoined,
            Self::StandingOrder if format < 3 => Self::BetterCandidate,
            cause => cause,
        }
    }

    /// Every cause, in the order of its definition.
    pub const ALL: [Self; 14] = [
        Self::Startup,
        Self::MemberJoined,
        Self::LeaderLost,
        Self::Unhealthy,
        Self::SiteFailed,
        Self::Suspected,
        Self::TakeoverFailed,
        Self::Resigned,
        Self::Switchover,
        Self::Failover,
        Self::BetterCandidate,
        Self::TokensRaised,
        Self::SlotsChanged,
        Self::StandingOrder,
    ];

    /// The word for it in records, metrics and the job's environment.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::MemberJoined => "member-joined",
            Self::LeaderLost => "leader-lost",
            Self::Unhealthy => "unhealthy",
            Self::SiteFailed => "site-failed",
            Self::Suspected => "suspected",
            Self::TakeoverFailed => "takeover-failed",
            Self::Resigned => "resigned",
            Self::Switchover => "switchover",
            Self::Failover => "failover",
            Self::BetterCandidate => "better-candidate",
            Self::TokensRaised => "tokens-raised",
            Self::SlotsChanged => "slots-changed",
            Self::StandingOrder => "standing-order",
        }
    }

    /// Whether the leader before is to be counted as failed, so that a policy of
    /// 'another site than the failed leader's' applies.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::LeaderLost
                | Self::Unhealthy
                | Self::SiteFailed
                | Self::Suspected
                | Self::TakeoverFailed
                | Self::Resigned
                | Self::Failover
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_a_cause_is_its_json() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{cause}\""));
        }
    }
}
