use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// The work of the leader could not be kept running.
    WorkFailed,
    /// The leader gave up by its own wish, or its work was finished.
    Resigned,
    /// The leader was asked to leave, as by a signal to its process.
    LeaderShutdown,
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
    /// Every cause, in the order of its definition.
    pub const ALL: [Self; 16] = [
        Self::Startup,
        Self::MemberJoined,
        Self::LeaderLost,
        Self::Unhealthy,
        Self::SiteFailed,
        Self::Suspected,
        Self::TakeoverFailed,
        Self::WorkFailed,
        Self::Resigned,
        Self::LeaderShutdown,
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
            Self::WorkFailed => "work-failed",
            Self::Resigned => "resigned",
            Self::LeaderShutdown => "leader-shutdown",
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
                | Self::WorkFailed
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
