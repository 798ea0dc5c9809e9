//! What was read goes into the view.

use std::collections::BTreeMap;

use super::{
    Engine,
    io::{Action, Level, Node, NoteKind},
    view::Known,
};
use crate::record::{Current, MAX_SLOTS};

impl Engine {
    pub(super) fn saw(&mut self, path: &str, node: Option<&Node>) {
        if self.is_contest() {
            return self.contest_saw(path, node);
        }
        let paths = &self.config.paths;
        if path == paths.elected() {
            self.see_elected(node);
        } else if let Some(slot) = paths.slot_of(path) {
            if slot < self.slots_watched() {
                self.verification.watch_told(slot, node);
                self.see_place(slot, node);
                self.office_saw_place(slot, node);
            }
        } else if path == paths.control() {
            self.view.control = Known::read(path, node);
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
        let troubles: Vec<_> = self.view.unreadable.iter().map(ToString::to_string).collect();
        for trouble in troubles {
            self.note(Level::Warn, NoteKind::Trouble, trouble);
        }
    }

    pub(super) fn see_elected(&mut self, node: Option<&Node>) {
        let path = self.config.paths.elected();
        self.view.see_elected(&path, node, self.config.member.format);
        if let Known::Unreadable(error, _) = &self.view.elected {
            let text = error.to_string();
            self.note(Level::Warn, NoteKind::Trouble, text);
        }
        self.remember_tenures();
    }

    pub(super) fn see_place(&mut self, slot: usize, node: Option<&Node>) {
        let known = self.read_place(&self.place_path_of(slot), node);
        self.view.see_place(slot, known, node);
        self.verification.compare(slot, self.view.place(slot).meta(), self.now.time);
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
