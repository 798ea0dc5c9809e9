//! Recipes without an elector: a znode alone decides who leads.
//!
//! ```text
//!   what was read ──┐                               ┌──▶ znode operations, watches
//!   outcomes ───────┼──▶ ContestCandidacy ── znode ─┴──▶ OwnLeadership ──▶ prepare, take over, lead, stop
//!   health, time ───┘           ▲                           │
//!                               └───────── released ────────┘
//! ```
//!
//! The contest is this member's candidacy until a znode of its own is the leader znode: in the queue once no
//! candidate is before it, in the single recipe once the znode has been created. The contest hands that znode to the
//! [leader's side](crate::engine::leader) as a claim. From then on everything is as under an elector: prepare, take
//! over, READY, the lease and its end, stopping, and deleting the leader znode after that. When the leader's side is
//! idle again, the contest starts again with another znode.
//!
//! **The fencing token is the czxid of the leader znode.** Single: each leadership is one creation of the znode, and
//! creations are numbered by czxid. Queue: numbers are given out in the order of creation, and only the first znode
//! leads. When one leader follows another, its znode was either behind the former one already, or created after that:
//! in both cases it was created later. A member that rejoins does so with a new znode, behind all others. A parent
//! that was deleted and created again numbers from 0. It had no child when it was deleted, so all its znodes were
//! created later than all before. Not covered: 2^31 znodes in one queue (the counter wraps), and znodes that are created
//! by hand. No decision counts terms, so the token is also the term.
//!
//! **A base is added where zxids began again**, because the ensemble is new or was restored from a copy. It is in a znode of
//! its own, which every member watches: so the base is known before a member leads, and costs it no round trip then. A
//! member that would not be above what it has seen raises the base before it leads, or beside a leader that knows less. A
//! leader whose token is not above the base ends, and joins again. A successor can learn of a new base a moment late, if
//! its predecessor goes in that moment; then it begins below, and ends when it has read it. So can who joins after the znode was
//! deleted by hand, until a member that has seen the base has written it again.
//!
//! **The versions of each created znode begin at 0**, so the creations of the leader znode of the single recipe are
//! counted. Each creation sets the parent, in the same transaction. A deletion is applied only while the parent has
//! the version that the creation gave it. The versions of a parent that was deleted begin at 0 as well, so the first
//! creation below each parent also creates a child that marks this generation of it, with a name that is used once: all
//! others, and each deletion, are applied only while that exists. So a deletion that arrives late, or is retried, never
//! removes the next leader's znode.
//!
//! **A znode without a member would block every candidate** as long as its session lives. So after a creation without
//! an answer the contest searches for the znode, by the name of that attempt in the queue or in its record, and adopts it. Every
//! other znode of this incarnation is deleted before another one is created and before this member leaves. Znodes of other
//! members that share the session are theirs.
//!
//! No elector oversees a leader here, so the leader oversees itself: it gives up a takeover that takes too long.
//! After a failure the member rejoins only after a pause, which doubles with each failure in a row.

mod duplicate;
mod oversight;
mod resume;
mod steps;

use std::{sync::Arc, time::Duration};

use super::by_recipe::ByRecipe;
use duplicate::Duplicate;
pub(crate) use resume::ContestAtRest;
use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        core::Core,
        io::{EndReason, Level, Node, NoteKind, Outcome, Watched},
        leader::{OwnLeadership, Stage},
        ops::{Part, Pending},
        own::OwnContestZnode,
        recipe::Leftovers,
        tokens::fencing_token,
    },
    ids::Ballot,
    record::{Contender, ContenderStatus, Previous, Record},
    time::Time,
};

/// The first pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The progress of this member's candidacy.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(crate) struct ContestCandidacy {
    step: ContestStep,
    /// The number of znodes whose creation was begun in this session.
    attempts: u32,
    /// The last creation had no answer: a znode of that attempt is this member's.
    #[serde(skip)]
    unanswered: bool,
    /// A creation whose connection was lost may still be on its way from another server: no write of this session has been
    /// answered since.
    may_arrive: bool,
    /// Single: of the parent of the leader znode.
    generation: Generation,
    /// Single: how often the creation was refused because the leader znode exists, since it was last read as present.
    #[serde(skip)]
    refused: u8,
    /// Queue: the path of the znode before, and the content of its record.
    before: Option<Box<Before>>,
    /// The znode before has gone, or may not be the only one any more: the queue must be ranked again.
    #[serde(skip)]
    look_again: bool,
    /// The content of the own znode that the creation under way writes.
    #[serde(skip)]
    written: Vec<u8>,
    failures: u32,
    join_at: Option<Time>,
    /// What the application is doing, and since when.
    #[serde(skip)]
    stage: Option<(Stage, Time)>,
    serving_since: Option<Time>,
    /// Another member was seen to lead, or to be before this one.
    has_waited: bool,
    previous: Option<Box<Previous>>,
    #[serde(skip)]
    suspected: Option<Box<Duplicate>>,
    /// The znode and the address of another living member with the same id: this one leaves.
    #[serde(skip)]
    duplicate_of: Option<(String, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Before {
    path: String,
    /// No other znode is before the own one, by what was read since the last reconnect.
    #[serde(skip)]
    alone: bool,
    /// The queue was read since the last reconnect, and no znode was between this one and the own one.
    #[serde(skip)]
    ranked: bool,
    /// It is the first in the queue, as far as is known.
    first: bool,
    /// It was seen to have gone.
    gone: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ContestStep {
    /// There is no session.
    #[default]
    Idle,
    /// Looks for znodes of a former process of this member in the queue.
    ListLeftovers,
    /// The last of these.
    LookAtLeftover(Vec<String>),
    /// The last of these.
    DropLeftover(Vec<String>),
    /// Looks for znodes of this incarnation that belong to no candidacy.
    Seek(AfterSeek),
    /// Single: looks for the generation of the parent.
    ReadGeneration(AfterSeek),
    /// Found under the guid of a creation that was not answered.
    Adopt(Box<str>),
    /// Single: the leader znode is this incarnation's. Reads the count of its creation, before the leader znode is read
    /// again: if the leader znode is newer, the count is too low, and nothing is deleted by it.
    Count(AfterSeek),
    Look(AfterSeek, i32),
    /// With its version and its count, if it is the leader znode.
    Drop(Box<str>, Option<(i32, i32)>, AfterSeek),
    Create,
    /// Queue: looks for the znode before the own one.
    Rank,
    /// Another candidate is before this one.
    Waiting,
    /// Reads what may be another incarnation's znode.
    LookAtDuplicate,
    /// No candidate is before this one; the leader's side may still be busy with the former leadership.
    First,
    /// The leader's side has the znode.
    Leading,
    /// No candidate for a while.
    Pausing,
    Gone,
}

/// The path of the child that tells one life of the leader znode's parent from the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Generation {
    #[default]
    Unread,
    /// The next creation creates it.
    Missing,
    /// It exists, or is created by the creation under way.
    Known(Arc<str>),
}

impl Generation {
    fn path(&self) -> Option<Arc<str>> {
        match self {
            Self::Known(path) => Some(Arc::clone(path)),
            Self::Unread | Self::Missing => None,
        }
    }
}

/// The next step once no znode is left that belongs to no candidacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AfterSeek {
    Join,
    Pause,
    Leave,
}

impl ContestCandidacy {
    /// Starts again. Only the memory of failures is kept.
    fn reset(&mut self, core: &mut Core, step: ContestStep) {
        core.ops.give_up_all(Part::Candidacy);
        core.own.contest = OwnContestZnode::default();
        let duplicate_of = self.duplicate_of.take();
        *self =
            Self { step, failures: self.failures, join_at: self.join_at, duplicate_of, ..Self::default() };
    }

    /// Whether no znode of this incarnation can exist yet.
    fn is_preparing(&self) -> bool {
        matches!(
            self.step,
            ContestStep::ListLeftovers | ContestStep::LookAtLeftover(_) | ContestStep::DropLeftover(..)
        )
    }

    /// The znode before has changed: its member leads now, or the znode has gone.
    fn saw_before(&mut self, core: &mut Core, node: Option<&Node>) {
        let Some(before) = &mut self.before else { return };
        let Some(node) = node else {
            before.gone = true;
            self.look_again = true;
            return;
        };
        let Ok(record) = Contender::decode(&before.path, &node.data) else { return };
        if record.status == ContenderStatus::Ready {
            core.reading.memory.saw_leader(node.into(), fencing_token(node.czxid, record.token_base));
            // A leader was the first in the queue. What came back with an older copy of the ensemble may be behind it.
            (before.first, before.alone) = (true, before.ranked);
            self.look_again |= !before.ranked;
            let name = before.path.rsplit('/').next().unwrap_or_default();
            let ballot = Ballot::new(name).ok();
            self.previous =
                ballot.map(|ballot| Box::new(Previous { member: record.member, ballot, site: record.site }));
        }
    }

    /// Rejoins with a new znode.
    fn own_lost(&mut self, core: &mut Core, why: &str) {
        core.note(Level::Warn, NoteKind::Registration, format!("{why}; standing anew"));
        core.own.contest.znode = None;
        self.before = None;
        core.ops.give_up(&Pending::Candidacy);
        self.step = ContestStep::Seek(AfterSeek::Join);
    }
}

impl ByRecipe for ContestCandidacy {
    fn begin(&mut self, core: &mut Core) {
        let first = match (core.config.leftovers, core.queue_format()) {
            (Leftovers::Remove, Some(_)) => ContestStep::ListLeftovers,
            (_, None) => ContestStep::ReadGeneration(AfterSeek::Join),
            (Leftovers::Wait, Some(_)) => ContestStep::Create,
        };
        self.reset(core, first);
        if core.own.gave_up.is_some() {
            self.pause_after_failure(core, false);
        }
    }

    /// The connection was lost, and has returned. In an older copy of the ensemble, candidates can be present again
    /// that were before this one in the queue.
    fn session_resumed(&mut self, core: &mut Core) {
        self.wait_anew_for_duplicate(core);
        if core.queue_format().is_none() {
            return;
        }
        match self.step {
            ContestStep::First | ContestStep::Rank => {
                // A list that is under way may have been answered before the pause.
                core.ops.give_up(&Pending::Candidacy);
                self.before = None;
                self.step = ContestStep::Rank;
            }
            ContestStep::Waiting | ContestStep::LookAtDuplicate => {
                if let Some(before) = &mut self.before {
                    (before.gone, before.ranked) = (false, false);
                    self.look_again |= std::mem::take(&mut before.alone);
                }
            }
            ContestStep::Leading => {
                core.ops.give_up(&Pending::Candidacy);
                core.own.contest.ranks_again = core.own.duty.held.is_none();
            }
            _ => {}
        }
    }

    fn session_over(&mut self, core: &mut Core) {
        let served = self.serving_since.map(|since| core.now.time.since(since));
        if served.is_some_and(|served| served >= core.config.policy.min_tenure) {
            self.failures = 0;
        }
        self.reset(core, ContestStep::Idle);
    }

    fn look_again(&mut self) {
        // The application did not run either, so its time begins again.
        self.stage = None;
    }

    fn advance(&mut self, core: &mut Core, leader: &mut OwnLeadership) {
        self.oversee(core, leader);
        self.raise_tokens(core);
        if core.session_is_active()
            && core.ops.is_free(Part::Candidacy, core.now.time)
            && !self.turn(core, leader)
            && let Some(request) = self.next_request(core)
        {
            core.perform(request, Pending::Candidacy);
        }
    }

    fn done(&mut self, core: &mut Core, leader: &mut OwnLeadership, outcome: &Outcome) {
        self.step_done(core, leader, outcome);
    }

    fn is_gone(&self) -> bool {
        matches!(self.step, ContestStep::Idle | ContestStep::Gone)
    }

    fn end(&self, core: &Core) -> EndReason {
        let duplicate_of = self.duplicate_of.clone();
        duplicate_of.map_or(EndReason::Left, |(path, address)| core.duplicate(path, address))
    }

    fn wake(&self, core: &Core) -> Option<Time> {
        let pauses = self.step == ContestStep::Pausing && core.session_is_active();
        let join = self.join_at.filter(|at| pauses && *at > core.now.time);
        let stage = self.stage.map(|(_, since)| since + core.config.policy.takeover_timeout);
        let waits = self.step == ContestStep::Waiting && core.session_is_active();
        let suspected = self.duplicate_due().filter(|_| waits);
        [join, stage, suspected].into_iter().flatten().min()
    }

    /// The name of the own znode, once this member is a candidate. In the single recipe the leader znode has a fixed
    /// name, so the name is in its record.
    fn ballot(&self, core: &Core) -> Option<Ballot> {
        match (&self.step, &core.own.contest.znode) {
            (_, Some(own)) => Some(own.ballot.clone()),
            (ContestStep::Waiting | ContestStep::LookAtDuplicate, None) => {
                core.incarnation().ballot(self.attempts)
            }
            _ => None,
        }
    }

    fn is_paused(&self) -> bool {
        matches!(
            self.step,
            ContestStep::Pausing
                | ContestStep::Seek(AfterSeek::Pause)
                | ContestStep::ReadGeneration(AfterSeek::Pause)
                | ContestStep::Count(AfterSeek::Pause)
                | ContestStep::Look(AfterSeek::Pause, _)
                | ContestStep::Drop(_, _, AfterSeek::Pause)
        )
    }

    /// Whether this member is the next one to lead, as far as is known, or finds out whether it is.
    fn keeps_lease(&self) -> bool {
        match self.step {
            ContestStep::Idle | ContestStep::Gone | ContestStep::Pausing => false,
            ContestStep::Waiting | ContestStep::LookAtDuplicate => {
                self.before.as_ref().is_some_and(|before| before.first)
            }
            _ => true,
        }
    }

    /// Queue: the path of the znode before, while it exists as far as is known.
    fn predecessor(&self, _: &Core) -> Option<String> {
        self.before.as_ref().filter(|before| !before.gone).map(|before| before.path.clone())
    }

    fn watched(&self, core: &Core) -> Vec<Watched> {
        let mut watched = Vec::new();
        if core.queue_format().is_some() {
            watched.extend(core.own.contest.znode.iter().map(|own| Watched::Node(Arc::clone(&own.path))));
            watched.extend(self.predecessor(core).map(Watched::node));
        } else if !self.is_gone() {
            watched.push(Watched::node(core.config.paths.leader_znode(0)));
        }
        if core.config.recipe.is_native() && !self.is_gone() {
            watched.push(Watched::node(core.config.paths.tokens()));
        }
        watched
    }

    /// A watch has read the own znode or the znode before.
    fn saw(&mut self, core: &mut Core, leader: &mut OwnLeadership, path: &str, node: Option<&Node>) {
        if path == core.config.paths.tokens() {
            return core.see_tokens(node);
        }
        let own = core.own.contest.znode.as_ref().filter(|own| *own.path == *path);
        if core.queue_format().is_none() {
            if path == core.config.paths.leader_znode(0) {
                leader.watch_told(core, 0, node);
            }
        } else if let Some(own) = own {
            let present = node.filter(|n| n.owner == own.node.owner && n.czxid == own.node.czxid);
            if self.step == ContestStep::Leading {
                leader.watch_told(core, 0, node);
            } else if let Some(node) = present {
                let mut own = own.clone();
                own.node = node.clone();
                core.own.contest.znode = Some(own);
            } else {
                self.own_lost(core, "the own znode in the queue is gone");
            }
        } else if self.before.as_ref().is_some_and(|before| before.path == path) {
            self.saw_before(core, node);
        }
    }
}
