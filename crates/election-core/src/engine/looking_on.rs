//! Who only looks on: in an election of hundreds, nearly all members.

use super::{Engine, io::Watched, office::State};

impl Engine {
    /// Whether this member only looks on: others lead, and it is neither named nor in any
    /// line, nor does it decide. What it reads of the decision and of the leaders' places
    /// moves nobody then, and may be read a moment later, several changes at once.
    ///
    /// Nothing rests on how old that is: a watch can lag for any other reason as well. Whoever
    /// becomes concerned is to be told at once, by reading without delay as soon as this is
    /// false.
    pub fn looks_on(&self) -> bool {
        let (Some(ballot), Some(elected)) =
            (self.registration.before().and(self.ballot()), self.view.elected.record())
        else {
            return false;
        };
        // While nobody is named, it may be anyone's turn.
        let others = |slot| {
            elected.named(slot).is_some_and(|named| named.ballot != ballot)
                && elected.place_in_line(slot, &ballot).is_none()
        };
        matches!(self.office.state, State::Standby)
            && (0..elected.slots.len()).all(others)
            && !self.watches_membership()
            && !self.leaving.is_asked()
    }

    /// Whether that is what tells who leads: the decision, or a leader's place.
    pub fn tells_who_leads(&self, watched: &Watched) -> bool {
        let paths = &self.config.paths;
        matches!(watched, Watched::Node(path) if *path == paths.elected() || paths.slot_of(path).is_some())
    }
}
