//! What a policy needs of its members, and what they publish.

use std::collections::BTreeSet;

use crate::meter::Publishing;

/// What the members publish besides their configuration. A policy that uses anything else is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inputs {
    /// Their round trips, and how exactly they are published.
    pub round_trips: Option<Publishing>,
    /// Attributes that they measure while they run.
    pub measured: bool,
    /// The load of the other jobs that they lead ([`published`](crate::published)); and the program reads where other jobs are
    /// led ([`other_jobs`](crate::other_jobs)).
    pub jobs: bool,
}

impl Inputs {
    /// Everything, published as usual.
    pub const ALL: Self = Self { round_trips: Some(Publishing::USUAL), measured: true, jobs: true };

    /// The same with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// What a policy uses that its members must measure or publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// Round trips to the other members.
    pub peers: bool,
    /// The round trip to ZooKeeper.
    pub zookeeper: bool,
    /// Round trips to targets, by their names.
    pub targets: BTreeSet<String>,
    /// Attributes that it limits.
    pub limited: BTreeSet<String>,
    /// Other jobs that it leads beside, or apart from.
    pub jobs: BTreeSet<String>,
    /// The load of all that a member leads.
    pub load: bool,
}

impl Needs {
    /// The same with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether it needs nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.peers |= other.peers;
        self.zookeeper |= other.zookeeper;
        self.load |= other.load;
        self.targets.extend(other.targets.iter().cloned());
        self.limited.extend(other.limited.iter().cloned());
        self.jobs.extend(other.jobs.iter().cloned());
    }
}
