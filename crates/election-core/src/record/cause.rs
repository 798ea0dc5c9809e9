use std::fmt;

use serde::{Deserialize, Serialize};

/// The cause of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// No member has been named yet.
    Startup,
    /// The first candidate has joined after a time without candidates.
    MemberJoined,
    /// The named member has vanished.
    LeaderLost,
    /// The named member is no longer fit to lead.
    Unhealthy,
    /// The site of the named member has failed as a whole, as declared by an operator or by most of its own members.
    SiteFailed,
    /// Enough members can't reach the leader; the resource is fenced.
    Suspected,
    /// The named member did not take over in time, or its takeover failed.
    TakeoverFailed,
    /// The work of the leader could not be kept running.
    WorkFailed,
    /// The leader resigned, or its work was finished.
    Resigned,
    /// The leader was asked to leave, for example by a signal to its process.
    LeaderShutdown,
    /// An operator requested a switchover.
    Switchover,
    /// An operator forced a failover.
    Failover,
    /// Another candidate has been better by enough, for long enough.
    BetterCandidate,
    /// An operator has raised the base of the tokens; the leader acquires leadership again.
    TokensRaised,
    /// The number of slots has been changed.
    SlotsChanged,
    /// By an operator's standing order or the configuration, the named member must not lead.
    StandingOrder,
    /// The leader has called a planned move off, and leads on in its term.
    CalledOff,
}

impl Cause {
    /// Every cause, in the order of its definition.
    pub const ALL: [Self; 17] = [
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
        Self::CalledOff,
    ];

    /// Its name in records, metrics and the job's environment.
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
            Self::CalledOff => "called-off",
        }
    }

    /// Whether a decision of this cause is a planned move that the leader may call off: it is fit to lead on. A failover may not
    /// be, and a leader that leaves can't lead on.
    pub const fn can_be_called_off(self) -> bool {
        matches!(self, Self::Switchover | Self::BetterCandidate | Self::StandingOrder)
    }

    /// Whether the previous leader counts as failed, so that a policy of 'another site than the failed leader's'
    /// applies.
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
