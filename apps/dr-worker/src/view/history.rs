use election_core::internals::record::{HistoryEntry, RecordError};
use serde::Serialize;

/// The recorded leaderships, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// The election's name: the job.
    pub election: String,
    /// One per leadership: the record in ZooKeeper.
    pub leaderships: Vec<HistoryEntry>,
    /// Unreadable znodes.
    pub unreadable: Vec<RecordError>,
}
