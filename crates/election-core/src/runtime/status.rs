//! What an election looks like from outside.

use zk_session::BootTime;

use super::to_boot;
use crate::{
    engine::{Engine, Role, Skipped},
    ids::Ballot,
    record::{Current, Elected, Health},
};

/// What a member is doing in an election, and what it has read last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionStatus {
    /// What this member is doing.
    pub role: Role,
    /// Its ballot, once it is a candidate.
    pub ballot: Option<Ballot>,
    /// Whether its ballot is the lowest.
    pub is_elector: bool,
    /// The term in which the slot was decided that this member leads, or is on its way to
    /// or from, and of the latest decision otherwise; while that can't be read the term of
    /// the leader; 0 before the first.
    pub term: u64,
    /// The fencing token of the leadership that this member holds.
    pub fencing_token: Option<u64>,
    /// The decision as last read.
    pub elected: Option<Elected>,
    /// The leaders, by slot, as last read.
    pub leaders: Vec<Option<Current>>,
    /// The slot that this member leads, or is on its way to or from.
    pub slot: Option<usize>,
    /// Until when a leader's work may go on.
    pub work_until: Option<BootTime>,
    /// Whether this member is fit to lead, by its last report.
    pub health: Health,
    /// What is being done, or why nothing is, in words.
    pub note: String,
    /// Why this member, as the elector, decides nothing.
    pub skipped: Option<Skipped>,
}

impl ElectionStatus {
    pub(super) fn of(engine: &Engine) -> Self {
        let leaders: Vec<_> = engine.leaders().map(|current| current.cloned()).collect();
        let slot = engine.slot();
        let term_of = |elected: &Elected| slot.map_or(elected.term, |slot| elected.term_of(slot));
        let latest = leaders.iter().flatten().map(|current| current.term).max();
        Self {
            role: engine.role(),
            ballot: engine.ballot(),
            is_elector: engine.is_elector(),
            // A leader that goes on while `elected` holds garbage still has its term.
            term: engine.elected().map(term_of).or(latest).unwrap_or(0),
            fencing_token: engine.fencing_token(),
            elected: engine.elected().cloned(),
            leaders,
            slot,
            work_until: engine.work_until().map(to_boot),
            health: engine.health().clone(),
            note: engine.sentence().to_owned(),
            skipped: engine.skipped().cloned(),
        }
    }

    /// Whether this member is the READY leader, and its lease is valid now.
    pub fn leads_now(&self) -> bool {
        self.role == Role::Leader && self.work_until.is_some_and(|until| BootTime::now() < until)
    }
}
