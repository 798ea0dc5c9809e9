//! What an election looks like from outside.

use zk_session::BootTime;

use super::to_boot;
use crate::{
    engine::{Engine, Role},
    ids::Ballot,
    record::{Current, Elected},
};

/// What a member is doing in an election, and what it has read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionStatus {
    /// What this member is doing.
    pub role: Role,
    /// Its ballot, once it stands in the election.
    pub ballot: Option<Ballot>,
    /// Whether its ballot is the lowest.
    pub is_elector: bool,
    /// The decision's term, or while that can't be read the term of who is in office;
    /// 0 before the first.
    pub term: u64,
    /// The fencing token of the leadership that this member holds.
    pub fencing_token: Option<u64>,
    /// The decision as last read.
    pub elected: Option<Elected>,
    /// Who is in office, as last read.
    pub current: Option<Current>,
    /// Until when a leader's work may go on.
    pub work_until: Option<BootTime>,
    /// What is being done, or why nothing is, in words.
    pub note: String,
}

impl ElectionStatus {
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            role: engine.role(),
            ballot: engine.ballot(),
            is_elector: engine.is_elector(),
            // A leader that goes on while `elected` holds garbage still has its term.
            term: engine.elected().map(|e| e.term).or(engine.current().map(|c| c.term)).unwrap_or(0),
            fencing_token: engine.fencing_token(),
            elected: engine.elected().cloned(),
            current: engine.current().cloned(),
            work_until: engine.work_until().map(to_boot),
            note: engine.sentence().to_owned(),
        }
    }

    /// Whether this member is the READY leader, and its lease is valid now.
    pub fn leads_now(&self) -> bool {
        self.role == Role::Leader && self.work_until.is_some_and(|until| BootTime::now() < until)
    }
}
