//! The result of a pass: the one thing to do next, or everything that blocks it.

use crate::{
    engine::{io::Reason, ops::Begun},
    ids::MemberId,
    record::{AdminRequest, Elected},
    time::Time,
};

/// The outcome of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Act(Act),
    Wait(Wait),
}

/// The one thing to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Compare-and-set `leader/elected`; `None` as version means create it.
    Write(Box<Elected>, Option<i32>),
    /// The same, together with the request that it begins: both or neither.
    Begin(Box<Elected>, Option<i32>, Begun),
    /// The same for this slot. It removes a leader that does not know this yet.
    Depose(usize, Box<Elected>, Option<i32>),
    /// Compare-and-set `leader/elected` while this member leads on.
    CallOff(Leads, Box<Elected>, i32),
    /// Delete the leader znode of this slot in this version: it belongs to an excluded ballot. Only while the
    /// decision has that version.
    Vacate { slot: usize, leader: i32, decision: i32 },
    /// Compare-and-set a request.
    Answer(String, i32, Box<AdminRequest>),
    /// The same with a refusal.
    Refuse(String, i32, Box<AdminRequest>),
    /// Remove a request that ended long ago.
    Trim(String),
}

/// No action now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) reason: Reason,
    /// The log line.
    pub(crate) sentence: String,
    /// Whether an operator must look at it.
    pub(crate) loud: bool,
    /// Everything that blocks a decision; empty if all is as it should be.
    pub(crate) blockers: Vec<Blocker>,
    /// What would be decided without the blockers, if that was asked for and is known.
    pub(crate) proposal: Option<Box<Elected>>,
}

/// Something that blocks a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    pub(crate) reason: Reason,
    pub(crate) sentence: String,
    /// When it ends by itself.
    pub(crate) until: Option<Time>,
}

/// What proves that a leader leads on. The versions of each leader znode begin at 0, so its alone could be that of the next
/// leader; a leader that stops takes back in its record, before it deletes its znode, what it has called off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leads {
    pub(crate) slot: usize,
    /// The version of its leader znode.
    pub(crate) leader: i32,
    pub(crate) member: MemberId,
    /// The version of its record; only an elector has it.
    pub(crate) version: Option<i32>,
}

impl Act {
    /// The decision that is written, if any.
    pub(crate) fn into_decision(self) -> Option<Box<Elected>> {
        match self {
            Self::Write(elected, _)
            | Self::Begin(elected, ..)
            | Self::Depose(_, elected, _)
            | Self::CallOff(_, elected, _) => Some(elected),
            Self::Vacate { .. } | Self::Answer(..) | Self::Refuse(..) | Self::Trim(_) => None,
        }
    }
}

impl Wait {
    fn new(reason: Reason, sentence: String, loud: bool) -> Self {
        let blocker = Blocker { reason, sentence: sentence.clone(), until: None };
        let blockers = if reason == Reason::Steady { Vec::new() } else { vec![blocker] };
        Self { reason, sentence, loud, blockers, proposal: None }
    }

    /// The same with its end, or without if that is not known.
    pub(crate) fn until(mut self, until: impl Into<Option<Time>>) -> Self {
        let until = until.into();
        for blocker in self.blockers.iter_mut().filter(|blocker| blocker.reason == self.reason) {
            blocker.until = until;
        }
        self
    }

    /// When the reason of the log line ends by itself.
    pub(crate) fn ends(&self) -> Option<Time> {
        self.blockers.iter().find(|blocker| blocker.reason == self.reason)?.until
    }

    /// The same with what would be decided without the blockers.
    pub(crate) fn instead_of(mut self, proposal: Option<Box<Elected>>) -> Self {
        self.proposal = proposal;
        self
    }

    /// The same with these blockers.
    pub(crate) fn blocked_by(mut self, blockers: Vec<Blocker>) -> Self {
        self.blockers = blockers;
        self
    }
}

impl From<Wait> for Verdict {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

/// As it should be, or becoming so.
pub(crate) fn quiet(reason: Reason, sentence: impl Into<String>) -> Wait {
    Wait::new(reason, sentence.into(), false)
}

/// An operator must look at it.
pub(crate) fn loud(reason: Reason, sentence: impl Into<String>) -> Wait {
    Wait::new(reason, sentence.into(), true)
}
