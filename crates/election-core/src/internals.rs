//! Internals: the engine without I/O, for programs that run it themselves, such as a simulation, and the records in
//! ZooKeeper, for programs that operate elections.
//!
//! **Not covered by semantic versioning.** An application that takes part in elections does not need it.

#[cfg(feature = "runtime")]
pub use crate::runtime::{
    ReadError,
    layout::{Layout, children, node},
    operations::{get_all, operations, transact, tree},
    to_node, unix_ms,
};
pub use crate::{
    engine::{
        Action, AppEvent, ByOperator, Config, EndReason, Engine, EnteredLeadership, Epoch, Event, ForceStep,
        ForcedFailover, Forgotten, Level, MAX_TOKEN_BASE, NoSlot, NoSuchToken, Node, NotNow, Note, NoteKind,
        OpId, Outcome, Released, TakeoverHold, Transaction, Undecided, Unforced, Watched, Wish, WriteKind,
        ZkOp, ZnodeWrite, acknowledge, decision, fencing_token, move_away, move_in, not_now, overrule_site,
        raise_tokens, slot_of,
    },
    mirror::{Answer, BATCH, Mirror, Read, Write},
    time::{Now, Time, in_words, is_within},
};

/// Times of the day and of the week.
pub mod calendar {
    pub use crate::calendar::*;
}

/// What an elector decides about an election and why, and what it would decide under other circumstances. It runs the
/// elector's own code on records that every client can read.
pub mod explain {
    pub use crate::engine::{
        Bound, Explanation, NextStep, Obstacle, Played, Proposal, Prospect, Seen, Simulation,
        SlotExplanation, barred_sites, explain, failed_sites, held_until, simulate, unwell_sites,
    };
}

/// The contents of the znodes.
pub mod record {
    pub use crate::record::*;
}

/// Text from outside.
pub mod text {
    pub use crate::text::*;
}
