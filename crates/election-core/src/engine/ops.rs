//! The operations that are under way, all in one table, and when a part retries.
//!
//! Each entry contains which part of the engine waits for the outcome, and why. A part that no longer needs an
//! outcome [gives it up](Ops::give_up): the entry remains, since what was read still counts (see
//! [`Rereading`](super::reading::rereading::Rereading)), but no part acts on it.

use std::{collections::BTreeMap, time::Duration};

use super::{
    io::OpId,
    znode::{Meta, Znode},
};
use crate::{
    record::{AdminRequest, Elected},
    time::Time,
};

/// How long a part waits before it retries an operation that could not be applied.
pub(crate) const RETRY: Duration = Duration::from_millis(200);

/// How long to wait if the numbers of sequential znodes are used up: an operator must act.
pub(crate) const USED_UP: Duration = Duration::from_secs(30);

/// A part of the engine that performs operations and retries by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Candidacy,
    Elector,
    Leader,
    History,
    Tokens,
}

/// The purpose of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pending {
    /// The current step of the candidacy.
    Candidacy,
    Elector(ElectorOp),
    Leader(LeaderOp),
    History(HistoryOp),
    /// The base of the tokens is being raised, in a contest.
    Tokens,
    /// A znode is read without its watch.
    Reread(Znode),
    /// The part that began it has given it up.
    GivenUp,
}

/// An operation of the leader's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LeaderOp {
    /// Reads whether the leader znode is a left-over of this very session.
    Clean,
    /// The step of acquiring leadership.
    Acquire,
    /// The leader znode is being created, for a leadership that was given up meanwhile.
    LateCreation,
    /// READY is being written.
    Announce,
    /// Reads whether the own leader znode still exists.
    Doubt,
    /// The own leader znode is being written again.
    Repair,
    /// The step of releasing leadership.
    Release,
}

/// An operation of the elector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ElectorOp {
    Check(IrreversibleStep, Check),
    /// Writes a decision over this version, if there was one; and the request that it begins.
    Decision(Box<Elected>, Option<i32>, Option<Begun>),
    /// Reads the decision after it could not be written; over this version, or where there was none, if the write was
    /// refused.
    ReadElected(Option<Option<i32>>),
    /// Reads the version of the ballots' parent, after a decision was refused over one that has not changed.
    ReadGeneration,
    Vacate(usize),
    ReadLeader(usize),
    Answer(String, Box<AdminRequest>),
    Trim(String),
}

/// An operation of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HistoryOp {
    /// The entry of this fencing token.
    Write(u64),
    List,
    Trim,
}

/// An irreversible step: what it depends on is read again before it is taken. Each znode has its own watch. So an
/// elector that was frozen, or cut off for a moment, can see a decision that another member made meanwhile before it
/// sees the leader znode or the members for which that decision was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IrreversibleStep {
    /// A request is refused.
    Refusal(String),
    /// The holder of this leader znode is removed, while this decision is in force.
    ForcedRemoval { slot: usize, decision: Option<i32>, leader: Option<Meta> },
}

/// What is read again before an irreversible step, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Check {
    Elected,
    /// The leader znode of this slot, and those of all slots after it.
    Leader(usize),
    Members,
    /// If a request is refused: an order that was given before the request may permit it.
    /// With what was known of it as the read began.
    Control(Option<Meta>),
}

/// A request that a decision begins, in its new state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Begun {
    pub(crate) name: String,
    /// The version in which it was pending: withdrawing or ending the request changes it.
    pub(crate) version: i32,
    pub(crate) request: Box<AdminRequest>,
}

/// One operation.
#[derive(Clone, Debug, Hash)]
struct Op {
    id: OpId,
    pending: Pending,
    /// Which of the watched znodes it reads, and what was known of that znode when the read began.
    reads: Option<(Znode, Meta)>,
}

/// All operations that are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ops {
    next: u64,
    /// A few at most.
    under_way: Vec<Op>,
    retry: BTreeMap<Part, Time>,
}

impl Pending {
    const fn part(&self) -> Option<Part> {
        match self {
            Self::Candidacy => Some(Part::Candidacy),
            Self::Elector(_) => Some(Part::Elector),
            Self::Leader(_) => Some(Part::Leader),
            Self::History(_) => Some(Part::History),
            Self::Tokens => Some(Part::Tokens),
            Self::Reread(_) | Self::GivenUp => None,
        }
    }
}

impl Ops {
    pub(crate) fn begin(&mut self, pending: Pending, reads: Option<(Znode, Meta)>) -> OpId {
        let id = OpId(self.next);
        self.next += 1;
        self.under_way.push(Op { id, pending, reads });
        id
    }

    /// The operation has ended: returns its purpose, and what it read.
    pub(crate) fn end(&mut self, op: OpId) -> Option<(Pending, Option<(Znode, Meta)>)> {
        let at = self.under_way.iter().position(|known| known.id == op)?;
        let Op { pending, reads, .. } = self.under_way.remove(at);
        if self.under_way.is_empty() {
            // An idle election holds no memory for it.
            self.under_way = Vec::new();
        }
        Some((pending, reads))
    }

    /// The session is over, with all its operations.
    pub(crate) fn clear(&mut self) {
        self.under_way = Vec::new();
        self.retry.clear();
    }

    // ---- what is under way ----

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether this part waits for an outcome.
    pub(crate) fn is_busy(&self, part: Part) -> bool {
        self.under_way.iter().any(|op| op.pending.part() == Some(part))
    }

    pub(crate) fn has(&self, pending: &Pending) -> bool {
        self.under_way.iter().any(|op| op.pending == *pending)
    }

    /// Whether an operation that is under way reads this znode.
    pub(crate) fn reads(&self, znode: Znode) -> bool {
        self.under_way.iter().any(|op| op.reads.is_some_and(|(read, _)| read == znode))
    }

    /// The outcome of this operation is not needed any more.
    pub(crate) fn give_up(&mut self, gone: &Pending) {
        self.replace(gone, &Pending::GivenUp);
    }

    /// No operation of this part is needed any more.
    pub(crate) fn give_up_all(&mut self, part: Part) {
        for op in self.under_way.iter_mut().filter(|op| op.pending.part() == Some(part)) {
            op.pending = Pending::GivenUp;
        }
        self.retry.remove(&part);
    }

    /// Reads that are under way do not apply to the present znodes.
    pub(crate) fn forget_reads(&mut self) {
        for op in self.under_way.iter_mut() {
            op.reads = None;
            if let Pending::Reread(_) = op.pending {
                op.pending = Pending::GivenUp;
            }
        }
    }

    /// Transfers the outcome of operations from one purpose to another.
    pub(crate) fn replace(&mut self, from: &Pending, to: &Pending) {
        for op in self.under_way.iter_mut().filter(|op| op.pending == *from) {
            op.pending.clone_from(to);
        }
    }

    // ---- trying again ----

    /// This part retries at this time.
    pub(crate) fn retry(&mut self, part: Part, at: Time) {
        self.retry.insert(part, at);
    }

    /// This part need not wait for its retry any longer.
    pub(crate) fn retry_now(&mut self, part: Part) {
        self.retry.remove(&part);
    }

    pub(crate) fn waits(&self, part: Part, now: Time) -> bool {
        self.retry.get(&part).is_some_and(|at| now < *at)
    }

    /// Whether this part may continue now: it neither waits for an outcome nor for a retry.
    pub(crate) fn is_free(&mut self, part: Part, now: Time) -> bool {
        let free = !self.is_busy(part) && !self.waits(part, now);
        if free {
            self.retry.remove(&part);
        }
        free
    }

    /// When the first part retries. A part that waits for an outcome continues with that outcome.
    pub(crate) fn wake(&self) -> Option<Time> {
        let idle = self.retry.iter().filter(|(part, _)| **part == Part::Leader || !self.is_busy(**part));
        idle.map(|(_, at)| *at).min()
    }
}

impl std::hash::Hash for Ops {
    /// The number of the next operation decides nothing.
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        (&self.under_way, &self.retry).hash(to);
    }
}
