//! What this member has read, and what it derives from that: the last known content of the znodes, the memory of what
//! was decided, which leaders were seen, and what must be read again.

pub(crate) mod memory;
pub(crate) mod rereading;
pub(crate) mod tenure;
pub(crate) mod view;

use super::{tokens::fencing_token, znode::Known};
use crate::record::{Elected, Named, Remembered};
use memory::Memory;
use rereading::Rereading;
use tenure::Tenure;
use view::View;

/// What this member has read.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Reading {
    pub(crate) view: View,
    pub(crate) memory: Memory,
    /// By slot.
    pub(crate) tenures: Vec<Tenure>,
    pub(crate) rereading: Rereading,
    /// The version of the ballots' parent, read after a write over the decision was refused, and before the decision in the view.
    pub(crate) generation_read: Option<i32>,
}

impl Reading {
    /// Forgets everything of a former session, except the memory of what was decided.
    pub(crate) fn forget(&mut self) {
        self.view = View::default();
        self.generation_read = None;
        self.memory.forget_session();
    }

    // ---- what was decided ----

    /// The version that the ballots' parent has, as far as is known. If it has another one, the decision in the view was deleted.
    pub(crate) fn generation(&self) -> i32 {
        let kept = || self.memory.decision.as_ref().map(|kept| &kept.0);
        let decided = self.view.elected.record().or_else(kept).map(|elected| elected.generation);
        self.generation_read.or(decided).unwrap_or(0)
    }

    /// The latest decision that it has seen, while the decision in ZooKeeper is missing or older.
    pub(crate) fn remembers(&self) -> Option<Remembered> {
        match &self.view.elected {
            Known::Absent => self.memory.remembered(0),
            Known::Present(elected, meta) => {
                let remembered = self.memory.remembered(elected.token_base)?;
                Some(remembered).filter(|remembered| remembered.is_newer_than(elected, meta.mzxid))
            }
            Known::Unread | Known::Unreadable(..) => None,
        }
    }

    /// Learns the tokens of the leaders in the view. A job has its token from the creation of the leader znode on,
    /// long before the record of that has it.
    pub(crate) fn learn_tokens(&mut self, is_contest: bool) {
        let elected = self.view.elected.record().filter(|_| !is_contest);
        let contest_base =
            self.view.tokens.record().filter(|_| is_contest).map_or(0, |tokens| tokens.token_base);
        for (slot, leader) in self.view.leaders() {
            let Some(meta) = leader.meta() else { continue };
            if is_contest {
                // A server shows no earlier state than that in which this session began.
                self.memory.created(meta.czxid);
            }
            let current = leader.record();
            // A leader of a former term may have begun below the present base. In a contest that is not known before it
            // is READY.
            let decided = elected.filter(|e| current.is_some_and(|current| current.term >= e.term_of(slot)));
            let base = decided.map_or(contest_base, |elected| elected.token_base);
            let computed = fencing_token(meta.czxid, base);
            self.memory.saw_leader(meta, computed.max(current.and_then(|current| current.fencing_token)));
        }
    }

    /// The newest token that was seen, or the base below all future ones.
    pub(crate) fn newest_token(&self) -> u64 {
        let base = self.view.elected.record().map_or(0, |elected| elected.token_base);
        self.memory.token().max(base)
    }

    // ---- which leaders were seen ----

    /// Keeps the memory of which leaders were seen, after the view has changed.
    pub(crate) fn remember_tenures(&mut self, slots: usize, unix_ms: u64) {
        self.tenures.resize_with(slots, Tenure::default);
        let elected = self.view.elected.record();
        for (slot, tenure) in self.tenures.iter_mut().enumerate() {
            let decided = elected.map(|e| (e.term_of(slot), e.named(slot).map(|n| &n.ballot)));
            tenure.look(decided, self.view.leader(slot), unix_ms);
        }
    }

    /// Clears the memory: at the end of the session, and if the ensemble returned to an older state, in which terms
    /// are given out again.
    pub(crate) fn forget_tenures(&mut self) {
        self.tenures.iter_mut().for_each(Tenure::forget);
    }

    /// Whether the member that is named for `slot` was seen as its leader in this very term, and its leader znode has
    /// become free since.
    pub(crate) fn has_vanished(&self, elected: &Elected, slot: usize) -> bool {
        let has_vanished = |named: &Named| {
            let tenure = self.tenures.get(slot);
            tenure.is_some_and(|tenure| tenure.has_vanished(elected.term_of(slot), &named.ballot))
        };
        let seen = elected.named(slot).is_some_and(has_vanished);
        seen && *self.view.leader(slot) == Known::Absent
    }

    /// Since when the leader znode of `slot` is free, in milliseconds since the Unix epoch.
    pub(crate) fn free_since_ms(&self, slot: usize) -> Option<u64> {
        self.tenures.get(slot)?.free_since_ms
    }
}
