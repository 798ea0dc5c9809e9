use election_core::record::{HistoryEntry, RecordError};
use serde::Serialize;

/// The leaderships that are kept, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// The election, which is the job's name.
    pub election: String,
    /// One per leadership: the record in ZooKeeper.
    pub leaderships: Vec<HistoryEntry>,
    /// Znodes that can't be used.
    pub unreadable: Vec<RecordError>,
}
