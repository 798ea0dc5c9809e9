//! What of an engine decides what it does next, for a checker that merges states.

use std::hash::{Hash, Hasher};

use super::Engine;

impl Hash for Engine {
    /// Engines of one configuration that hash alike do alike from now on, given the same
    /// events. What is only told (sentences, notes) is left out, and so are the number of
    /// the next operation and the time of the last event: the next one brings its own.
    /// Actions are to have been taken out before.
    fn hash<H: Hasher>(&self, to: &mut H) {
        // Each field by name, so that a new one can't be forgotten.
        let Self {
            config: _,
            rules: _,
            now: _,
            actions,
            next_op: _,
            session,
            view,
            memory,
            health,
            site_health,
            measured,
            round_trips,
            reach,
            gave_up,
            standing,
            joined_ms,
            registration,
            registered_as,
            contest,
            node_written,
            elector,
            verification,
            office,
            announce_later,
            history,
            leaving,
            ended,
            keeps_lease,
            told_until,
            watched,
            leaders: _,
            last_note: _,
            skipped: _,
            sentence: _,
        } = self;
        debug_assert!(actions.is_empty(), "poll_action() until None comes first");
        (measured, round_trips).hash(to);
        (session, view, memory, health, site_health, reach, gave_up, standing, joined_ms).hash(to);
        contest.hash(to);
        (registration, registered_as, node_written, elector, verification, office, announce_later).hash(to);
        (history, leaving, ended, keeps_lease, told_until, watched).hash(to);
    }
}
