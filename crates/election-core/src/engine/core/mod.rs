//! The state that every part of the engine uses: the settings, the session, what was read, what this member is, the
//! operations under way, and the actions to be taken out. A part borrows the core and nothing else of the engine.

mod handover;
mod members;
mod rereading;
mod seeing;
pub(crate) mod session;

use super::{
    config::Config,
    io::{Action, EndReason, Level, Note, NoteKind, Skipped, Watched, ZkOp},
    ops::{Ops, Part, Pending, RETRY},
    own::Own,
    reading::Reading,
};
use crate::{
    record::{Current, Elected},
    slots::Slots,
    time::{Now, Time},
};
use session::Session;
use std::{
    collections::VecDeque,
    fmt::Display,
    mem::{Discriminant, discriminant},
    sync::Arc,
};

/// The common part of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    /// The number of this incarnation.
    pub(crate) number: u32,
    pub(crate) now: Now,
    pub(crate) session: Option<Session>,
    pub(crate) reading: Reading,
    pub(crate) own: Own,
    pub(crate) ops: Ops,
    pub(crate) out: Outbox,
    pub(crate) ended: bool,
}

/// The actions to be taken out, and what was reported last: parts are level-triggered and report the same repeatedly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) actions: VecDeque<Action>,
    /// The last deadline that the guard of the work received.
    pub(crate) told_until: Option<Time>,
    pub(crate) keeps_lease: bool,
    /// The first decision, with which this member as the elector names itself: the leader's side writes it.
    pub(crate) first_decision: Option<Box<Elected>>,
    /// Whether the work was ordered to rest.
    pub(crate) suspends: bool,
    pub(crate) watched: Vec<Watched>,
    /// The leaders that were reported last, by slot.
    pub(crate) leaders: Slots<Option<Arc<Current>>>,
    pub(crate) last_note: Option<Discriminant<NoteKind>>,
    /// Why this member, as the elector, decides nothing.
    pub(crate) skipped: Option<Arc<Skipped>>,
    /// What is being done, or why nothing is done: the text of the last note.
    pub(crate) sentence: Arc<str>,
}

impl Outbox {
    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}

impl Core {
    pub(crate) fn new(config: Config, number: u32, now: Now) -> Self {
        let health = config.member.health.clone().bounded();
        Self {
            config,
            number,
            now,
            session: None,
            reading: Reading::default(),
            own: Own { health, joined_ms: now.unix_ms, ..Own::default() },
            ops: Ops::default(),
            out: Outbox::default(),
            ended: false,
        }
    }

    /// Begins an operation on this session; returns whether that was possible.
    pub(crate) fn perform(&mut self, request: impl Into<ZkOp>, pending: Pending) -> bool {
        if !self.session_is_active() {
            return false;
        }
        let request = request.into();
        let reads = match &request {
            ZkOp::Get(path) => self.reads(path),
            _ => None,
        };
        let op = self.ops.begin(pending, reads);
        self.out.push(Action::Perform { op, epoch: self.epoch(), request });
        true
    }

    /// This member ends its part in the election.
    pub(crate) fn end(&mut self, reason: EndReason) {
        if !self.ended {
            self.ended = true;
            self.out.push(Action::End(reason));
        }
    }

    /// This part retries after a moment.
    pub(crate) fn retry(&mut self, part: Part) {
        self.ops.retry(part, self.now.time + RETRY);
    }

    /// What this member reads at a path contradicts how its operations there are refused: the server of its session may
    /// disagree with the quorum. The session finds that out, and moves; this part waits a moment.
    pub(crate) fn contradicted(&mut self, part: Part, path: &str) {
        self.trouble(format!(
            "the creation of {path} is refused because it exists, and it is read as absent: the ZooKeeper server of this \
             session may disagree with the quorum"
        ));
        self.retry(part);
    }

    /// This part is held up, and retries after a moment.
    pub(crate) fn delayed(&mut self, part: Part, why: impl Display) {
        let what = if part == Part::Elector { "the decision" } else { "joining the election" };
        self.trouble(format!("{what} is delayed: {why}"));
        self.retry(part);
    }

    pub(crate) fn trouble(&mut self, what: impl ToString) {
        self.note(Level::Warn, NoteKind::Trouble, what.to_string());
    }

    pub(crate) fn note(&mut self, level: Level, kind: NoteKind, text: String) {
        let out = &mut self.out;
        let last = Some(discriminant(&kind));
        if out.last_note != last || *out.sentence != *text {
            out.last_note = last;
            out.sentence = text.into();
            out.push(Action::Note(Note { level, kind, text: Arc::clone(&out.sentence) }));
        }
    }
}
