//! How the leader is found.

mod names;

use std::sync::Arc;

use crate::strategy::Strategy;

/// How the leader is found. All members of an election must use the same.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// The member with the lowest ballot asks the strategy, and writes the decision.
    /// The only recipe with policies, a line of succession and operators' requests.
    Elector(Arc<dyn Strategy>),
    /// Each candidate has an ephemeral sequential znode in a queue; the first one leads,
    /// and everyone else watches the one before. No herd: one znode's end wakes one
    /// member.
    Queue(QueueFormat),
    /// There is one ephemeral znode, and the candidate that creates it leads. Each other one
    /// watches it, and all try at once when it goes: for a few members.
    Single,
}

/// How the znodes of a queue are named, and what they hold.
///
/// In a foreign format the path of the election (`<root>/<election>`) is
/// the queue itself, with nothing of ours beside it: neither READY nor a history is
/// written there. The promise of one leader at a time holds among members of this
/// crate; the others lead by their own rules, and theirs know no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueFormat {
    /// This crate's own.
    #[default]
    Native,
    /// That of Curator's `LeaderLatch`: the latch path's children, `_c_<uuid>-latch-<number>`,
    /// hold the participant's id.
    LeaderLatch,
    /// That of kazoo's `Election`: the path's children, `<uuid>__lock__<number>`, hold the
    /// identifier.
    KazooElection,
}

/// What to do about what a former process of this member has left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Wait until its session has expired; if it hasn't by then, the other one is
    /// alive, and this is a duplicate.
    #[default]
    Wait,
    /// Remove it: whoever set this has proof that no such process lives, nor any
    /// of its work (a lock that both held). In the recipe `single` it is waited for all the
    /// same, since its leader znode can't be told from the next leader's.
    Remove,
}

impl Recipe {
    /// Its word in configuration and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Elector(_) => "elector",
            Self::Queue(_) => "queue",
            Self::Single => "single",
        }
    }

    /// Whether a znode alone settles who leads.
    pub(in crate::engine) fn is_contest(&self) -> bool {
        !matches!(self, Self::Elector(_))
    }

    /// Whether READY and the history may be written.
    pub(in crate::engine) fn is_native(&self) -> bool {
        !matches!(self, Self::Queue(QueueFormat::LeaderLatch | QueueFormat::KazooElection))
    }
}

impl QueueFormat {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::LeaderLatch => "leader-latch",
            Self::KazooElection => "kazoo-election",
        }
    }
}
