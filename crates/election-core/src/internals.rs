//! Internals: the engine without I/O, for programs that run it themselves, such as a simulation.
//!
//! **Not covered by semantic versioning.** An application does not need it.

#[cfg(feature = "runtime")]
pub use crate::runtime::{
    ReadError,
    layout::{Layout, children, node},
    operations::{get_all, transact, tree},
    to_node, unix_ms,
};
pub use crate::{
    engine::{
        Action, AppEvent, Config, EndReason, Engine, Epoch, Event, ForceStep, ForcedFailover, Forgotten,
        Grant, Level, MAX_TOKEN_BASE, NoSuchToken, Node, NotNow, Note, NoteKind, OpId, Outcome, Released,
        Transaction, Watched, Wish, WriteKind, ZkOp, ZnodeWrite, acknowledge, decision, not_now,
        overrule_site, raise_tokens, slot_of,
    },
    mirror::{Answer, BATCH, Mirror, Read, Write},
    time::{Now, Time, in_words, is_within},
};
