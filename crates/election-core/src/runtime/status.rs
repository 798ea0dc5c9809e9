//! A member's view of an election.

use std::sync::Arc;

use zk_session::BootTime;

use super::to_boot;
use crate::{
    engine::{Engine, Role, Skipped},
    ids::Ballot,
    record::{Current, Elected, Health},
    slots::Slots,
};

/// What a member is doing in an election, and its latest reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionStatus {
    /// What this member is doing.
    pub role: Role,
    /// Its ballot, if it is a candidate.
    pub ballot: Option<Ballot>,
    /// Whether its ballot is the lowest.
    pub is_elector: bool,
    /// The term of the decision about the slot that this member leads, takes over or releases. Otherwise the term of
    /// the latest decision, or of the leader while the decision can't be read. 0 before the first decision.
    pub term: u64,
    /// The fencing token of this member's leadership.
    pub fencing_token: Option<u64>,
    /// The newest fencing token that this member has seen: of any leader, from the creation of its leader znode on, or
    /// the base below all future ones.
    pub newest_token: u64,
    /// The latest read of the decision.
    pub elected: Option<Arc<Elected>>,
    /// The latest read of the leaders, by slot.
    pub leaders: Slots<Option<Arc<Current>>>,
    /// The slot that this member leads, takes over or releases.
    pub slot: Option<usize>,
    /// Until when a leader's work may continue.
    pub work_until: Option<BootTime>,
    /// Whether this member is fit to lead, by its latest report.
    pub health: Health,
    /// The present step, or why there is none, as text.
    pub note: Arc<str>,
    /// Why this member, as the elector, does not decide.
    pub skipped: Option<Arc<Skipped>>,
}

impl ElectionStatus {
    pub(super) fn of(engine: &Engine) -> Self {
        let (elected, leaders) = engine.records();
        let slot = engine.slot();
        let term_of = |elected: &Elected| slot.map_or(elected.term, |slot| elected.term_of(slot));
        let latest = leaders.iter().flatten().map(|current| current.term).max();
        // It may be asked about the next one.
        let own = slot.and_then(|slot| leaders.get(slot)?.as_deref());
        let own = own.filter(|current| engine.ballot().as_ref() == Some(&current.ballot)).map(|own| own.term);
        Self {
            role: engine.role(),
            ballot: engine.ballot(),
            is_elector: engine.is_elector(),
            // A leader that continues while `elected` is invalid still has its term.
            term: own.or_else(|| elected.as_deref().map(term_of)).or(latest).unwrap_or(0),
            fencing_token: engine.fencing_token(),
            newest_token: engine.newest_token(),
            elected,
            leaders,
            slot,
            work_until: engine.work_until().map(to_boot),
            health: engine.health().clone(),
            note: Arc::clone(engine.sentence()),
            skipped: engine.skipped().cloned(),
        }
    }

    /// Whether this member is the READY leader, and its lease is valid now.
    pub fn leads_now(&self) -> bool {
        self.role == Role::Leader && self.work_until.is_some_and(|until| BootTime::now() < until)
    }
}
