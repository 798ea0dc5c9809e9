//! What was read goes into the view.

use std::collections::BTreeMap;

use super::{
    Engine,
    io::{Action, Level, Node, NoteKind},
    rules::Rule,
    verification::Verified,
    view::Known,
};
use crate::record::{Current, Elected, MAX_SLOTS, MemberRecord};

impl Engine {
    pub(super) fn saw(&mut self, path: &str, node: Option<&Node>) {
        if self.is_contest() {
            return self.contest_saw(path, node);
        }
        let paths = &self.config.paths;
        if path == paths.elected() {
            self.verification.watch_told(Verified::Decision, node);
            self.see_elected(node);
            self.compare_view(Verified::Decision);
        } else if let Some(slot) = paths.slot_of(path) {
            if slot < self.slots_watched() {
                self.verification.watch_told(Verified::Place(slot), node);
                self.see_place(slot, node);
                self.office_saw_place(slot, node);
            }
        } else if path == paths.control() {
            self.view.control = Known::read(path, node);
        } else if self.record_of_next_leader().as_deref() == Some(path) {
            if let Known::Present(record, _) = Known::<MemberRecord>::read(path, node) {
                self.saw_next_leader(&record);
            }
        } else {
            self.registration_saw(path, node);
        }
    }

    pub(super) fn saw_tree(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        if !self.watches_membership() {
            return;
        }
        if parent == self.config.paths.nodes() {
            self.view.see_members(parent, nodes);
        } else if parent == self.config.paths.requests() {
            self.view.see_requests(parent, nodes);
        }
        self.view.count_validity(self.now.time);
        let troubles: Vec<_> = self.view.unreadable.iter().map(ToString::to_string).collect();
        for trouble in troubles {
            self.note(Level::Warn, NoteKind::Trouble, trouble);
        }
    }

    pub(super) fn see_elected(&mut self, node: Option<&Node>) {
        if !self.view.elected.is_newer_than(node) || !self.rules.keep(Rule::OlderReadings) {
            self.take_elected(node);
        }
    }

    /// What was read of the decision counts, whatever its age.
    pub(super) fn take_elected(&mut self, node: Option<&Node>) {
        let path = self.config.paths.elected();
        self.know_elected(Known::decision(&path, node, self.config.member.format));
        if let Known::Unreadable(error, _) = &self.view.elected {
            let text = error.to_string();
            self.note(Level::Warn, NoteKind::Trouble, text);
        }
        if self.leaving.is_asked() {
            // No watch reads them any more.
            self.doubt_unread_places();
        }
    }

    /// What is known of the decision from now on.
    pub(super) fn know_elected(&mut self, known: Known<Elected>) {
        self.memory.keep(&self.view.elected);
        self.memory.compare(&known);
        self.view.elected = known;
        self.compare_view(Verified::Decision);
        self.remember_tenures();
    }

    pub(super) fn see_place(&mut self, slot: usize, node: Option<&Node>) {
        let known = self.read_place(&self.place_path_of(slot), node);
        self.memory.saw_token(known.record().and_then(|current| current.fencing_token));
        self.view.see_place(slot, known, node);
        self.compare_view(Verified::Place(slot));
        self.remember_tenures();
        self.tell_leader(slot, self.view.place(slot).record().cloned());
    }

    pub(super) fn place_path_of(&self, slot: usize) -> String {
        if self.is_contest() { self.place_path() } else { self.config.paths.place(slot) }
    }

    pub(super) fn tell_leader(&mut self, slot: usize, leader: Option<Current>) {
        if self.leaders.len() <= slot {
            self.leaders.resize_with(slot + 1, || None);
        }
        if self.leaders[slot] != leader {
            self.leaders[slot].clone_from(&leader);
            self.actions.push_back(Action::LeaderChanged(slot, leader));
        }
    }

    /// How many places are watched: those of all slots that the decision has or is to
    /// have, and the one that this member itself is not done with.
    pub(super) fn slots_watched(&self) -> usize {
        if self.is_contest() {
            return 1;
        }
        let decided = match &self.view.elected {
            Known::Present(elected, _) => elected.slots.len(),
            Known::Absent => 0,
            // As many as there were.
            Known::Unread | Known::Unreadable(..) => self.view.places().count(),
        };
        let own = self.slot().map_or(0, |slot| slot + 1);
        decided.min(MAX_SLOTS).max(self.config.policy.slots).max(own)
    }

    /// The slots from this one on are gone: nothing is read of them any more.
    pub(super) fn forget_slots(&mut self, from: usize) {
        self.view.forget_places(from);
        self.verification.forget(from);
        for slot in from..self.leaders.len() {
            self.tell_leader(slot, None);
        }
        self.leaders.truncate(from);
    }
}
