use election_core::{
    Ballot, MemberId, SiteId,
    record::{Cause, HistoryEntry, Phases, RecordError},
};
use serde::Serialize;

use super::Unreadable;

/// The leaderships that are kept, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// The election, which is the job's name.
    pub election: String,
    /// One per leadership.
    pub leaderships: Vec<HistoryRow>,
    /// Znodes that can't be used.
    pub unreadable: Vec<Unreadable>,
}

/// One leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryRow {
    /// The term.
    pub term: u64,
    /// Who led.
    pub member: MemberId,
    /// Where it stood.
    pub site: SiteId,
    /// Which slot it led, counted from 0.
    pub slot: usize,
    /// Which incarnation of it.
    pub ballot: Ballot,
    /// The fencing token of this leadership.
    pub fencing_token: u64,
    /// Why leadership changed.
    pub cause: Cause,
    /// The decision in words.
    pub sentence: String,
    /// Who led before.
    pub previous: Option<MemberId>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub ready_ms: u64,
    /// How long each phase of the change took.
    pub phases: Phases,
}

impl History {
    /// From what was read.
    pub fn new(election: &str, entries: Vec<HistoryEntry>, unreadable: Vec<RecordError>) -> Self {
        Self {
            election: election.to_owned(),
            leaderships: entries.into_iter().map(HistoryRow::from).collect(),
            unreadable: unreadable.into_iter().map(Unreadable::from).collect(),
        }
    }
}

impl From<HistoryEntry> for HistoryRow {
    fn from(entry: HistoryEntry) -> Self {
        Self {
            term: entry.term,
            member: entry.member,
            site: entry.site,
            slot: entry.slot,
            ballot: entry.ballot,
            fencing_token: entry.fencing_token,
            cause: entry.cause,
            sentence: entry.sentence,
            previous: entry.previous.map(|p| p.member),
            ready_ms: entry.ready_ms,
            phases: entry.phases,
        }
    }
}
