//! The application of a member: what a worker runs when it leads.

use election_core::{internals::Time, status::Ballot};

/// How far the application is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Preparing,
    TakingOver,
    Serving,
    Stopping,
    /// It has ended by itself, or its guard has ended it, without an order.
    Ended,
}

/// What happens to the application.
#[derive(Clone, Debug)]
pub(crate) enum JobDue {
    Prepared,
    PrepareFails,
    /// It writes to the resource.
    Acts,
    TakenOver,
    TakeoverFails(String),
    WorkEnds(String),
    Stopped,
    /// Whether a planned move may go on.
    Consents(bool),
    /// It has ended a while ago.
    LongEnded,
    /// The guard looks at the deadline.
    Guard,
}

/// The application.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub(crate) phase: Phase,
    /// Counts starts and ends: events for an earlier run are ignored.
    pub(crate) run: u64,
    /// Which slot it leads, given in which term, to which ballot.
    pub(crate) slot: usize,
    pub(crate) given: Option<(u64, Ballot)>,
    /// The token that it acts with, while it acts.
    pub(crate) token: Option<u64>,
    pub(crate) work_until: Option<Time>,
    /// Whether it rests.
    pub(crate) suspended: bool,
    /// When the stop that was asked for is over.
    pub(crate) stopped_at: Option<u64>,
    /// Whether that takes longer than a session lasts without being renewed.
    pub(crate) stops_long: bool,
}
