//! The part of an engine's state that decides what it does next, for a checker that merges states.

use std::hash::{Hash, Hasher};

use super::{
    Engine,
    core::{Core, Outbox},
};

impl Hash for Engine {
    /// Engines of one configuration that hash alike behave alike from now on, given the same events. Left out is what
    /// is only reported (sentences, notes), the number of the next operation, and the time of the last event: the
    /// next event has its own time. Take out all actions before.
    fn hash<H: Hasher>(&self, to: &mut H) {
        // Each field by name, so that a new one can't be forgotten.
        let Self { core, candidacy, leader, history } = self;
        let Core { config: _, number: _, now: _, session, reading, own, ops, out, ended } = core;
        let Outbox {
            actions,
            told_until,
            keeps_lease,
            first_decision,
            suspends,
            watched,
            leaders: _,
            last_note: _,
            skipped: _,
            sentence: _,
        } = out;
        debug_assert!(actions.is_empty(), "poll_action() until None comes first");
        debug_assert!(first_decision.is_none(), "the event that has made it takes it out");
        (session, reading, own, ops, ended).hash(to);
        (told_until, keeps_lease, suspends, watched).hash(to);
        (candidacy, leader, history).hash(to);
    }
}
