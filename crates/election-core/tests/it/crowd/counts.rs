//! What members cost the servers.

use std::ops::{AddAssign, Sub};

/// Requests and notifications, without pings and probes, which depend on the session timeout alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that a server answers by itself.
    pub(crate) reads: u64,
    /// Requests that go through the log of the ensemble, also those that it refuses.
    pub(crate) writes: u64,
    /// Heartbeats of leases, which go through the log too.
    pub(crate) heartbeats: u64,
    /// Notifications of watches.
    pub(crate) events: u64,
    /// Names in lists of children.
    pub(crate) names: u64,
}

impl Counts {
    pub(crate) fn requests(&self) -> u64 {
        self.reads + self.writes
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.heartbeats += other.heartbeats;
        self.events += other.events;
        self.names += other.names;
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            heartbeats: self.heartbeats - before.heartbeats,
            events: self.events - before.events,
            names: self.names - before.names,
        }
    }
}

/// Members that have the same part in what happens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub(crate) members: usize,
    pub(crate) total: Counts,
    /// The most requests and the most notifications of one of them.
    pub(crate) most_requests: u64,
    pub(crate) most_events: u64,
}

impl Group {
    pub(crate) fn add(&mut self, counts: Counts) {
        self.members += 1;
        self.total += counts;
        self.most_requests = self.most_requests.max(counts.requests());
        self.most_events = self.most_events.max(counts.events);
    }
}
