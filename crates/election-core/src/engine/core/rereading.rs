//! Reads doubtful znodes again: see [`Rereading`](crate::engine::reading::rereading::Rereading).

use super::Core;
use crate::engine::{
    io::{Node, Outcome, ZkOp},
    ops::Pending,
    znode::{Known, Meta, Znode},
};

impl Core {
    /// The connection was lost, and has returned: what is known is read again. A leader znode of this session may
    /// exist again where there was none, and a leaving member has no watch on it any more.
    pub(crate) fn doubt_all(&mut self) {
        let known = |engine: &Self, znode| engine.known(znode).is_some();
        if known(self, Znode::Decision) || (self.own.leaving.is_asked() && !self.is_contest()) {
            self.doubt(Znode::Decision);
        }
        for znode in (0..self.slots_watched()).map(Znode::Leader) {
            if known(self, znode) || !self.is_contest() {
                self.doubt(znode);
            }
        }
    }

    /// What a passive member has read may be old.
    pub(crate) fn read_decision_again(&mut self) {
        if self.known(Znode::Decision).is_some() {
            self.doubt(Znode::Decision);
            self.advance_rereading();
        }
    }

    /// The ballots' parent was read, after a write over the decision was refused. Returns whether its version is another one than
    /// that write required. The decision is read once more, so that it is not older.
    pub(crate) fn learn_generation(&mut self, parent: Option<&Node>) -> bool {
        let required = self.reading.generation();
        let version = parent.map_or(0, |parent| parent.version);
        self.reading.generation_read = Some(version);
        self.read_decision_again();
        version != required
    }

    /// The decision has more slots than were known.
    pub(crate) fn doubt_unread_leader_znodes(&mut self) {
        for slot in 0..self.slots_watched() {
            if *self.reading.view.leader(slot) == Known::Unread {
                self.doubt(Znode::Leader(slot));
            }
        }
    }

    /// The leader znode changes: earlier reports of watches, and reads under way, do not count any more.
    pub(crate) fn forget_rereading(&mut self) {
        self.reading.rereading = Default::default();
        self.ops.forget_reads();
    }

    fn doubt(&mut self, znode: Znode) {
        self.reading.rereading.doubt(znode, self.now.time);
    }

    pub(crate) fn advance_rereading(&mut self) {
        for znode in self.reading.rereading.due(&self.ops, self.now.time) {
            if self.perform(ZkOp::Get(self.path_of(znode)), Pending::Reread(znode)) {
                self.reading.rereading.begun(znode);
            }
        }
    }

    /// Returns the slot whose leader znode was read.
    #[must_use]
    pub(crate) fn reread_done(&mut self, znode: Znode, outcome: &Outcome) -> Option<usize> {
        let mut seen = None;
        if let Outcome::Got(node) = outcome {
            self.reading.rereading.is_read(znode);
            seen = self.see(znode, node.as_ref());
        }
        self.compare_view(znode);
        seen
    }

    pub(crate) fn compare_view(&mut self, znode: Znode) {
        let known = self.known(znode);
        self.reading.rereading.compare(znode, known, &self.ops, self.now.time);
    }

    fn see(&mut self, znode: Znode, node: Option<&Node>) -> Option<usize> {
        match znode {
            Znode::Decision => {
                self.see_elected(node);
                None
            }
            Znode::Leader(slot) => {
                self.see_leader_znode(slot, node);
                Some(slot)
            }
        }
    }

    fn path_of(&self, znode: Znode) -> String {
        match znode {
            Znode::Decision => self.config.paths.elected(),
            Znode::Leader(slot) => self.leader_znode_path(slot),
        }
    }

    fn known(&self, znode: Znode) -> Option<Meta> {
        match znode {
            Znode::Decision => self.reading.view.elected.meta(),
            Znode::Leader(slot) => self.reading.view.leader(slot).meta(),
        }
    }

    // ---- own reads ----

    /// What this path holds, if it is about to be read, and what is known of it.
    pub(super) fn reads(&self, path: &str) -> Option<(Znode, Meta)> {
        let leaders = self.reading.view.leaders().map(|(slot, _)| Znode::Leader(slot));
        let mut znodes = [Znode::Decision].into_iter().chain(leaders);
        let znode = znodes.find(|znode| self.path_of(*znode) == path)?;
        Some((znode, self.known(znode)?))
    }

    /// An own read has ended: if the ensemble returned to an older state, the view follows. Returns the slot whose
    /// leader znode was taken into the view again.
    #[must_use]
    pub(crate) fn read_ended(&mut self, znode: Znode, known: Meta, outcome: &Outcome) -> Option<usize> {
        let Outcome::Got(node) = outcome else { return None };
        self.reading.rereading.is_read(znode);
        self.compare_view(znode);
        let node = node.as_ref()?;
        if self.known(znode) != Some(known) || known.mzxid <= node.mzxid {
            return None;
        }
        let text = format!(
            "{} is older than what was known of it (transaction {:#x} after {:#x}): the ensemble was restored \
             from an older copy",
            self.path_of(znode),
            node.mzxid,
            known.mzxid
        );
        self.trouble(text);
        self.reading.forget_tenures();
        match znode {
            Znode::Decision => {
                // The leader znodes were read at another time than this decision.
                for slot in 0..self.slots_watched() {
                    if self.reading.rereading.doubts_leader_znode(slot) {
                        self.reading.view.forget_leader_znode(slot);
                    }
                }
                self.take_elected(Some(node));
                None
            }
            Znode::Leader(slot) => {
                self.reading.view.forget_leader_znode(slot);
                self.see(znode, Some(node))
            }
        }
    }
}
