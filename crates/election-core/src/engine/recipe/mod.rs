//! How the leader is determined.

mod names;

use std::sync::Arc;

pub(crate) use names::{Incarnation, fingerprint};

#[cfg(feature = "runtime")]
use crate::paths::Paths;
use crate::strategy::Strategy;

/// How the leader is determined. All members of an election must use the same recipe: one that finds candidates of another one ends.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// The member with the lowest ballot asks the strategy, and writes the decision.
    /// The only recipe with policies, a line of succession and operators' requests.
    Elector(Arc<dyn Strategy>),
    /// Each candidate has an ephemeral sequential znode in a queue. The first one leads, and every other one watches
    /// the one before. No herd: the end of one znode wakes one member.
    Queue(QueueFormat),
    /// There is one ephemeral znode, and the candidate that creates it leads. Every other candidate watches it, and
    /// all try at once when it is deleted: for a few members.
    Single,
}

/// How the znodes of a queue are named, and what they contain.
///
/// In a foreign format the path of the election (`<root>/<election>`) is the queue itself, and contains no other
/// znodes of this crate: neither READY nor a history is written there. The guarantee of one leader at a time holds
/// among members of this crate. The other participants lead by their own rules, which have no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// What to do about the znodes that a former process of this member has left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Wait until its session has expired. If the session has not expired by then, the other process is alive, and
    /// this is a duplicate.
    #[default]
    Wait,
    /// Remove them: set this only with proof that no such process lives, nor any of its work (for example a lock that
    /// both processes take). The recipe `single` waits nevertheless, since the process's leader znode can't be
    /// distinguished from the next leader's.
    Remove,
}

impl Recipe {
    /// Its name in configuration and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Elector(_) => "elector",
            Self::Queue(_) => "queue",
            Self::Single => "single",
        }
    }

    /// The persistent znodes that a member of this recipe needs, parents first.
    #[cfg(feature = "runtime")]
    pub(crate) fn directories(&self, paths: &Paths) -> Vec<String> {
        let base = paths.base().to_owned();
        match self {
            Self::Elector(_) => {
                vec![base, paths.election(), paths.nodes(), paths.leader(), paths.history()]
            }
            Self::Queue(QueueFormat::Native) => vec![base, paths.queue(), paths.history()],
            // No other znodes: the format counts every child of the path.
            Self::Queue(_) => vec![base],
            Self::Single => vec![base, paths.leader(), paths.history()],
        }
    }

    /// Whether READY and the history may be written. If not, READY is known to the leader alone.
    pub(crate) fn is_native(&self) -> bool {
        !matches!(self, Self::Queue(QueueFormat::LeaderLatch | QueueFormat::KazooElection))
    }
}

impl QueueFormat {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::LeaderLatch => "leader-latch",
            Self::KazooElection => "kazoo-election",
        }
    }
}
