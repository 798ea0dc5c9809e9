//! Reading the decision and the leaders' places once more where nothing else would.
//!
//! A watch tells each value that differs from the one it told before. What this
//! member reads itself, or knows from its own writes, can be a value that no watch
//! ever tells: a place that was created and is gone again before the watch came to
//! read it. Nothing would then correct the view. So what differs from the watch's
//! last word is read again, until both agree.
//!
//! While the connection was lost, the ensemble can have been restored from an older copy: no reading
//! of a znode is then ever as new as what is known of it, and the watch may tell nothing, for servers compare with
//! what the client has seen. So all is read once after each reconnect, and the elector decides nothing before it
//! has read the decision.
//!
//! A watch's reading that is older than what is known changes nothing: an own write can have overtaken it. An own
//! read counts whatever its age, if it was begun after the view came to know what it knows: servers answer a
//! session's requests in order, and accept no client that has seen more than they have. So where its answer is
//! older, the ensemble went back.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Engine,
    io::{Level, Node, NoteKind, OpId, Outcome, Request},
    view::{Known, Meta},
};
use crate::time::Time;

/// How long a watch may lag before the znode is read without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verified {
    Decision,
    /// The place of the leader of this slot.
    Place(usize),
}

/// What the watches have told, and where the view differs.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Verification {
    decision: Told,
    /// By slot.
    places: Vec<Told>,
    /// Own reads under way, and what was known when each was begun.
    reads: BTreeMap<OpId, (Verified, Meta)>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Told {
    /// Creation and last change of what the watch told last; `None` before its
    /// first word.
    told: Option<Option<(i64, i64)>>,
    due: Option<Time>,
    op: Option<OpId>,
    /// It was not read since the connection was lost.
    doubted: bool,
}

impl Verification {
    fn of(&mut self, znode: Verified) -> &mut Told {
        let slot = match znode {
            Verified::Decision => return &mut self.decision,
            Verified::Place(slot) => slot,
        };
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, Told::default);
        }
        &mut self.places[slot]
    }

    fn all(&self) -> impl Iterator<Item = (Verified, &Told)> {
        let places = self.places.iter().enumerate().map(|(slot, told)| (Verified::Place(slot), told));
        std::iter::once((Verified::Decision, &self.decision)).chain(places)
    }

    /// What is to be read again, and when: not where that is done for another reason already.
    fn to_read(&self) -> impl Iterator<Item = (Verified, Time)> {
        let is_read = |znode| self.reads.values().any(|(read, _)| *read == znode);
        let waits = move |(znode, told): (Verified, &Told)| {
            let under_way = told.op.is_some() || (told.doubted && is_read(znode));
            Some((znode, told.due?)).filter(|_| !under_way)
        };
        self.all().filter_map(waits)
    }

    /// When something is to be read again.
    pub(super) fn due(&self) -> Option<Time> {
        self.to_read().map(|(_, due)| due).min()
    }

    /// Whether the decision may be one that the ensemble does not know any more.
    pub(super) fn doubts_decision(&self) -> bool {
        self.decision.doubted
    }

    /// Whether the place of `slot` may be another one by now.
    pub(super) fn doubts_place(&self, slot: usize) -> bool {
        self.places.get(slot).is_some_and(|told| told.doubted)
    }

    pub(super) fn doubts_any_place(&self) -> bool {
        self.places.iter().any(|told| told.doubted)
    }

    pub(super) fn watch_told(&mut self, znode: Verified, node: Option<&Node>) {
        self.of(znode).told = Some(node.map(|n| (n.czxid, n.mzxid)));
    }

    /// The view has changed, or has been confirmed.
    pub(super) fn compare(&mut self, znode: Verified, known: Option<Meta>, now: Time) {
        let told = self.of(znode);
        let agrees = told.told.is_none_or(|told| told == known.map(|m| (m.czxid, m.mzxid)));
        if agrees && !told.doubted {
            told.due = None;
        } else if told.due.is_none() && told.op.is_none() {
            told.due = Some(now + PATIENCE);
        }
    }

    /// The places from this slot on are not watched any more.
    pub(super) fn forget(&mut self, from: usize) {
        self.places.truncate(from);
    }
}

impl Engine {
    /// The connection was lost, and is back: what is known is read again. Where there was no leader znode, one of this
    /// very session can be back, and a member that leaves has no watch on it any more.
    pub(super) fn doubt_all(&mut self) {
        let known = |engine: &Self, znode| engine.known(znode).is_some();
        if known(self, Verified::Decision) || (self.leaving.is_asked() && !self.is_contest()) {
            self.doubt(Verified::Decision);
        }
        for place in (0..self.slots_watched()).map(Verified::Place) {
            if known(self, place) || !self.is_contest() {
                self.doubt(place);
            }
        }
    }

    /// The decision has more slots than were known.
    pub(super) fn doubt_unread_places(&mut self) {
        for slot in 0..self.slots_watched() {
            if *self.view.place(slot) == Known::Unread {
                self.doubt(Verified::Place(slot));
            }
        }
    }

    fn doubt(&mut self, znode: Verified) {
        let told = self.verification.of(znode);
        told.doubted = true;
        told.due = Some(self.now.time);
    }

    pub(super) fn advance_verification(&mut self) {
        let now = self.now.time;
        let due: Vec<_> = self.verification.to_read().filter(|(_, due)| *due <= now).collect();
        for (znode, _) in due {
            let path = match znode {
                Verified::Decision => self.config.paths.elected(),
                Verified::Place(slot) => self.place_path_of(slot),
            };
            if let Some(op) = self.perform(Request::Get { path }) {
                let told = self.verification.of(znode);
                told.op = Some(op);
                told.due = None;
            }
        }
    }

    pub(super) fn verification_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        let Some((znode, _)) = self.verification.all().find(|(_, told)| told.op == Some(op)) else {
            return false;
        };
        self.verification.of(znode).op = None;
        if let Outcome::Got(node) = outcome {
            self.verification.of(znode).doubted = false;
            self.see(znode, node.as_ref());
        }
        self.compare_view(znode);
        true
    }

    pub(super) fn compare_view(&mut self, znode: Verified) {
        self.verification.compare(znode, self.known(znode), self.now.time);
    }

    fn see(&mut self, znode: Verified, node: Option<&Node>) {
        match znode {
            Verified::Decision => self.see_elected(node),
            Verified::Place(slot) => {
                self.see_place(slot, node);
                self.office_saw_place(slot, node);
            }
        }
    }

    fn known(&self, znode: Verified) -> Option<Meta> {
        match znode {
            Verified::Decision => self.view.elected.meta(),
            Verified::Place(slot) => self.view.place(slot).meta(),
        }
    }

    // ---- own reads ----

    /// This path is about to be read, for whatever reason.
    pub(super) fn reads(&mut self, op: OpId, path: &str) {
        let is_decision = !self.is_contest() && path == self.config.paths.elected();
        let slot = || self.view.places().map(|(slot, _)| slot).find(|slot| self.place_path_of(*slot) == path);
        let znode = if is_decision { Some(Verified::Decision) } else { slot().map(Verified::Place) };
        if let Some(znode) = znode
            && let Some(known) = self.known(znode)
        {
            self.verification.reads.insert(op, (znode, known));
        }
    }

    /// An own read has ended: where the ensemble went back to an older state, the view follows.
    pub(super) fn read_ended(&mut self, op: OpId, outcome: &Outcome) {
        let Some((znode, known)) = self.verification.reads.remove(&op) else {
            return;
        };
        let Outcome::Got(node) = outcome else {
            return;
        };
        self.verification.of(znode).doubted = false;
        self.compare_view(znode);
        let Some(node) = node else { return };
        if self.known(znode) != Some(known) || known.mzxid <= node.mzxid {
            return;
        }
        let text = format!(
            "{} is older than what was known of it (transaction {:#x} after {:#x}): the ensemble was restored \
             from an older copy",
            match znode {
                Verified::Decision => self.config.paths.elected(),
                Verified::Place(slot) => self.place_path_of(slot),
            },
            node.mzxid,
            known.mzxid
        );
        self.note(Level::Warn, NoteKind::Trouble, text);
        self.forget_tenures();
        match znode {
            Verified::Decision => {
                // What was read of the leader znodes is from another time than this.
                for slot in 0..self.slots_watched() {
                    if self.verification.doubts_place(slot) {
                        self.view.forget_place(slot);
                    }
                }
                self.take_elected(Some(node));
            }
            Verified::Place(slot) => {
                self.view.forget_place(slot);
                self.see(znode, Some(node));
            }
        }
    }
}
