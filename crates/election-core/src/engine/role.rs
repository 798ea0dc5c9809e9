//! What a member is doing.

use std::fmt;

use super::{Engine, leader::LeadershipState};

/// What a member is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Not in the election (yet).
    Joining,
    /// In the election, and not leading.
    Standby,
    /// Named, or in PROGRESS.
    TakingOver,
    /// READY.
    Leader,
    /// Ending its work, or releasing leadership.
    SteppingDown,
    /// Not to be named for a while.
    Excluded,
}

impl Role {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Standby => "standby",
            Self::TakingOver => "taking-over",
            Self::Leader => "leader",
            Self::SteppingDown => "stepping-down",
            Self::Excluded => "excluded",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Engine {
    /// What this member is doing.
    pub fn role(&self) -> Role {
        match self.leader.state() {
            LeadershipState::Held(held) if held.leads() => Role::Leader,
            LeadershipState::Acquiring(_) | LeadershipState::Held(_) => Role::TakingOver,
            LeadershipState::Stopping(_) | LeadershipState::Releasing(_) => Role::SteppingDown,
            LeadershipState::Idle | LeadershipState::Cleaning if self.candidacy.is_paused() => Role::Excluded,
            LeadershipState::Idle | LeadershipState::Cleaning => {
                let Some(ballot) = self.ballot() else { return Role::Joining };
                let exclusion = self.elected().and_then(|e| e.excluded(&ballot, self.core.now.unix_ms));
                if exclusion.is_some() { Role::Excluded } else { Role::Standby }
            }
        }
    }
}
