//! The state that every part of the engine uses: the settings, the session, what was read, what this member is, the
//! operations under way, and the actions to be taken out. A part borrows the core and nothing else of the engine.

mod handover;
mod members;
mod rereading;
mod seeing;
mod session;

use smallvec::SmallVec;

use super::{
    config::Config,
    io::{Action, EndReason, Level, Note, NoteKind, Skipped, Watched, ZkOp},
    ops::{Ops, Part, Pending, RETRY},
    own::Own,
    reading::Reading,
    session::Session,
};
use crate::{
    record::{Current, Elected},
    slots::Slots,
    time::{Now, Time},
};
use std::{
    collections::VecDeque,
    mem::{Discriminant, discriminant},
    sync::Arc,
};

/// The common part of an engine.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Core {
    pub(in crate::engine) config: Config,
    /// The number of this incarnation.
    pub(in crate::engine) number: u32,
    pub(in crate::engine) now: Now,
    pub(in crate::engine) session: Option<Session>,
    pub(in crate::engine) reading: Reading,
    pub(in crate::engine) own: Own,
    pub(in crate::engine) ops: Ops,
    pub(in crate::engine) out: Outbox,
    pub(in crate::engine) ended: bool,
}

/// The actions to be taken out, and what was reported last: parts are level-triggered and report the same repeatedly.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Outbox {
    pub(in crate::engine) actions: VecDeque<Action>,
    /// The last deadline that the guard of the work received.
    pub(in crate::engine) told_until: Option<Time>,
    pub(in crate::engine) keeps_lease: bool,
    /// The first decision, with which this member as the elector names itself: the leader's side writes it.
    pub(in crate::engine) first_decision: Option<Box<Elected>>,
    /// Whether the work was ordered to rest.
    pub(in crate::engine) suspends: bool,
    /// In a queue one.
    pub(in crate::engine) watched: SmallVec<[Watched; 1]>,
    /// The leaders that were reported last, by slot.
    pub(in crate::engine) leaders: Slots<Option<Arc<Current>>>,
    pub(in crate::engine) last_note: Option<Discriminant<NoteKind>>,
    /// Why this member, as the elector, decides nothing.
    pub(in crate::engine) skipped: Option<Arc<Skipped>>,
    /// What is being done, or why nothing is done: the text of the last note.
    pub(in crate::engine) sentence: Arc<str>,
}

impl Outbox {
    pub(in crate::engine) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}

impl Core {
    pub(in crate::engine) fn new(config: Config, number: u32, now: Now) -> Self {
        let health = config.member.health.clone().bounded();
        Self {
            config,
            number,
            now,
            session: None,
            reading: Reading::default(),
            own: Own::new(health, now.unix_ms),
            ops: Ops::default(),
            out: Outbox::default(),
            ended: false,
        }
    }

    /// Begins an operation on this session; returns whether that was possible.
    pub(in crate::engine) fn perform(&mut self, request: impl Into<ZkOp>, pending: Pending) -> bool {
        if !self.session_is_active() {
            return false;
        }
        let request = request.into();
        let reads = match &request {
            ZkOp::Get { path } => self.reads(path),
            _ => None,
        };
        let op = self.ops.begin(pending, reads);
        self.out.push(Action::Perform { op, epoch: self.epoch(), request });
        true
    }

    /// This member ends its part in the election.
    pub(in crate::engine) fn end(&mut self, reason: EndReason) {
        if !self.ended {
            self.ended = true;
            self.out.push(Action::End(reason));
        }
    }

    /// This part retries after a moment.
    pub(in crate::engine) fn retry(&mut self, part: Part) {
        self.ops.retry(part, self.now.time + RETRY);
    }

    /// What this member reads at a path contradicts how its operations there are refused: the server of its session may
    /// disagree with the quorum. The session finds that out, and moves; this part waits a moment.
    pub(in crate::engine) fn contradicted(&mut self, part: Part, path: &str) {
        let text = format!(
            "the creation of {path} is refused because it exists, and it is read as absent: the ZooKeeper server of this \
             session may disagree with the quorum"
        );
        self.note(Level::Warn, NoteKind::Trouble, text);
        self.retry(part);
    }

    pub(in crate::engine) fn note(&mut self, level: Level, kind: NoteKind, text: String) {
        let out = &mut self.out;
        let last = Some(discriminant(&kind));
        if out.last_note != last || *out.sentence != *text {
            out.last_note = last;
            out.sentence = text.into();
            out.push(Action::Note(Note { level, kind, text: Arc::clone(&out.sentence) }));
        }
    }
}
