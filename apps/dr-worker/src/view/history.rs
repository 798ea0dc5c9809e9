use election_core::internals::record::{HistoryEntry, RecordError};
use schemars::JsonSchema;
use serde::Serialize;

use crate::schema::Object;

/// The recorded leaderships, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct History {
    /// The election's name: the job.
    pub election: String,
    /// One per leadership: the record in ZooKeeper.
    #[schemars(with = "Vec<Object>")]
    pub leaderships: Vec<HistoryEntry>,
    /// Unreadable znodes.
    #[schemars(with = "Vec<Object>")]
    pub unreadable: Vec<RecordError>,
}
